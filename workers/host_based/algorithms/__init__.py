"""The all-reduce algorithms between hosts, each in a file of its own."""
