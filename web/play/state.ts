// The state of the page: the program, what it is tried with, and what came of it.
//
// A scenario has no past: each change runs all packets again, on a new switch. So what the page shows follows from the
// program and the scenario alone, and both fit into an address.

import { batch, computed, signal } from "@preact/signals";
import { Session } from "./session";
import type { Checked, Diagnostic, Packet, Preset, PresetProgram, Program, Ran, Scenario, Step, Trace } from "./types";

export type View = "steps" | "tables" | "compare";

export const presets = signal<Preset[]>([]);
export const preset = signal("");
export const files = signal<Record<string, string>>({});
export const main = signal("");
export const openFile = signal("");
const EMPTY: Scenario = { entries: [], groups: {}, sessions: {}, packets: [], profiles: {} };
export const scenario = signal<Scenario>(EMPTY);

export const diagnostics = signal<Diagnostic[]>([]);
export const program = signal<Program | null>(null);
export const ran = signal<Ran | null>(null);
export const problem = signal("");
export const busy = signal("");

export const view = signal<View>("steps");
export const packetIndex = signal(0);
export const stepIndex = signal(0);
export const compareWith = signal(0);

export const trace = computed<Trace | null>(() => ran.value?.packets[packetIndex.value] ?? null);
export const step = computed<Step | null>(() => trace.value?.steps[stepIndex.value] ?? null);

const session = new Session();
let original: PresetProgram | null = null;

export function ask<Answer>(what: string, more: object = {}): Promise<Answer> {
  return session.ask<Answer>({ do: what, files: files.value, main: main.value, ...more });
}

// Changes

let timer = 0;
let change = 0;

/** Runs everything again, soon: while someone types, after a moment. */
export function changed(delay = 0): void {
  change += 1;
  clearTimeout(timer);
  timer = window.setTimeout(() => void runAll(change), delay);
  void keepInAddress();
}

async function runAll(of: number): Promise<void> {
  try {
    busy.value = "compiling";
    const checked = await ask<Checked>("check");
    if (of !== change) return;
    batch(() => {
      diagnostics.value = checked.diagnostics;
      if (checked.program) program.value = checked.program;
    });
    if (!checked.program) return;
    busy.value = "running";
    const found = await ask<Ran>("run", { scenario: scenario.value });
    if (of !== change) return;
    batch(() => {
      ran.value = found;
      problem.value = "";
      const packets = found.packets.length;
      packetIndex.value = Math.max(0, Math.min(packetIndex.value, packets - 1));
      compareWith.value = Math.max(0, Math.min(compareWith.value, packets - 1));
      stepIndex.value = Math.max(0, Math.min(stepIndex.value, (trace.value?.steps.length ?? 1) - 1));
    });
  } catch (error) {
    if (of === change) problem.value = (error as Error).message;
  } finally {
    if (of === change) busy.value = "";
  }
}

export function changeScenario(part: Partial<Scenario>): void {
  scenario.value = { ...scenario.value, ...part };
  changed();
}

export function changePackets(packets: Packet[], chosen: number): void {
  changeScenario({ packets });
  choosePacket(Math.max(0, Math.min(chosen, packets.length - 1)));
}

export function editFile(name: string, text: string): void {
  if (files.value[name] === text) return;
  files.value = { ...files.value, [name]: text };
  changed(350);
}

export function choosePacket(index: number): void {
  batch(() => {
    packetIndex.value = index;
    stepIndex.value = 0;
  });
}

export function goToStep(index: number): void {
  const last = (trace.value?.steps.length ?? 1) - 1;
  stepIndex.value = Math.max(0, Math.min(index, last));
}

// Presets and addresses

async function get<Answer>(path: string): Promise<Answer> {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error("This program is not among those of this server.");
  return (await answer.json()) as Answer;
}

interface Kept {
  files?: Record<string, string>;
  main?: string;
  scenario?: Scenario;
}

export async function start(): Promise<void> {
  try {
    presets.value = await get<Preset[]>("programs");
    const parameters = new URLSearchParams(location.hash.slice(1));
    const wanted = parameters.get("program") ?? "";
    const known = presets.value.some((each) => each.name === wanted);
    const kept = parameters.get("changes");
    await load(known ? wanted : (presets.value[0]?.name ?? ""), kept ? await unpacked(kept) : {});
  } catch (error) {
    problem.value = (error as Error).message;
  }
}

export async function load(name: string, kept: Kept = {}): Promise<void> {
  // What is under way belongs to the program before this one, and so does what another load is still waiting for.
  const of = ++change;
  clearTimeout(timer);
  const found = await get<PresetProgram>(`programs/${encodeURIComponent(name)}`);
  if (of !== change) return;
  original = found;
  batch(() => {
    preset.value = name;
    files.value = { ...found.files, ...kept.files };
    main.value = kept.main ?? found.main;
    openFile.value = main.value;
    ran.value = null;
    program.value = null;
    diagnostics.value = [];
    problem.value = "";
    packetIndex.value = 0;
    stepIndex.value = 0;
    compareWith.value = 0;
  });
  if (kept.scenario) scenario.value = { ...EMPTY, ...kept.scenario };
  else if (found.stf) {
    busy.value = "loading";
    const loaded = await ask<{ scenario: Scenario }>("load", { stf: found.stf });
    if (of !== change) return;
    scenario.value = loaded.scenario;
    beginning = JSON.stringify(scenario.value);
  } else scenario.value = EMPTY;
  if (!kept.scenario) beginning = JSON.stringify(scenario.value);
  changed();
}

let beginning = "";
let shownHash = "";

// Another address of this page was opened in the same tab.
window.addEventListener("hashchange", () => {
  if (location.hash !== shownHash) void start();
});

/** Keeps in the address what differs from the preset. */
async function keepInAddress(): Promise<void> {
  if (!original) return;
  const kept: Kept = {};
  const edited = Object.entries(files.value).filter(([name, text]) => original?.files[name] !== text);
  if (edited.length) kept.files = Object.fromEntries(edited);
  if (JSON.stringify(scenario.value) !== beginning) kept.scenario = scenario.value;
  const parameters = new URLSearchParams({ program: preset.value });
  const of = change;
  if (Object.keys(kept).length) parameters.set("changes", await packed(kept));
  if (of !== change) return;
  shownHash = `#${parameters}`;
  history.replaceState(null, "", shownHash);
}

async function through(data: BlobPart, by: CompressionStream | DecompressionStream): Promise<Uint8Array> {
  const stream = new Blob([data]).stream().pipeThrough(by);
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function packed(kept: Kept): Promise<string> {
  const bytes = await through(JSON.stringify(kept), new CompressionStream("deflate-raw"));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpacked(text: string): Promise<Kept> {
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const kept = JSON.parse(new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"))));
    const isText = (value: unknown) => typeof value === "string";
    return {
      ...(kept.files && Object.values(kept.files).every(isText) && { files: kept.files }),
      ...(isText(kept.main) && { main: kept.main }),
      ...(Array.isArray(kept.scenario?.packets) && { scenario: kept.scenario }),
    };
  } catch {
    throw new Error("This address is not complete: copy it again.");
  }
}
