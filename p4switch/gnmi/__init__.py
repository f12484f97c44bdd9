"""The gNMI service: the switch's ports as OpenConfig interfaces."""
