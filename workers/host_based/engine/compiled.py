"""The C of streams between hosts: the .c files here, compiled when they are first used, and their settings."""

from __future__ import annotations

import ctypes
import warnings
from functools import cache
from pathlib import Path

import numpy as np

from fanin.native.shared import check_numbers, check_structs
from fanin.native.toolchain import NoCompilerError, ToolchainError, compile_folder
from fanin.workers.collective import Transport
from fanin.workers.host_based import transport as python
from fanin.workers.host_based.congestion_control import (
    CongestionControl,
    Dcqcn,
    Dctcp,
    NoControl,
)
from fanin.workers.host_based.participant import LEAST_SHARE
from fanin.workers.recovery import MAX_BACKOFF, Recovery
from fanin.workers.wire import HEADERS

_pointer, _int64, _double = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_TRANSPORTS = ("selective-repeat", "go-back-n")
FOLDER = Path(__file__).parent
_CONTROLS = (NoControl, Dctcp, Dcqcn)


class Settings(ctypes.Structure):
    """Settings of streams, and what is counted over all of them: the struct `settings` of streams.h."""

    _fields_ = (
        *((name, _double) for name in ("initial_rto", "min_rto", "max_rto", "granularity")),
        *((name, _int64) for name in ("transport", "window", "packet_threshold", "payload", "control")),
        *((name, _double) for name in ("gain", "alpha")),
        *((name, _int64) for name in ("least", "first_window", "initial_ssthresh", "always")),
        *((name, _double) for name in ("rate", "packet_bits", "alpha_interval", "decrease_interval")),
        *((name, _double) for name in ("increase_interval", "additive_rate", "hyper_rate", "min_rate")),
        *((name, _int64) for name in ("fast_recovery", "by_timer", "keep_target")),
        *((name, _int64) for name in ("retransmissions", "timeouts", "malformed", "duplicate", "early")),
    )

    def add_to(self, counts: python.StreamCounts) -> None:
        """Add what has been counted to `counts`."""
        counts.retransmissions += self.retransmissions
        counts.timeouts += self.timeouts
        for name in ("malformed", "duplicate", "early"):
            if count := getattr(self, name):
                counts.ignored[name] += count


class Worker(ctypes.Structure):
    """The struct `worker` of peers.h."""

    _fields_ = (
        ("streams", Settings),
        *((name, _int64) for name in ("rank", "workers", "flows", "session", "per_host")),
        ("give_up", _double),
        ("header", ctypes.c_uint8 * HEADERS),
        ("addresses", _pointer),
        ("first_port", _int64),
        *((name, _pointer) for name in ("source", "array")),
        *((name, _int64) for name in ("call", "running")),
        *((name, _double) for name in ("heard", "summed_at")),
        *((name, _int64) for name in ("datagrams_sent", "datagrams_received", "bytes_sent")),
        *(
            (name, _int64)
            for name in ("bytes_received", "other_session", "differs", "other_rank", "other_call")
        ),
    )


BATCH = np.dtype([(name, np.int64) for name in ("peer", "flow", "count", "size", "offset")])
PIECE = np.dtype([(name, np.int64) for name in ("start", "stop", "after", "needed", "reduce")])
FLOW = np.dtype(
    [
        *((name, np.int64) for name in ("source", "destination", "size", "missing")),
        *((name, np.float64) for name in ("start", "ended")),
    ]
)
_NUMBERS = {
    "MAX_PAYLOAD": python.MAX_PAYLOAD,
    "HEADER_BYTES": python.HEADER_BYTES,
    "FRAME_HEADER": HEADERS,
    "CALL_BYTES": python.CALL_BYTES,
    "ENDS": python.ENDS,
    "MIN_FLIGHT": python.MIN_FLIGHT,
    "MAX_BACKOFF": MAX_BACKOFF,
    "LEAST_SHARE": LEAST_SHARE,
    "DATA": python.DATA,
    "ACK": python.ACK,
    "NAK": python.NAK,
}


def in_c(transport: Transport, control: CongestionControl) -> bool:
    """Return whether there are this transport and this congestion control in C."""
    return transport in _TRANSPORTS and type(control) in _CONTROLS


def settings_of(
    transport: Transport, window: int, payload: int, recovery: Recovery, control: CongestionControl
) -> Settings:
    """Return the settings of streams.

    Args:
        transport: The transport; in_c() holds for it.
        window: Limit of outstanding packets.
        payload: Bytes of payload in a full packet.
        recovery: Timers and thresholds.
        control: Congestion control of a stream that has sent nothing yet; in_c() holds for it.
    """
    settings = Settings(
        initial_rto=recovery.initial_rto,
        min_rto=recovery.min_rto,
        max_rto=recovery.max_rto,
        granularity=recovery.granularity,
        transport=_TRANSPORTS.index(transport),
        window=window,
        packet_threshold=recovery.packet_threshold,
        payload=payload,
        control=_CONTROLS.index(type(control)),
    )
    if isinstance(control, Dctcp):
        dctcp = control.parameters
        settings.gain, settings.alpha = dctcp.gain, dctcp.initial_alpha
        settings.least = min(dctcp.min_window, window)
        settings.first_window = min(dctcp.initial_window or window, window)
        settings.initial_ssthresh = dctcp.ssthresh or window
        settings.always = dctcp.increase == "always"
    elif isinstance(control, Dcqcn):
        dcqcn = control.parameters
        settings.gain, settings.alpha = dcqcn.gain, dcqcn.initial_alpha
        settings.rate, settings.packet_bits = control.rate, control.packet_bits
        for name in ("alpha_interval", "decrease_interval", "increase_interval"):
            setattr(settings, name, getattr(dcqcn, name))
        for name in ("additive_rate", "hyper_rate", "min_rate"):
            setattr(settings, name, getattr(dcqcn, name))
        for name in ("fast_recovery", "by_timer", "keep_target"):
            setattr(settings, name, getattr(dcqcn, name))
    return settings


def address_of(function: object) -> int:
    """Return the address of a function of the library."""
    address = ctypes.cast(function, _pointer).value  # type: ignore[arg-type]
    assert address
    return address


@cache
def library(folder: Path = FOLDER) -> ctypes.CDLL | None:
    """Compile the C files of a folder with $CC or cc, and return the library.

    Returns:
        The library. None if there is no compiler, or, after a warning, if compilation fails.

    Raises:
        SharedError: If C and Python do not agree on a number or a struct.
    """
    try:
        loaded = ctypes.CDLL(str(compile_folder(folder, "-ffp-contract=off", "-lm", any_processor=True)))
    except NoCompilerError:
        return None
    except (OSError, ToolchainError) as error:
        warnings.warn(f"streams between hosts continue without C, more slowly: {error}", stacklevel=2)
        return None
    check_structs(
        loaded, {"settings": Settings, "worker": Worker, "batch": BATCH, "piece": PIECE, "flow_facts": FLOW}
    )
    check_numbers(loaded, _NUMBERS)
    loaded.peers_open.argtypes = (ctypes.POINTER(Worker),)
    loaded.peers_open.restype = _pointer
    loaded.peers_close.argtypes = (_pointer,)
    loaded.peers_close.restype = None
    loaded.peers_start.argtypes = (_pointer, _pointer, _int64, _pointer, _double)
    loaded.peers_receive.argtypes = (_pointer, _pointer, _int64, _int64, _pointer, _double)
    loaded.peers_send.argtypes = (_pointer, _double, ctypes.POINTER(_pointer), ctypes.POINTER(_pointer))
    loaded.peers_send.restype = _int64
    loaded.peers_finished.argtypes = (_pointer,)
    loaded.peers_finished.restype = ctypes.c_bool
    loaded.peers_deadline.argtypes = (_pointer,)
    loaded.peers_deadline.restype = _double
    loaded.peers_awaited.argtypes = (_pointer, ctypes.c_bool, _pointer)
    loaded.peers_awaited.restype = _int64
    loaded.flows_open.argtypes = (_pointer, _int64, _pointer, _pointer, _int64)
    loaded.flows_open.restype = _pointer
    loaded.flows_close.argtypes = (_pointer,)
    loaded.flows_close.restype = None
    loaded.flows_add_host.argtypes = (
        *(_pointer, ctypes.POINTER(Settings), _int64),
        *(_pointer, _int64, _pointer, _int64),
    )
    loaded.flows_add_host.restype = _pointer
    return loaded
