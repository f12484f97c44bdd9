"""The processing of a worker's packets with numpy: the reference implementation, which native.c speeds up."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fanin.workers import wire
from fanin.workers.agreement import DIGITS
from fanin.workers.engines.blocks import Blocks
from fanin.workers.engines.buffers import Buffers
from fanin.workers.engines.engine import BARE, CARRYING, LEADING, NONE, NOT_BEGUN, REASONS, Socket, State
from fanin.workers.tensor import Tensor, span

# By the msg_type of an update: that of its answer.
_ANSWERS = {wire.UPDATE: wire.RESULT, wire.GIVE: wire.ACKNOWLEDGEMENT, wire.TAKE: wire.RESULT}
# By the number of integers of 32 bits: the first byte of answers.
_RESULTS = {values: [wire.kind(wire.RESULT, values)] for values in wire.VALUES.values() if values}
_RESULTS[0] = [wire.kind(wire.ACKNOWLEDGEMENT, values) for values in _RESULTS]


class NumpyEngine:
    """An Engine that works on all packets of a batch at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        window = state.lease.window
        # By place: fields that the awaited result must have.
        self._kinds = np.zeros(window, np.uint8)
        self._pool_indices = np.zeros(window, np.int64)
        self._copies = np.zeros(window, np.int64)  # scratch of receive()
        self._factors = np.empty(0)
        self._blocks: Blocks | None = None
        self._out = np.empty(0, np.float32)
        self._copy: NDArray[np.float32] | None = None

    def begin(self, tensor: Tensor, buffers: Buffers, first_chunk: int, propagate: bool) -> NDArray[np.int64]:
        """See Engine."""
        if tensor.blocks > len(self._factors):
            self._factors = np.append(self._factors, np.empty(tensor.blocks - len(self._factors)))
        self._out, self._copy = buffers.out, None
        if buffers.kept is not None:
            self._out, self._copy = buffers.kept, buffers.out
        progress = self._state.progress
        call = (tensor.signature + progress.calls) % wire.CALLS
        self._blocks = self._make_blocks(tensor, call, buffers.x, self._out)
        progress.first_chunk, progress.chunks = first_chunk, 0
        progress.disagree = progress.unsummed = 0
        if self._blocks.unquantizable and not propagate:
            return np.zeros(0, np.int64)
        progress.missing = progress.chunks = tensor.least_chunks
        return self._state.gate.begin(tensor.lead)

    def repeat(self, socket: Socket, tensor: Tensor, buffers: Buffers, propagate: bool) -> int:  # noqa: ARG002
        """See Engine."""
        return NOT_BEGUN

    def _make_blocks(
        self, tensor: Tensor, call: int, x: NDArray[np.float32], out: NDArray[np.float32]
    ) -> Blocks:
        return Blocks(tensor, call, x, out, self._factors)

    @property
    def _begun(self) -> Blocks:
        assert self._blocks, "begin() comes first"
        return self._blocks

    @property
    def quantizable(self) -> NDArray[np.bool_]:
        """See Engine."""
        return self._begun.quantizable

    @property
    def factors(self) -> NDArray[np.float64]:
        """See Engine."""
        return self._factors

    @property
    def summed(self) -> NDArray[np.bool_]:
        """See Engine."""
        return self._begun.put_out()

    def finish(self) -> None:
        """See Engine."""
        self._begun.let_go()
        self._out, self._copy = np.empty(0, np.float32), None

    @property
    def turn(self) -> None:
        """See Engine."""
        return None

    def pack(self, chunks: NDArray[np.int64], now: float) -> list[NDArray[np.void]]:
        """See Engine."""
        types = self._begun.types(chunks)
        leading = chunks < self._begun.tensor.bare
        changes = (types[1:] != types[:-1]) | (leading[1:] != leading[:-1])
        firsts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(chunks)]
        return [self._pack(chunks[a:b], int(types[a]), now) for a, b in pairwise(firsts)]

    def _pack(self, chunks: NDArray[np.int64], msg_type: int, now: float) -> NDArray[np.void]:
        """Return the packets [m] of chunks [m] with the same msg_type: all among the first B, or none."""
        state, lease, tensor = self._state, self._state.lease, self._begun.tensor
        numbers = chunks + state.progress.first_chunk
        places = span(numbers % lease.window)
        leading = bool(chunks[0] < tensor.bare)
        small = leading or tensor.values * tensor.bits == 32 * min(wire.SIZES)
        kept_in = BARE if msg_type == wire.TAKE else LEADING if small else CARRYING
        packets = state.packets[kept_in]
        batch = packets[places]
        batch["tsi"] = numbers
        batch["pool_index"] = pool_indices = wire.pool_index(numbers, lease.first_slot, lease.window)
        integers = min(wire.SIZES) if leading else tensor.values
        batch["kind"] = wire.kind(msg_type, integers)
        self._begun.write(chunks, batch)
        if not isinstance(places, slice):
            packets[places] = batch

        state.awaited[places] = numbers
        state.kept_in[places] = kept_in
        self._kinds[places] = wire.kind(_ANSWERS[msg_type], integers)
        self._pool_indices[places] = pool_indices
        state.timers.start(places, now, patient=bool(chunks[0] < tensor.lead), measure=not leading)
        return batch

    def exchange(self, socket: Socket, ready: list[NDArray[np.int64]], until: float) -> None:
        """See Engine."""
        socket.exchange(self._state, self, ready, until)

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> NDArray[np.int64] | None:
        """See Engine."""
        totals = self._state.totals
        count, size = datagrams.shape
        totals.received += count
        totals.received_bytes += datagrams.size
        if size not in wire.VALUES:
            totals.ignored[REASONS.index("malformed")] += count
            return None
        return self._take(datagrams, now)

    def _take(self, datagrams: NDArray[np.uint8], now: float) -> NDArray[np.int64] | None:
        """Store the awaited results among these packets, and return the chunks that may be sent now."""
        state, lease, progress = self._state, self._state.lease, self._state.progress
        count, size = datagrams.shape
        packets = wire.as_packets(datagrams)
        numbers = packets["tsi"].astype(np.int64)
        places = numbers % lease.window
        chunks = numbers - progress.first_chunk
        kinds = packets["kind"] & np.uint8(0xFF ^ wire.SATURATED)
        awaited = state.awaited[places] == numbers
        fits = awaited & (kinds == self._kinds[places]) & (packets["lease"] == lease.id)
        fits &= packets["pool_index"] == self._pool_indices[places]
        possible = fits.copy()
        if np.count_nonzero(fits):
            possible[fits] = self._begun.possible(chunks[fits], packets[fits])
        # If the batch has several copies of a result, the first counts: it is the last to write its index.
        indices = np.arange(count)
        self._copies[places[possible][::-1]] = indices[possible][::-1]
        fresh = possible & (self._copies[places] == indices)
        if np.count_nonzero(fresh) < count:
            results = np.isin(kinds & np.uint8(0xFF ^ wire.OF_16_BITS), _RESULTS[wire.VALUES[size]])
            # The first reason that applies.
            reasons = (
                ("malformed", ~results),
                ("other lease", packets["lease"] != lease.id),
                ("unknown chunk", ~(awaited | self._answered(chunks))),
                ("malformed", awaited & ~fits),
                ("impossible", awaited & ~possible),
            )
            self._count_ignored(~fresh, reasons)
        if size != wire.HEADER.itemsize:
            fresh[fresh] = self._agreed(chunks[fresh], packets["values"][fresh, :DIGITS])
        if np.count_nonzero(fresh) < count:
            packets, places, chunks = packets[fresh], places[fresh], chunks[fresh]
            if not len(chunks):
                return None

        state.timers.stop(places, now)
        state.awaited[places] = NONE
        state.totals.saturated += int(np.count_nonzero(packets["kind"] & wire.SATURATED))
        state.totals.accepted += len(chunks)
        progress.missing -= len(chunks)
        progress.latest = now
        self._begun.accepted[chunks] = True
        progress.unsummed += self._begun.read(chunks, packets)
        state.gate.answer(len(chunks))
        ready = state.gate.admit(self._released(chunks), self._begun.accepted, self._begun.tensor.lead)
        if not progress.missing:
            self._begun.complete()
            if self._copy is not None:
                self._copy[:] = self._out
        return ready

    def _answered(self, chunks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these chunks belong to an earlier all-reduce, or to this one and have their result."""
        answered = chunks < 0
        ours = (chunks >= 0) & (chunks < self._state.progress.chunks)
        if np.count_nonzero(ours):
            answered[ours] |= self._begun.accepted[chunks[ours]]
        return answered

    def _count_ignored(
        self, ignored: NDArray[np.bool_], reasons: tuple[tuple[str, NDArray[np.bool_]], ...]
    ) -> None:
        """Count each ignored datagram under the first reason that applies; the rest are duplicates."""
        rest = ignored.copy()
        for reason, applies in (*reasons, ("duplicate", ignored)):
            self._state.totals.ignored[REASONS.index(reason)] += int(np.count_nonzero(rest & applies))
            rest &= ~applies

    def _agreed(self, chunks: NDArray[np.int64], digits: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return False for the first chunk's result if it shows that the workers do not agree; its digits are kept."""
        agreed = np.ones(len(chunks), np.bool_)
        if np.count_nonzero(first := chunks == 0) and self._begun.tensor.bare:
            sums = digits[first].astype(np.int64)
            agreed[first] = holds = self._begun.tensor.agreement.holds(sums)
            if not holds[0]:
                self._state.progress.disagree = True
                self._state.progress.sums[:] = sums[0].tolist()
        return agreed

    def _released(self, chunks: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the chunks that may be sent now that these results have arrived.

        Chunk i needs the exponent that chunk i - B announced, and its slot, which chunk i - W used before.
        """
        progress, blocks, tensor = self._state.progress, self._begun, self._begun.tensor
        lead, window = tensor.lead, self._state.lease.window
        if tensor.delayed:
            if progress.chunks > lead or not blocks.decided:
                return None
            ready = np.arange(lead, lead + len(blocks.missed))
            progress.chunks += len(ready)
            progress.missing += len(ready)
            return ready if len(ready) else None
        ready = chunks + lead
        if lead < window:
            ready = np.unique(np.concatenate([ready, chunks + window]))
        ready = ready[ready < progress.chunks]
        if lead < window:
            before = np.where(ready < window, ready - lead, ready - window)
            ready = ready[blocks.accepted[ready - lead] & blocks.accepted[before]]
        return ready if len(ready) else None
