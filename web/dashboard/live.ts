// What the server sends (browser/dashboard.py), and the connection to it.

import { signal } from "@preact/signals";

export interface Network {
  name: string;
  hosts: string[];
  tiers: string[][];
  links: [string, string][];
  slots: number;
}

export interface LinkState {
  rate: number | null;
  up: boolean | null;
  lost: number | null;
  losing: number;
  queue: number | null;
}

export interface SwitchState {
  slots: number;
  packets: number | null;
  drops: Record<string, [count: number, rate: number]>;
  error: string;
}

export interface WorkerState {
  host: string;
  left: boolean;
  late: boolean;
  silent: boolean;
  done: number | null;
  part: number | null;
  bits: number | null;
  rtt: number | null;
  retransmissions: number | null;
}

export interface JobState {
  name: string;
  state: string;
  why: string;
  seconds: number;
  window: number;
  tree: string[];
  workers: WorkerState[];
}

export interface State {
  at: number;
  links: LinkState[];
  switches: Record<string, SwitchState>;
  jobs: JobState[];
  forming: { name: string; joined: number; missing: string[] }[];
  alarms: string[];
}

export const network = signal<Network | null>(null);
export const state = signal<State | null>(null);
/** Bits per second of each direction of each link. */
export const load = signal<(number | null)[]>([]);
export const connected = signal(true);

const AGAIN = 1000; // milliseconds until another try

export function connect(): void {
  const socket = new WebSocket(new URL("live", location.href.replace(/^http/, "ws")));
  socket.onmessage = (message) => {
    const news = JSON.parse(message.data as string) as { network?: Network; state?: State; load?: (number | null)[] };
    connected.value = true;
    if (news.network) network.value = news.network;
    if (news.state) state.value = news.state;
    if (news.load) load.value = news.load;
  };
  socket.onclose = () => {
    connected.value = false;
    setTimeout(connect, AGAIN);
  };
}

export function rateText(bits: number | null): string {
  if (bits === null) return "–";
  const units = ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"];
  let number = bits;
  let unit = 0;
  while (number >= 999.5 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${number >= 99.5 ? Math.round(number) : Number(number.toPrecision(2))} ${units[unit]}`;
}
