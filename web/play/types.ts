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
  registers: [string, number, number][];
}

export interface Checked {
  diagnostics: Diagnostic[];
  program?: Program;
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
}

export interface Scenario {
  entries: Entry[];
  groups: Record<string, [number, number][]>;
  sessions: Record<string, number>;
  packets: Packet[];
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
