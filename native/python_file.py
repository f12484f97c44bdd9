"""Python files of a user: loaded by their path, with errors that name the file and the line."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from traceback import extract_tb
from types import FunctionType, ModuleType
from typing import Any

Function = Callable[..., Any]
_MISSPELT = 0.8  # similarity of names, as difflib measures it


class DeliberateError(RuntimeError):
    """An error that a function of a file raises on purpose, for the caller."""


class PythonFileError(RuntimeError):
    """A failure to load a user's file, or an error in it: the message names the file and the line."""


@cache
def load(path: Path) -> ModuleType:
    """Return the module in a file, under a unique name: a file called workers.py hides nothing.

    Modules that it imports may be in the same folder, which is searched last.

    Raises:
        PythonFileError: If the file cannot be loaded.
    """
    name = f"brought_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PythonFileError(f"{path}: is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses in the file need it
    if (folder := str(path.parent)) not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise error_in(path, error) from error
    return module


def functions(path: Path, names: tuple[str, ...]) -> dict[str, Function]:
    """Return those of these functions that a file defines, by name; their errors are raised as PythonFileError.

    Raises:
        PythonFileError: If the file cannot be loaded, defines none of them, or seems to misspell one, which would
            otherwise go unnoticed where it need not be defined.
    """
    module = load(path)
    found = {name: getattr(module, name) for name in names if hasattr(module, name)}
    for name, function in vars(module).items():
        if name[0] == "_" or name in names or not isinstance(function, FunctionType):
            continue
        meant = get_close_matches(name, [each for each in names if each not in found], 1, _MISSPELT)
        if meant and function.__module__ == module.__name__:
            raise PythonFileError(
                f"{path}:{function.__code__.co_firstlineno}: fanin does not call {name}(); did you mean {meant[0]}()? "
                f"If it is a function of your own, call it _{name}()"
            )
    for name, function in found.items():
        if not callable(function):
            raise PythonFileError(f"{path}: {name} is {type(function).__name__}, must be a function")
    if not found:
        raise PythonFileError(f"{path}: defines none of {', '.join(f'{name}()' for name in names)}")
    return {name: _reporting_errors(path, function) for name, function in found.items()}


def _reporting_errors(path: Path, function: Function) -> Function:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except DeliberateError:
            raise
        except Exception as error:
            raise error_in(path, error, function) from error

    return call


@contextmanager
def telling(path: Path | None) -> Iterator[None]:
    """Raise errors in a file as PythonFileError, except those that the file may raise itself."""
    try:
        yield
    except DeliberateError:
        raise
    except Exception as error:
        if path and any(frame.filename == str(path) for frame in extract_tb(error.__traceback__)):
            raise error_in(path, error) from error
        raise


def error_in(path: Path, error: Exception, function: Function | None = None) -> PythonFileError:
    """Return an error that passed through a file as a PythonFileError with the last line there.

    If the traceback has no line of the file, it is the first line of `function`.
    """
    if isinstance(error, PythonFileError):
        return error
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return PythonFileError(f"{path}:{error.lineno}: {type(error).__name__}: {error.msg}")
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
    code = getattr(function, "__code__", None)
    line = lines[-1] if lines else code and code.co_firstlineno
    return PythonFileError(f"{path}:{line or 1}: {type(error).__name__}: {error}")
