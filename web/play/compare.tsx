// Two packets next to each other: their bytes, their steps, and what became of them.

import { compareWith, packetIndex, ran, scenario } from "./state";
import type { Trace } from "./types";

const MOST = 1500; // steps of each, which are compared with one another

type Row = [string | null, string | null];

/** The lines of both in order, equal ones in one row. */
export function align(one: string[], other: string[]): Row[] {
  const lengths = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      lengths[i]![j] = one[i] === other[j] ? lengths[i + 1]![j + 1]! + 1 : Math.max(lengths[i + 1]![j]!, lengths[i]![j + 1]!);
    }
  }
  const rows: Row[] = [];
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) rows.push([one[i++]!, other[j++]!]);
    else if (j >= other.length || (i < one.length && lengths[i + 1]![j]! >= lengths[i]![j + 1]!)) rows.push([one[i++]!, null]);
    else rows.push([null, other[j++]!]);
  }
  return paired(rows);
}

/** Joins what one packet alone does with what the other does instead. */
function paired(rows: Row[]): Row[] {
  const result: Row[] = [];
  let at = 0;
  while (at < rows.length) {
    const left: string[] = [];
    const right: string[] = [];
    while (at < rows.length && (rows[at]![0] === null || rows[at]![1] === null)) {
      const [one, other] = rows[at++]!;
      if (one !== null) left.push(one);
      else right.push(other!);
    }
    for (let k = 0; k < Math.max(left.length, right.length); k++) result.push([left[k] ?? null, right[k] ?? null]);
    if (at < rows.length) result.push(rows[at++]!);
  }
  return result;
}

function lines(trace: Trace): string[] {
  return trace.steps.slice(0, MOST).map((each) => each.text.join("\n"));
}

function Choice({ label, value, onChange }: { label: string; value: number; onChange: (index: number) => void }) {
  return (
    <label>
      {label}{" "}
      <select value={value} onChange={(e) => onChange(Number(e.currentTarget.value))}>
        {scenario.value.packets.map((packet, index) => (
          <option key={index} value={index}>
            {index + 1} · port {packet.port} {packet.name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Bytes({ hex, other }: { hex: string; other: string }) {
  const bytes = hex.match(/../g) ?? [];
  return (
    <p class="bytes">
      {bytes.slice(0, 256).map((byte, index) => (
        <span key={index} class={other.slice(2 * index, 2 * index + 2) === byte ? "" : "different"}>
          {byte}
        </span>
      ))}
      {bytes.length > 256 && "…"}
    </p>
  );
}

export function Compare() {
  const one = ran.value?.packets[packetIndex.value];
  const other = ran.value?.packets[compareWith.value];
  if (!one || !other) return <p class="empty">Send two packets to compare them.</p>;
  const [first, second] = [scenario.value.packets[packetIndex.value]!, scenario.value.packets[compareWith.value]!];
  const rows = align(lines(one), lines(other));
  const differences = rows.filter(([left, right]) => left !== right).length;
  return (
    <div class="compare">
      <div class="bar">
        <Choice label="Packet" value={packetIndex.value} onChange={(index) => (packetIndex.value = index)} />
        <Choice label="with" value={compareWith.value} onChange={(index) => (compareWith.value = index)} />
        <span class="quiet" role="status">
          {differences ? `${differences} steps differ` : "the same steps"}
        </span>
      </div>
      <table>
        <thead>
          <tr>
            <th scope="col">
              port {first.port}
              <Bytes hex={first.hex} other={second.hex} />
            </th>
            <th scope="col">
              port {second.port}
              <Bytes hex={second.hex} other={first.hex} />
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([left, right], index) => (
            <tr key={index} class={left === right ? "" : "different"}>
              <td>{left}</td>
              <td>{right}</td>
            </tr>
          ))}
          <tr class="verdicts">
            <td>{one.verdict}</td>
            <td>{other.verdict}</td>
          </tr>
        </tbody>
      </table>
    </div>
  );
}
