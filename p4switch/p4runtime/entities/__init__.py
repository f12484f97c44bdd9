"""The P4 entities of a pipeline over P4Runtime."""
