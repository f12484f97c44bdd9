"""An all-reduce on a small network, event by event: a second opinion on virtual time.

It is written from docs/reference/protocol.md, docs/reference/links.md, docs/reference/baselines.md and
docs/explanation/simulator.md, and imports nothing of fanin. Where it and virtual
time differ by more than test_oracle.py allows, one of them or the documents are wrong.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

ETHERNET_GAP = 24  # bytes: preamble, check sequence, gap between frames
HEADERS = 42  # Ethernet, IPv4, UDP
ELEMENT = 4
SHORT, LONG = 270, 1038  # UDP payload of an in-network packet with 64 or 256 values
BLOCK = 256
STREAM_HEADER, PAYLOAD = 22, 1024
PIECE = 4096  # elements
BURST = 8  # packets of a connection before the next one has its turn
THRESHOLD = 3  # packets sent later that overtake a lost one


@dataclass(frozen=True)
class Link:
    rate: float = inf  # bits a second
    delay: float = 1e-6
    loss: float = 0.0


@dataclass(frozen=True)
class Network:
    """Racks of hosts; with several racks, one spine above them."""

    racks: int
    hosts: int
    link: Link
    uplink: Link = Link()


@dataclass(frozen=True)
class Work:
    """All-reduces of these numbers of elements, one after the other, by all hosts in the order of racks."""

    algorithm: str
    sizes: Sequence[int]
    window: int
    per_host: bool = False
    go_back: bool = False
    shards: int | None = None
    coalescing: float = 4e-6
    rto: float = 1.0  # seconds: the first and the shortest timeout
    max_rto: float = 1.0


@dataclass(frozen=True)
class Result:
    """Seconds of each all-reduce, from the last call to the last result, and of all workers together."""

    seconds: Sequence[float]
    timeouts: int
    retransmissions: int


@dataclass
class Packet:
    source: int
    destination: int  # a host; -1: the switches
    size: int  # bytes of the Ethernet frame, without the gap
    content: tuple[object, ...]


class Simulation:
    """Nodes are numbered: hosts from 0, then leaves, then the spine."""

    def __init__(self, network: Network, work: Work, seed: int = 0) -> None:
        self.network, self.work = network, work
        self.workers = network.racks * network.hosts
        self.now = 0.0
        self.random = random.Random(seed)
        self._events: list[tuple[int, float, int, float, Callable[[], None]]] = []
        self._count = 0
        self._free: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._cells: dict[tuple[int, int], _Cell] = {}
        kind = Switched if work.algorithm == "in-network" else Streaming
        self.hosts: list[Host] = [kind(self, rank) for rank in range(self.workers)]

    def run(self) -> Result:
        for host in self.hosts:
            self.at(0.0, host.wake)
        while not all(host.finished for host in self.hosts):
            *_, self.now, happens = heapq.heappop(self._events)
            happens()
        seconds = [
            max(host.ended[i] for host in self.hosts) - max(host.began[i] for host in self.hosts)
            for i in range(len(self.work.sizes))
        ]
        timeouts = sum(host.timeouts for host in self.hosts)
        return Result(seconds, timeouts, sum(host.retransmissions for host in self.hosts))

    def at(self, time: float, happens: Callable[[], None], by: float = inf) -> None:
        """Let something happen; in the same picosecond arrivals come first, in the order of the nodes they are from."""
        self._count += 1
        heapq.heappush(self._events, (round(time * 1e12), by, self._count, time, happens))

    # -- links

    def leaf_of(self, host: int) -> int:
        return self.workers + host // self.network.hosts

    @property
    def root(self) -> int:
        return self.workers + self.network.racks if self.network.racks > 1 else self.workers

    def send(self, near: int, far: int, packet: Packet) -> None:
        """Put a packet into the queue of a link: it leaves at the link's rate, and is lost or arrives."""
        link = self.network.link if min(near, far) < self.workers else self.network.uplink
        begin = max(self.now, self._free[near, far])
        end = self._free[near, far] = begin + 8 * (packet.size + ETHERNET_GAP) / link.rate
        if self.random.random() >= link.loss:
            self.at(end + link.delay, lambda: self._arrive(near, far, packet), near)

    def _arrive(self, near: int, node: int, packet: Packet) -> None:
        if node < self.workers:
            self.hosts[node].arrive(packet)
        elif packet.destination < 0:
            self._sum(near, node, packet)
        else:
            leaf = self.leaf_of(packet.destination)
            self.send(
                node, packet.destination if node == leaf else leaf if node == self.root else self.root, packet
            )

    # -- switches that add up

    def _children(self, node: int) -> list[int]:
        if node == self.root and self.network.racks > 1:
            return list(range(self.workers, self.workers + self.network.racks))
        first = (node - self.workers) * self.network.hosts
        return list(range(first, first + self.network.hosts))

    def _sum(self, near: int, node: int, packet: Packet) -> None:
        """Rules 2 to 8 of docs/reference/protocol.md, as far as the order of packets goes."""
        chunk, children = packet.content[0], self._children(node)
        assert isinstance(chunk, int)
        cell = self._cells.setdefault((node, chunk), _Cell())
        if near == self.root and node != self.root:  # a result from the parent
            if not cell.done:
                cell.done = True
                self._multicast(node, children, packet)
        elif cell.done:
            self.send(node, near, Packet(node, near, packet.size, packet.content))
        elif near in cell.seen:
            if len(cell.seen) == len(children):
                self.send(node, self.root, packet)
        else:
            cell.seen.add(near)
            if len(cell.seen) < len(children):
                return
            if node == self.root:
                cell.done = True
                self._multicast(node, children, packet)
            else:
                self.send(node, self.root, packet)

    def _multicast(self, node: int, children: Sequence[int], packet: Packet) -> None:
        for child in children:
            to = child if child < self.workers else -1
            self.send(node, child, Packet(node, to, packet.size, packet.content))


@dataclass
class _Cell:
    seen: set[int] = field(default_factory=set)
    done: bool = False


class Host:
    """Looks at what has arrived so long after the first of it, and at its timers when they expire."""

    def __init__(self, simulation: Simulation, rank: int) -> None:
        self.simulation, self.rank, self.work = simulation, rank, simulation.work
        self.began: list[float] = []
        self.ended: list[float] = []
        self.timeouts = self.retransmissions = 0
        self._inbox: list[Packet] = []
        self._wakes: set[float] = set()

    @property
    def finished(self) -> bool:
        return len(self.ended) == len(self.work.sizes)

    @property
    def running(self) -> bool:
        return len(self.began) > len(self.ended)

    def arrive(self, packet: Packet) -> None:
        self._inbox.append(packet)
        if len(self._inbox) == 1:
            self.simulation.at(self.simulation.now + self.work.coalescing, lambda: self._look(packet))

    def _look(self, first: Packet) -> None:
        if self._inbox and self._inbox[0] is first:  # and a timer has not woken the host meanwhile
            self.wake()

    def wake(self) -> None:
        now = self.simulation.now
        inbox, self._inbox = self._inbox, []
        self.receive(inbox)
        while True:
            if self.running and self.complete():
                self.ended.append(now)
            if self.running or self.finished:
                break
            self.began.append(now)
            self.start(self.work.sizes[len(self.ended)])
        leaf = self.simulation.leaf_of(self.rank)
        for packet in self.outgoing():
            self.simulation.send(self.rank, leaf, packet)
        deadline = self.deadline()
        if deadline < inf and deadline not in self._wakes:
            self._wakes.add(deadline)
            self.simulation.at(max(deadline, now), lambda: self._expire(deadline))

    def _expire(self, deadline: float) -> None:
        self._wakes.discard(deadline)
        if self.deadline() <= self.simulation.now:
            self.wake()

    def start(self, size: int) -> None:
        raise NotImplementedError

    def receive(self, packets: Sequence[Packet]) -> None:
        raise NotImplementedError

    def complete(self) -> bool:
        raise NotImplementedError

    def outgoing(self) -> list[Packet]:
        raise NotImplementedError

    def deadline(self) -> float:
        raise NotImplementedError


# -- in the network ------------------------------------------------------------------------------------------


class Switched(Host):
    """docs/reference/protocol.md, "Worker". Of its timers only silence: one chunk is sent again, that sent longest ago.

    A timeout that has been doubled stays so for chunks that follow, until one that was sent once is answered.
    """

    def __init__(self, simulation: Simulation, rank: int) -> None:
        super().__init__(simulation, rank)
        self._first = self._chunks = self._ahead = self._next = 0
        self._awaited: dict[int, tuple[float, int]] = {}  # by chunk: when it was sent, its doublings
        self._repeated: set[int] = set()
        self._results: set[int] = set()
        self._restarted, self._backoff = 0.0, 0

    def start(self, size: int) -> None:
        blocks = -(-size // BLOCK)
        self._first += self._chunks
        self._ahead = min(self.work.window, blocks)  # which carry no values
        self._chunks = blocks + self._ahead
        self._next = 0
        self._results = set()

    def receive(self, packets: Sequence[Packet]) -> None:
        for packet in packets:
            chunk = packet.content[0]
            assert isinstance(chunk, int)
            if self._awaited.pop(chunk, None) is not None:
                self._results.add(chunk - self._first)
                self._restarted = self.simulation.now
                if chunk not in self._repeated:
                    self._backoff = 0

    def complete(self) -> bool:
        return len(self._results) == self._chunks

    def outgoing(self) -> list[Packet]:
        now, window, sent = self.simulation.now, self.work.window, []
        if now >= self.deadline():
            silent = [chunk for chunk in self._awaited if self._deadline(chunk) <= now]
            self.timeouts += 1
            self.retransmissions += 1
            self._restarted = now
            for chunk in silent:
                before, doublings = self._awaited[chunk]
                self._awaited[chunk] = before, doublings + 1
                self._backoff = max(self._backoff, doublings + 1)
            oldest = min(self._awaited, key=lambda chunk: (self._awaited[chunk][0], chunk))
            self._repeated.add(oldest)
            self._awaited[oldest] = now, self._awaited[oldest][1]
            sent.append(oldest)
        while self.running and self._next < self._chunks:
            needed = {one for one in (self._next - window, self._next - self._ahead) if one >= 0}
            if not needed <= self._results:
                break
            chunk = self._first + self._next
            self._awaited[chunk] = now, self._backoff
            sent.append(chunk)
            self._next += 1
        return [self._packet(chunk) for chunk in sent]

    def _packet(self, chunk: int) -> Packet:
        size = HEADERS + (SHORT if chunk - self._first < self._ahead else LONG)
        return Packet(self.rank, -1, size, (chunk,))

    def _deadline(self, chunk: int) -> float:
        sent, doublings = self._awaited[chunk]
        return max(self._restarted, sent) + min(self.work.rto * 2**doublings, self.work.max_rto)

    def deadline(self) -> float:
        return min(map(self._deadline, self._awaited), default=inf)


# -- between hosts: schedules --------------------------------------------------------------------------------

Span = tuple[int, int]
Order = tuple[int, ...]  # of a piece in its stream
Named = tuple[int, Order]  # a piece by the rank that it comes from, and its order


@dataclass
class Piece:
    """Elements start to stop - 1. It is sent, or dealt with on arrival, once the piece `after` has been dealt with."""

    order: Order
    start: int
    stop: int
    after: Named | None


@dataclass
class Plan:
    """Return, by peer, the pieces of the stream to it and of the one from it."""

    sends: defaultdict[int, list[Piece]] = field(default_factory=lambda: defaultdict(list))
    receives: defaultdict[int, list[Piece]] = field(default_factory=lambda: defaultdict(list))

    def send(self, peer: int, order: Order, span: Span, after: Named | None = None) -> None:
        self.sends[peer].append(Piece(order, *span, after))

    def receive(self, peer: int, order: Order, span: Span, after: Named | None = None) -> Named:
        self.receives[peer].append(Piece(order, *span, after))
        return peer, order

    def sorted(self) -> Plan:
        for pieces in (*self.sends.values(), *self.receives.values()):
            pieces.sort(key=lambda piece: piece.order)
        return self


def cut(span: Span) -> list[Span]:
    start, stop = span
    return [(first, min(first + PIECE, stop)) for first in range(start, stop, PIECE)]


def part(size: int, parts: int, first: int, last: int) -> Span:
    """Return the part from `first` up to, but not including, `last` of `parts` equal parts."""
    return size * first // parts, size * last // parts


def make_plan(work: Work, rank: int, n: int, size: int) -> Plan:
    match work.algorithm:
        case "ring":
            return ring(rank, n, size)
        case "halving-doubling":
            return halving_doubling(rank, n, size)
        case "double-binary-tree":
            return double_binary_tree(rank, n, size).sorted()
        case "parameter-server":
            return parameter_server(rank, n, size, work.shards or n).sorted()
    raise ValueError(work.algorithm)


def ring(rank: int, n: int, size: int) -> Plan:
    plan, before = Plan(), (rank - 1) % n
    for step in range(2 * (n - 1)):
        mine, coming = (rank - step) % n, (rank - step - 1) % n
        for i, span in enumerate(cut(part(size, n, mine, mine + 1))):
            plan.send((rank + 1) % n, (step, i), span, (before, (step - 1, i)) if step else None)
        for i, span in enumerate(cut(part(size, n, coming, coming + 1))):
            plan.receive(before, (step, i), span)
    return plan


def halving_doubling(rank: int, n: int, size: int) -> Plan:
    plan = Plan()
    levels = n.bit_length() - 1
    extra = n - 2**levels  # ranks that give their array to a neighbour
    last: Named | None = None
    step = 0

    def exchange(peer: int, sent: Span, received: Span) -> None:
        nonlocal last, step
        for i, span in enumerate(cut(sent)):
            plan.send(peer, (step, i), span, last)
        before = last
        for i, span in enumerate(cut(received)):
            last = plan.receive(peer, (step, i), span, before)
        step += 1

    whole, nothing = (0, size), (0, 0)
    if rank < 2 * extra and rank % 2 == 0:
        exchange(rank + 1, whole, nothing)
        exchange(rank + 1, nothing, whole)
        return plan
    if rank < 2 * extra:
        exchange(rank - 1, nothing, whole)
    core = rank // 2 if rank < 2 * extra else rank - extra
    low, high = 0, 2**levels
    done: list[tuple[int, Span, Span]] = []
    for level in range(levels):
        mate = core ^ 2**level
        peer = 2 * mate + 1 if mate < extra else mate + extra
        middle = (low + high) // 2
        lower, upper = part(size, 2**levels, low, middle), part(size, 2**levels, middle, high)
        if core & 2**level:
            kept, given, low = upper, lower, middle
        else:
            kept, given, high = lower, upper, middle
        exchange(peer, given, kept)
        done.append((peer, kept, given))
    for peer, kept, given in reversed(done):
        exchange(peer, kept, given)
    if rank < 2 * extra:
        exchange(rank - 1, whole, nothing)
    return plan


def tree_parent(place: int, n: int) -> int | None:
    """Return the parent of a place in the binary tree whose odd places are leaves; 0 is the root."""
    if place == 0:
        return None
    step = place & -place
    above = place - step if place & (2 * step) else place + step
    return above if above < n else place - step


def double_binary_tree(rank: int, n: int, size: int) -> Plan:
    plan = Plan()
    for tree in (0, 1):

        def rank_of(place: int, tree: int = tree) -> int:
            return place if tree == 0 else n - 1 - place if n % 2 == 0 else (place + 1) % n

        place = next(place for place in range(n) if rank_of(place) == rank)
        above = tree_parent(place, n)
        parent = None if above is None else rank_of(above)
        children = [rank_of(other) for other in range(n) if tree_parent(other, n) == place]
        for i, span in enumerate(cut(part(size, 2, tree, tree + 1))):
            up, down = (0, i, tree), (1, i, tree)
            summed: Named | None = None
            for child in children:
                summed = plan.receive(child, up, span, summed)
            if parent is not None:
                plan.send(parent, up, span, summed)
                summed = plan.receive(parent, down, span)
            for child in children:
                plan.send(child, down, span, summed)
    return plan


def parameter_server(rank: int, n: int, size: int, shards: int) -> Plan:
    plan = Plan()
    servers = [n * shard // shards for shard in range(shards)]
    for shard in sorted(range(shards), key=lambda shard: (servers[shard] - rank) % n):
        server = servers[shard]
        for i, span in enumerate(cut(part(size, shards, shard, shard + 1))):
            up, down = (0, i), (1, i)
            if server != rank:
                plan.send(server, up, span)
                plan.receive(server, down, span)
                continue
            summed: Named | None = None
            others = [(rank + k) % n for k in range(1, n)]
            for other in others:
                summed = plan.receive(other, up, span, summed)
            for other in others:
                plan.send(other, down, span, summed)
    return plan


# -- between hosts: streams ----------------------------------------------------------------------------------


class Streaming(Host):
    """docs/reference/baselines.md."""

    def __init__(self, simulation: Simulation, rank: int) -> None:
        super().__init__(simulation, rank)
        self._senders: dict[int, Sender] = {}
        self._receivers: dict[int, Receiver] = {}
        # By peer, of each packet to come: what it waits for, and its elements.
        self._sends: dict[int, deque[tuple[Named | None, int]]] = {}
        self._arriving: dict[int, deque[Piece]] = {}
        self._applied: Counter[int] = Counter()  # elements of the piece that arrives
        self._dealt: set[Named] = set()
        self._busy: list[int] = []  # peers for whom there is something unsent or unacknowledged, in turn
        self._card_answers: deque[Packet] = deque()
        self._card_turns: deque[int] = deque()  # peers, the first of which sends
        self._card_data: defaultdict[int, deque[Packet]] = defaultdict(deque)
        self._card_sent = 0  # packets, in the turn of the first
        self._card_free = 0.0

    def start(self, size: int) -> None:
        plan = make_plan(self.work, self.rank, self.simulation.workers, size)
        self._dealt = set()
        self._sends = {
            peer: deque(
                (piece.after, min(PAYLOAD // ELEMENT, piece.stop - first))
                for piece in pieces
                for first in range(piece.start, piece.stop, PAYLOAD // ELEMENT)
            )
            for peer, pieces in plan.sends.items()
        }
        self._arriving = {peer: deque(pieces) for peer, pieces in plan.receives.items()}
        self._advance()

    def complete(self) -> bool:
        waiting = any(self._sends.values()) or any(self._arriving.values())
        return not waiting and all(sender.done for sender in self._senders.values())

    def receive(self, packets: Sequence[Packet]) -> None:
        now = self.simulation.now
        for packet in packets:
            kind, *content = packet.content
            if kind == "data":
                number, elements = content
                self._receiver(packet.source).accept(number, elements)
                if self.running:
                    self._advance()
            else:
                sender = self._sender(packet.source)
                sender.acknowledge(packet.content, now)
                if sender.done and packet.source in self._busy:
                    self._busy.remove(packet.source)

    def _receiver(self, peer: int) -> Receiver:
        return self._receivers.setdefault(peer, Receiver(self.work))

    def _sender(self, peer: int) -> Sender:
        if peer not in self._senders:
            self._senders[peer] = Sender(self)
        return self._senders[peer]

    def _advance(self) -> None:
        moved = True
        while moved:
            moved = False
            for peer, arriving in self._arriving.items():
                moved |= self._deal(peer, arriving, self._receiver(peer).in_order)
        for peer, packets in self._sends.items():
            while packets and (packets[0][0] is None or packets[0][0] in self._dealt):
                self._sender(peer).written.append(packets.popleft()[1])
                if peer not in self._busy:
                    self._busy.append(peer)

    def _deal(self, peer: int, arriving: deque[Piece], in_order: deque[int]) -> bool:
        moved = False
        while arriving and in_order and (arriving[0].after is None or arriving[0].after in self._dealt):
            moved = True
            self._applied[peer] += in_order.popleft()
            if arriving[0].start + self._applied[peer] == arriving[0].stop:
                self._dealt.add((peer, arriving.popleft().order))
                self._applied[peer] = 0
        return moved

    def outgoing(self) -> list[Packet]:
        now = self.simulation.now
        for peer in sorted(self._receivers):
            if (answer := self._receivers[peer].answer()) is not None:
                size, *content = answer
                assert isinstance(size, int)
                self._card_answers.append(self._packet(peer, size, tuple(content)))
        busy = list(self._busy)
        room = self.work.window - sum(self._senders[peer].outstanding for peer in busy)
        for left, peer in zip(range(len(busy), 0, -1), busy, strict=True):
            sender = self._senders[peer]
            share = max(min(room, max(-(-room // left), BURST)), 0) if self.work.per_host else None
            before = sender.outstanding
            numbers = sender.due(now, share)
            room -= sender.outstanding - before
            if numbers and peer not in self._card_turns:
                self._card_turns.append(peer)
            self._card_data[peer].extend(self._data(peer, number) for number in numbers)
        if busy:  # the next time another one comes first
            self._busy.append(self._busy.pop(0))
        return self._from_card(now)

    def _from_card(self, now: float) -> list[Packet]:
        """Return what the link is given: what it sends until the next look, or all of a connection that is alone."""
        sent: list[Packet] = []
        self._card_free = max(self._card_free, now)
        while self._card_waits and (self._card_alone or self._card_free <= now + self.work.coalescing):
            packet = self._card_answers.popleft() if self._card_answers else self._next_in_turn()
            self._card_free += 8 * (packet.size + ETHERNET_GAP) / self.simulation.network.link.rate
            sent.append(packet)
        return sent

    @property
    def _card_alone(self) -> bool:
        """Return whether one connection has data, and nothing else waits."""
        return len(self._card_turns) == 1 and not self._card_answers

    @property
    def _card_waits(self) -> bool:
        return bool(self._card_answers or self._card_turns)

    def _next_in_turn(self) -> Packet:
        peer = self._card_turns[0]
        packet = self._card_data[peer].popleft()
        self._card_sent += 1
        if self._card_sent == BURST or not self._card_data[peer]:
            self._card_sent = 0
            self._card_turns.popleft()
            if self._card_data[peer]:
                self._card_turns.append(peer)
        return packet

    def _data(self, peer: int, number: int) -> Packet:
        elements = self._senders[peer].written[number]
        return self._packet(peer, STREAM_HEADER + ELEMENT * elements, ("data", number, elements))

    def _packet(self, peer: int, size: int, content: tuple[object, ...]) -> Packet:
        return Packet(self.rank, peer, HEADERS + size, content)

    def deadline(self) -> float:
        ready = self._card_free if self._card_waits else inf
        return min([ready, *(sender.deadline() for sender in self._senders.values())])


class Sender:
    def __init__(self, host: Streaming) -> None:
        self._host, self._work = host, host.work
        self.written: list[int] = []  # elements of each packet
        self._base = self._next = self._sent = 0
        self._there: set[int] = set()
        self._sent_after: dict[int, int] = {}
        self._lost: set[int] = set()
        self._began, self._backoff, self._asked_for = 0.0, 0, -1

    @property
    def done(self) -> bool:
        return self._base == len(self.written)

    @property
    def outstanding(self) -> int:
        return self._sent - self._base

    def deadline(self) -> float:
        if self._base == self._sent:
            return inf
        return self._began + min(self._work.rto * 2**self._backoff, self._work.max_rto)

    def due(self, now: float, share: int | None) -> list[int]:
        window = self._work.window
        if now >= self.deadline():
            self._backoff += 1
            self._began = now
            missing = sorted(set(range(self._base, self._next)) - self._there)
            if self._work.go_back:
                self._host.timeouts += self.outstanding
                self._next = self._base
            else:
                self._lost = set(missing[: self._flight(window)])
                self._host.timeouts += len(self._lost)
        numbers = sorted(number for number in self._lost if number >= self._base)
        self._lost = set()
        self._host.retransmissions += len(numbers)
        self._sent_after.update(dict.fromkeys(numbers, self._next - 1))
        last = min(len(self.written), self._base + self._flight(window))
        if share is not None:
            last = min(last, self._sent + share)
        if last > self._next:
            if self._base == self._sent:
                self._began = now
            numbers += range(self._next, last)
            self._host.retransmissions += max(min(last, self._sent) - self._next, 0)
            self._sent_after.update((number, number) for number in range(self._next, last))
            self._next, self._sent = last, max(last, self._sent)
        return numbers

    def _flight(self, window: int) -> int:
        return max(window >> max(self._backoff - 1, 0), min(window, 4))

    def acknowledge(self, content: tuple[object, ...], now: float) -> None:
        kind, number, beyond = content
        assert isinstance(number, int)
        assert isinstance(beyond, frozenset)
        if number > self._base:
            self._base, self._next = number, max(self._next, number)
            self._began, self._backoff = now, 0
        if self._work.go_back:
            if kind == "nak" and number == self._base < self._sent and number != self._asked_for:
                self._asked_for, self._began, self._next = number, now, number
            return
        fresh = {one for one in beyond if one >= self._base} - self._there
        if fresh:
            self._there |= fresh
            self._began = now
            highest = max(self._there)
            self._lost |= {
                one
                for one in set(range(self._base, highest)) - self._there
                if highest - self._sent_after[one] >= THRESHOLD
            }


class Receiver:
    def __init__(self, work: Work) -> None:
        self._work = work
        self.in_order: deque[int] = deque()  # elements of each packet that has not been dealt with
        self._expected = 0
        self._early: dict[int, int] = {}
        self._due = ""
        self._asked_for = -1

    def accept(self, number: object, elements: object) -> None:
        assert isinstance(number, int)
        assert isinstance(elements, int)
        self._due = self._due or "ack"
        if number > self._expected and self._work.go_back:
            if self._asked_for != self._expected:
                self._asked_for, self._due = self._expected, "nak"
        elif number >= self._expected:
            self._early[number] = elements
            if number == self._expected:
                self._due = "ack"
        while self._expected in self._early:
            self.in_order.append(self._early.pop(self._expected))
            self._expected += 1

    def answer(self) -> tuple[object, ...] | None:
        """Return bytes, kind, the packet awaited, and those that came before it; None if nothing came."""
        kind, self._due = self._due, ""
        if not kind:
            return None
        bits = max(self._early, default=self._expected) - self._expected
        return STREAM_HEADER + -(-bits // 8), kind, self._expected, frozenset(self._early)
