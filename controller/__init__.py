"""The control plane: what each switch is told, and telling it over P4Runtime."""

import logging

# What is logged goes where a program says (fanin up --log), and nowhere if it does not.
logging.getLogger(__name__).addHandler(logging.NullHandler())
