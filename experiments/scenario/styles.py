"""The kinds, spreads and sizes of figures, by the names that scenarios and `fanin plot` use."""

from typing import Literal

Kind = Literal["lines", "box", "cdf"]
Spread = Literal["minmax", "iqr", "ci95", "none"]
Style = Literal["page", "column", "slide"]
