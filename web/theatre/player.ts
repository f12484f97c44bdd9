// The clock of the stage: what time it is, whether it runs, how fast, and what the reader follows.

import { computed, effect, signal } from "@preact/signals";
import { until, type Flight, type Loss, type Scene } from "./recording";

const SECONDS = 24; // that the longest point takes at speed 1
const SLOW = 8; // how many times slower it is around a loss
const SLOWED = 3; // losses of each point that are shown in slow motion

export const SPEEDS = [0.125, 0.25, 0.5, 1, 2, 4, 8];

export const time = signal(0);
export const playing = signal(false);
export const speed = signal(1);
export const slowMotion = signal(true);
/** A worker's name, "chunk N", or "" for everything. */
export const follow = signal("");

let begin = 0;
let end = 0;
let moments: number[] = [];
let slow: { from: number; to: number; scene: Scene; loss: Loss; recovering: boolean }[] = [];

export function open(scenes: Scene[]): void {
  begin = Math.min(...scenes.map((scene) => scene.first));
  end = Math.max(...scenes.map((scene) => scene.duration));
  moments = [...new Set(scenes.flatMap((scene) => scene.moments))].sort((a, b) => a - b);
  const flying = (flight: Flight) => Math.max(1, flight.end - flight.begin);
  slow = scenes.flatMap((scene) =>
    scene.losses.slice(0, SLOWED).flatMap((loss) => {
      const { flight, recovery } = loss;
      const parts = [{ from: flight.begin, to: flight.begin + flying(flight), scene, loss, recovering: false }];
      if (recovery) parts.push({ from: recovery.begin, to: recovery.end, scene, loss, recovering: true });
      return parts;
    }),
  );
  time.value = begin;
}

export const bounds = (): [number, number] => [begin, end];

/** The loss, or the recovery from one, that is being shown in slow motion. */
export const shown = computed(() =>
  slowMotion.value ? slow.find((part) => part.from <= time.value && time.value < part.to) : undefined,
);

effect(() => {
  if (!playing.value) return;
  let last = performance.now();
  let frame = requestAnimationFrame(function advance(now) {
    const passed = Math.min(now - last, 100) / 1000; // a page in the background stands still
    last = now;
    const rate = ((end - begin) / SECONDS) * speed.value / (shown.value ? SLOW : 1);
    time.value = Math.min(end, time.value + passed * rate);
    if (time.value >= end) playing.value = false;
    else frame = requestAnimationFrame(advance);
  });
  return () => cancelAnimationFrame(frame);
});

export function toggle(): void {
  if (!playing.value && time.value >= end) time.value = begin;
  playing.value = !playing.value;
}

export function goTo(when: number): void {
  time.value = Math.min(end, Math.max(begin, when));
}

/** Goes to the next time, or the one before, at which a packet leaves or arrives or a call begins or ends. */
export function step(steps: number): void {
  playing.value = false;
  const passed = until(moments, time.value);
  const at = steps > 0 ? passed + steps - 1 : passed + steps - (moments[passed - 1] === time.value ? 1 : 0);
  goTo(moments[Math.min(moments.length - 1, Math.max(0, at))] ?? begin);
}

/** Goes to where the next loss begins, or the first one after the last. */
export function nextLoss(): void {
  const begins = [...new Set(slow.filter((part) => !part.recovering).map((part) => part.from))].sort((a, b) => a - b);
  const next = begins.find((each) => each > time.value) ?? begins[0];
  if (next !== undefined) goTo(next);
}

export function faster(by: number): void {
  const at = SPEEDS.indexOf(speed.value) + by;
  speed.value = SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, at))]!;
}

/** Whether a packet has nothing to do with what the reader follows. */
export function dimmed(scene: Scene, flight: Flight, wanted: string): boolean {
  if (!wanted) return false;
  const chunk = wantedChunk(scene, wanted);
  if (chunk === null) {
    const ends = flight.stream.split(/ → |,/);
    return ![flight.sender, flight.receiver, ...ends].includes(wanted);
  }
  const aggregated = flight.kind === "values" || flight.kind === "sums";
  return aggregated && chunk !== flight.number;
}

/** The number in packets of the chunk that the reader follows; null if it is none. */
export function wantedChunk(scene: Scene, wanted: string): number | null {
  if (!wanted.startsWith("chunk ")) return null;
  return scene.chunks[Number(wanted.slice("chunk ".length)) - 1] ?? null;
}
