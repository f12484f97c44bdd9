// A recording as the page plays it: docs/reference/recordings.md describes the document. Times are in picoseconds.

export interface Document {
  format: string;
  version: number;
  name: string;
  description: string;
  points: PointDocument[];
}

export interface PointDocument {
  title: string;
  operation: string;
  duration: number;
  hosts: string[];
  switches: string[];
  tiers: string[][];
  links: [string, string, number | null][];
  workers: string[];
  aggregators: { switch: string; children: string[] }[];
  calls: [rank: number, begin: number, end: number, bucket: number, bytes: number][];
  kinds: string[];
  repeats: string[];
  reasons: string[];
  streams: string[];
  flights: Record<
    "link" | "joined" | "begin" | "sent" | "end" | "bytes" | "kind" | "stream" | "number" | "again" | "lost",
    number[]
  >;
  changes: Record<"time" | "switch" | "slot" | "version" | "stream" | "chunk" | "seen" | "done", number[]>;
}

export interface Flight {
  link: number;
  sender: string;
  receiver: string;
  joined: number;
  begin: number;
  sent: number;
  end: number;
  bytes: number;
  kind: string;
  stream: string;
  number: number;
  again: string;
  lost: string;
}

export interface Change {
  time: number;
  stream: string;
  chunk: number;
  seen: number;
  done: boolean;
}

/** A cell of a switch, with what it holds from each time on. */
export interface Cell {
  slot: number;
  version: number;
  changes: Change[];
}

/** Something worth a line, when it happens. */
export interface Happening {
  time: number;
  text: string;
  kind: "lost" | "again" | "complete" | "call";
}

/** A lost packet, and the one that replaces it on the same link, if there is one. */
export interface Loss {
  flight: Flight;
  recovery: Flight | null;
}

/** Of an ordered list, how many come no later than a time. */
export function until(times: number[], time: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function timeText(picoseconds: number): string {
  const size = Math.abs(picoseconds);
  if (size >= 1e9) return `${(picoseconds / 1e9).toFixed(size < 1e10 ? 3 : 2)} ms`;
  if (size >= 1e6) return `${(picoseconds / 1e6).toFixed(2)} µs`;
  return `${Math.round(picoseconds / 1e3)} ns`;
}

const isValue = (flight: Flight) => flight.kind === "values" || flight.kind === "sums";

/** One point of a scenario: what its network does, at any time. */
export class Scene {
  readonly title: string;
  readonly duration: number;
  readonly first: number;
  readonly flights: Flight[];
  readonly cells = new Map<string, Cell[]>();
  readonly children = new Map<string, string[]>();
  readonly chunks: number[];
  readonly happenings: Happening[];
  readonly losses: Loss[];
  /** All times at which something begins or ends, for steps. */
  readonly moments: number[];
  private readonly begins: number[];
  private readonly longest: number;
  private readonly arrivals = new Map<string, number[]>();
  private readonly joins: number[];
  private readonly waiting: Flight[];
  private readonly longestWait: number;

  constructor(readonly document: PointDocument) {
    const { flights: columns, changes, kinds, repeats, reasons, streams } = document;
    this.title = document.title;
    this.duration = document.duration;
    const flights = columns.link.map((link, i): Flight => {
      const [a, b] = document.links[link >> 1]!;
      const [sender, receiver] = link % 2 ? [b, a] : [a, b];
      return {
        link,
        sender,
        receiver,
        joined: columns.joined[i]!,
        begin: columns.begin[i]!,
        sent: columns.sent[i]!,
        end: columns.end[i]!,
        bytes: columns.bytes[i]!,
        kind: kinds[columns.kind[i]!]!,
        stream: streams[columns.stream[i]!]!,
        number: columns.number[i]!,
        again: repeats[columns.again[i]!]!,
        lost: reasons[columns.lost[i]!]!,
      };
    });
    this.waiting = flights.filter((each) => each.begin > each.joined).sort((a, b) => a.joined - b.joined);
    this.joins = this.waiting.map((each) => each.joined);
    this.longestWait = Math.max(0, ...this.waiting.map((each) => each.begin - each.joined));
    this.flights = flights.sort((a, b) => a.begin - b.begin);
    this.begins = flights.map((each) => each.begin);
    this.longest = flights.reduce((most, each) => Math.max(most, each.end - each.begin), 0);
    this.first = Math.min(0, ...document.calls.map(([, begin]) => begin), this.begins[0] ?? 0);
    this.chunks = [...new Set(flights.filter(isValue).map((each) => each.number))].sort((a, b) => a - b);

    for (const { switch: name, children } of document.aggregators) {
      if (!this.children.has(name)) this.children.set(name, children);
    }
    const found = new Map<string, Cell>();
    changes.time.forEach((time, i) => {
      const [name, slot, version] = [document.switches[changes.switch[i]!]!, changes.slot[i]!, changes.version[i]!];
      const key = `${name} ${slot} ${version}`;
      let cell = found.get(key);
      if (!cell) {
        cell = { slot, version, changes: [] };
        found.set(key, cell);
        this.cells.set(name, [...(this.cells.get(name) ?? []), cell]);
      }
      const [chunk, seen, done] = [changes.chunk[i]!, changes.seen[i]!, Boolean(changes.done[i])];
      cell.changes.push({ time, stream: streams[changes.stream[i]!]!, chunk, seen, done });
    });
    for (const cells of this.cells.values()) cells.sort((a, b) => a.version - b.version || a.slot - b.slot);

    const known = new Set<string>();
    for (const flight of [...flights].sort((a, b) => a.end - b.end)) {
      const key = `${flight.receiver} ${flight.stream} ${flight.number}`;
      if (flight.lost || (flight.kind !== "sums" && flight.kind !== "between hosts") || known.has(key)) continue;
      known.add(key);
      const times = this.arrivals.get(flight.receiver);
      if (times) times.push(flight.end);
      else this.arrivals.set(flight.receiver, [flight.end]);
    }
    this.losses = flights
      .filter((each) => each.lost && each.kind !== "acknowledgements")
      .map((flight) => ({ flight, recovery: this.recovery(flight) }));
    this.happenings = this.narrate().sort((a, b) => a.time - b.time);
    const moments = [
      ...flights.flatMap((each) => [each.begin, each.end]),
      ...document.calls.flatMap(([, begin, end]) => [begin, end]),
    ];
    this.moments = [...new Set(moments)].sort((a, b) => a - b);
  }

  private recovery(lost: Flight): Flight | null {
    const later = this.flights.slice(until(this.begins, lost.begin));
    return (
      later.find(
        (each) =>
          each.link === lost.link && each.stream === lost.stream && each.number === lost.number && each.kind === lost.kind,
      ) ?? null
    );
  }

  /** The number of a chunk in this all-reduce, from 1. */
  chunkName(chunk: number): string {
    return `chunk ${this.chunks.indexOf(chunk) + 1}`;
  }

  contents(flight: Flight): string {
    if (isValue(flight)) return this.chunkName(flight.number);
    return `packet ${flight.number} of ${flight.stream}`;
  }

  private narrate(): Happening[] {
    const found: Happening[] = [];
    const roots = new Set([...this.children.keys()].filter((name) => !this.parented(name)));
    for (const [name, cells] of this.cells) {
      const full = (2 ** (this.children.get(name)?.length ?? 1)) - 1;
      for (const { changes } of cells) {
        changes.forEach((change, i) => {
          const before = changes[i - 1];
          const same = before && before.chunk === change.chunk && before.stream === change.stream;
          if (change.seen === full && !(same && before.seen === full)) {
            const what = this.chunkName(change.chunk);
            const text = roots.has(name) ? `${name} has the sum of ${what}` : `${name} sends ${what} up`;
            found.push({ time: change.time, text, kind: "complete" });
          }
        });
      }
    }
    for (const each of this.flights) {
      if (each.lost) {
        const text = `${each.sender} → ${each.receiver}: ${this.contents(each)} lost (${each.lost})`;
        found.push({ time: this.lostAt(each), text, kind: "lost" });
      } else if (each.again === "retransmission" && each.kind !== "acknowledgements") {
        const sums = each.kind === "sums" ? " sum of" : "";
        const text = `${each.sender} → ${each.receiver}:${sums} ${this.contents(each)} again`;
        found.push({ time: each.begin, text, kind: "again" });
      }
    }
    const calls = this.document.calls;
    const buckets = new Set(calls.map(([, , , bucket]) => bucket));
    for (const bucket of buckets) {
      const of = calls.filter((call) => call[3] === bucket);
      const name = buckets.size > 1 ? `bucket ${bucket}` : "the sum";
      const begins = of.map(([, begin]) => begin);
      const last = of.reduce((late, call) => (call[1] > late[1] ? call : late));
      if (Math.max(...begins) > Math.min(...begins)) {
        const who = this.document.workers[last[0]];
        found.push({ time: last[1], text: `${who}, the last worker, begins`, kind: "call" });
      } else found.push({ time: last[1], text: "all workers begin", kind: "call" });
      for (const [rank, , end] of of) {
        found.push({ time: end, text: `${this.document.workers[rank]} has ${name}`, kind: "call" });
      }
    }
    return found;
  }

  private parented(name: string): boolean {
    return [...this.children.values()].some((children) => children.includes(name));
  }

  /** When a lost packet is gone: half way, or at once if its queue drops it. */
  lostAt(flight: Flight): number {
    return (flight.begin + flight.end) / 2;
  }

  /** The packets that are on links. */
  inFlight(time: number): Flight[] {
    const found: Flight[] = [];
    for (let i = until(this.begins, time) - 1; i >= 0; i--) {
      const flight = this.flights[i]!;
      if (flight.begin < time - this.longest) break;
      if (flight.end > time && !(flight.lost && this.lostAt(flight) <= time)) found.push(flight);
    }
    return found;
  }

  /** The last packet that was lost at each place so far, and whether all that were lost there have been replaced. */
  crosses(time: number): Iterable<[Flight, boolean]> {
    const found = new Map<string, [Flight, boolean]>();
    for (const { flight, recovery } of this.losses) {
      if (this.lostAt(flight) > time) continue;
      const place = `${flight.link} ${flight.lost}`;
      const mended = recovery !== null && recovery.end <= time;
      found.set(place, [flight, mended && (found.get(place)?.[1] ?? true)]);
    }
    return found.values();
  }

  /** How many packets wait to be sent, by link. */
  queues(time: number): Map<number, number> {
    const found = new Map<number, number>();
    for (let i = until(this.joins, time) - 1; i >= 0; i--) {
      const flight = this.waiting[i]!;
      if (flight.joined < time - this.longestWait) break;
      if (flight.begin > time) found.set(flight.link, (found.get(flight.link) ?? 0) + 1);
    }
    return found;
  }

  /** What a cell holds. */
  held(cell: Cell, time: number): Change | null {
    const { changes } = cell;
    let low = 0;
    let high = changes.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (changes[middle]!.time <= time) low = middle + 1;
      else high = middle;
    }
    return changes[low - 1] ?? null;
  }

  /** Which part of all that it will receive a worker has received, 0 to 1. */
  progress(worker: string, time: number): number {
    const times = this.arrivals.get(worker) ?? [];
    return times.length ? until(times, time) / times.length : 0;
  }

  /** Counts of what links have carried so far. */
  counts(time: number): { sent: number; lost: number; again: number } {
    const counts = { sent: 0, lost: 0, again: 0 };
    for (let i = until(this.begins, time) - 1; i >= 0; i--) {
      const flight = this.flights[i]!;
      if (flight.lost !== "queue drop" && flight.again !== "copy") counts.sent++;
      if (flight.lost && this.lostAt(flight) <= time) counts.lost++;
      if (flight.again === "retransmission") counts.again++;
    }
    return counts;
  }
}
