"""Figures of results, and the series that they show."""
