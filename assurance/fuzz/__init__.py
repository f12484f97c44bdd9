"""Random programs and hostile packets through the switch, with the sanitizers in its C: `fanin fuzz`."""
