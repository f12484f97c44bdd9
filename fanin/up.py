"""`fanin up`: a network with its program, routes and a lease, for as long as one likes."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from experiments.tools import Compiler, Engine, ToolError
from fanin.options import Leaves, Rate, Spines, Switch, SwitchCompiler, Workers
from topologies.errors import NetworkError
from topologies.model import Topology, TopologyError, leaf_spine
from topologies.sandbox import SandboxError, enter
