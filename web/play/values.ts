// What a packet's headers and the registers hold at a step: the changes of all steps before it, in order.

import type { Ran, Trace } from "./types";

export interface Values {
  fields: Map<string, string>;
  valid: Map<string, boolean>;
}

/** The headers and metadata of the copy that step `index` is about, after that step. */
export function valuesAt(trace: Trace, index: number): Values {
  const copies: Values[] = [];
  for (const step of trace.steps.slice(0, index + 1)) {
    let values = copies[step.copy];
    if (!values) {
      const parent = trace.copies[step.copy]?.parent;
      const from = parent === null || parent === undefined ? undefined : copies[parent];
      values = { fields: new Map(from?.fields), valid: new Map(from?.valid) };
      copies[step.copy] = values;
    }
    const { fields, valid } = values;
    if (step.forget) valid.clear();
    for (const [name, is] of Object.entries(step.valid ?? {})) valid.set(name, is);
    for (const [name, text] of Object.entries(step.set ?? {})) fields.set(name, text);
    if (step.assign) {
      const [to, source] = step.assign;
      valid.set(to, valid.get(source) ?? false);
      for (const [name, text] of [...fields]) {
        if (name.startsWith(`${source}.`)) fields.set(to + name.slice(source.length), text);
      }
    }
  }
  return copies[trace.steps[index]?.copy ?? 0] ?? { fields: new Map(), valid: new Map() };
}

/** The cells of registers that have been accessed by then, by register and index. */
export function cellsAt(ran: Ran, packet: number, index: number): Map<string, Map<number, string>> {
  const cells = new Map<string, Map<number, string>>();
  ran.packets.slice(0, packet + 1).forEach((trace, number) => {
    const steps = number === packet ? trace.steps.slice(0, index + 1) : trace.steps;
    for (const { cell } of steps) {
      if (!cell) continue;
      const [name, at, text] = cell;
      if (!cells.has(name)) cells.set(name, new Map());
      cells.get(name)!.set(at, text);
    }
  });
  return cells;
}
