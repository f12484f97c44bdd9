"""The figures to choose from, in the words of scenarios and of `fanin plot`: their kinds, shades and sizes."""

from typing import Literal

Kind = Literal["lines", "box", "cdf"]
Spread = Literal["minmax", "iqr", "ci95", "none"]
Style = Literal["page", "column", "slide"]
