"""State of hash algorithms, for the control plane. runtime/hash_state.h declares the same struct in C."""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_bool, c_uint32, c_uint64, c_void_p

from fanin.p4switch.entries import TableError, TableErrorCode

MAX_KEY_WORDS = 64


class HashState(ctypes.Structure):
    """State of one calculation, in the switch's memory."""

    _fields_ = (
        *(("next", c_uint64), ("seen", c_void_p), ("places", c_uint64)),
        *(("key_words", c_uint32), ("key", c_uint32 * MAX_KEY_WORDS)),
        *((name, c_bool) for name in ("crc_set", "reflects_input", "reflects_output")),
        *((name, c_uint32) for name in ("polynomial", "initial", "final")),
    )

    def set_key(self, key: bytes) -> None:
        """Set the toeplitz key.

        Raises:
            TableError: INVALID_ARGUMENT if it is not 1 to MAX_KEY_WORDS words of 4 bytes.
        """
        count, rest = divmod(len(key), 4)
        if rest or not 0 < count <= MAX_KEY_WORDS:
            raise TableError(
                TableErrorCode.INVALID_ARGUMENT,
                f"toeplitz: a key has 4, 8, ... {4 * MAX_KEY_WORDS} bytes, not {len(key)}",
            )
        self.key[:count] = struct.unpack(f">{count}I", key)
        self.key_words = count
