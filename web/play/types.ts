// What the server sends (browser/playground/*.py).

export interface Diagnostic {
  file: string;
  line: number;
  column: number;
  endLine: number;
  endColumn: number;
  severity: "error" | "warning";
  message: string;
  /** As the command line prints it. */
  text: string;
}

export interface GraphNode {
  id: string;
  kind: "state" | "branch" | "table" | "action" | "end";
  label: string;
  file?: string;
  line?: number;
}

export interface Graph {
  name: string;
  initial: string;
  nodes: GraphNode[];
  edges: { from: string; to: string; label: string }[];
}

export interface Table {
  name: string;
  keys: { name: string; kind: string; width: number }[];
  actions: { name: string; parameters: [string, number][] }[];
  const: boolean;
  default: { action: string; arguments: Record<string, string> } | null;
  fixedDefault: boolean;
  /** The action profile whose members and groups its entries refer to. */
  profile: string | null;
}

export interface Path {
  headers: string[];
  values: Record<string, string>;
}

export interface Program {
  headers: Record<string, [string, number][]>;
  paths: Path[];
  graphs: Graph[];
  tables: Table[];
  profiles: { name: string; selector: boolean }[];
  registers: [string, number, number][];
}

export interface Checked {
  diagnostics: Diagnostic[];
  program?: Program;
}

/** What an entry with a member, a group or an action set has chosen from. */
export interface Choice {
  kind: string;
  number: number | null;
  chosen: number | null;
  of: { member: number | null; weight: number; call: string }[];
}

export interface Step {
  copy: number;
  kind: string;
  text: string[];
  file?: string;
  line?: number;
  graph?: string;
  node?: string;
  entry?: number;
  forget?: boolean;
  valid?: Record<string, boolean>;
  set?: Record<string, string>;
  assign?: [string, string];
  cell?: [string, number, string];
  choice?: Choice;
}

export interface Trace {
  copies: { parent: number | null; cause: string; replica: number | null }[];
  steps: Step[];
  cut: boolean;
  verdict: string;
  outputs: [number, string][];
}

export interface Ran {
  packets: Trace[];
  registers: Record<string, Record<string, string>>;
}

export interface Packet {
  port: number;
  hex: string;
  name: string;
}

export interface Entry {
  table: string;
  action: string;
  match: Record<string, string>;
  arguments: Record<string, string>;
  priority: number;
  default: boolean;
  member?: number | null;
  group?: number | null;
}

export interface Call {
  action: string;
  arguments: Record<string, string>;
}

/** A member of a group: its number, with weight 1, or its number and its weight. */
export type Weighted = number | [number, number];

/** Members and groups by their numbers. */
export interface ProfileContent {
  members: Call[];
  groups: Weighted[][];
}

export interface Scenario {
  entries: Entry[];
  groups: Record<string, [number, number][]>;
  sessions: Record<string, number>;
  packets: Packet[];
  profiles: Record<string, ProfileContent>;
}

export interface Preset {
  name: string;
  group: string;
  title: string;
}

export interface PresetProgram {
  files: Record<string, string>;
  main: string;
  stf: string;
}
