"""Modules of which `fanin course` puts a copy into a course's environment. They import nothing of fanin."""
