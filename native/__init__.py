"""C that Python loads: compiled within limits, kept by content, its structs and numbers compared with Python's."""
