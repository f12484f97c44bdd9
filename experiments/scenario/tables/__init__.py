"""The tables that a scenario may have, each with its keys and the checks that concern it alone."""
