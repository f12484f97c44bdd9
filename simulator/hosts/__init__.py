"""Hosts of a network in virtual time: workers, and what they do between all-reduces."""
