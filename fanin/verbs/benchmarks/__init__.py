"""The commands of `fanin bench`."""
