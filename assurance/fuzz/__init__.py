"""Random programs and hostile packets for the switch, whose C runs with sanitizers: `fanin fuzz`."""
