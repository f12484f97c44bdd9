"""Pages for the browser: a server on this machine, and what each page asks of it."""
