"""A network as plain data: switches, hosts and links, and the shapes in which they come."""
