"""Random programs and hostile packets through the switch with the sanitizers in its C: `python -m p4switch.fuzz`."""
