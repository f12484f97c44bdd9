"""Python files that a user brings: loaded by their path, and what goes wrong in them told with file and line."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from fanin.controller.errors import ControllerError
from fanin.workers.collective import CollectiveError

Function = Callable[..., Any]


class PythonFileError(RuntimeError):
    """A file that a user brings cannot be loaded, or fails: the message names the file and the line."""


@cache
def load(path: Path) -> ModuleType:
    """The module in a file, under a name that no other has: a file called workers.py hides nothing.

    What it imports may lie beside it, but is looked for everywhere else first.

    Raises:
        PythonFileError: it cannot be.
    """
    name = f"brought_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PythonFileError(f"{path}: is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as dataclasses in it need
    if (folder := str(path.parent)) not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise told(path, error) from error
    return module


def functions(path: Path, names: tuple[str, ...]) -> dict[str, Function]:
    """Those of these functions that a file defines, by name; their errors come as PythonFileError.

    Raises:
        PythonFileError: it cannot be loaded, or defines none of them.
    """
    module = load(path)
    found = {name: getattr(module, name) for name in names if hasattr(module, name)}
    for name, function in found.items():
        if not callable(function):
            raise PythonFileError(f"{path}: {name} is {type(function).__name__}, must be a function")
    if not found:
        raise PythonFileError(f"{path}: defines none of {', '.join(f'{name}()' for name in names)}")
    return {name: _telling(path, function) for name, function in found.items()}


def _telling(path: Path, function: Function) -> Function:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (ControllerError, CollectiveError):  # which it raises for others to see
            raise
        except Exception as error:
            raise told(path, error, function) from error

    return call


@contextmanager
def telling(path: Path | None) -> Iterator[None]:
    """What fails in a file comes as PythonFileError from here, but for what it may raise itself."""
    try:
        yield
    except (ControllerError, CollectiveError):
        raise
    except Exception as error:
        if path and any(frame.filename == str(path) for frame in extract_tb(error.__traceback__)):
            raise told(path, error) from error
        raise


def told(path: Path, error: Exception, function: Function | None = None) -> PythonFileError:
    """An error that passed through a file, with the last line there; without one, the line of `function`."""
    if isinstance(error, PythonFileError):
        return error
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return PythonFileError(f"{path}:{error.lineno}: {type(error).__name__}: {error.msg}")
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
    code = getattr(function, "__code__", None)
    line = lines[-1] if lines else code and code.co_firstlineno
    return PythonFileError(f"{path}:{line or 1}: {type(error).__name__}: {error}")
