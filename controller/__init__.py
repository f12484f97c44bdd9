"""The control plane: what each switch should hold, and how it is written over P4Runtime."""

import logging

# Log records are dropped unless a program sets a destination (fanin up --log).
logging.getLogger(__name__).addHandler(logging.NullHandler())
