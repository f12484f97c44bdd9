// Table entries, multicast groups and clone sessions, edited in place.

import { changeScenario, program, scenario, step } from "./state";
import type { Entry, Table } from "./types";

const EXAMPLES: Record<string, string> = {
  exact: "value",
  lpm: "10.0.0.0/8",
  ternary: "value &&& mask",
  range: "1..9",
  optional: "value",
};

function last(name: string): string {
  return name.slice(name.lastIndexOf(".") + 1);
}

function replaceEntry(index: number, entry: Entry | null): void {
  const entries = [...scenario.value.entries];
  if (entry) entries[index] = entry;
  else entries.splice(index, 1);
  changeScenario({ entries });
}

export function Tables() {
  const tables = program.value?.tables ?? [];
  return (
    <div class="tables">
      {!tables.length && <p class="empty">This program has no tables with keys.</p>}
      {tables.map((table) => (
        <TableEditor key={table.name} table={table} />
      ))}
      <div class="replication">
        <Groups />
        <Sessions />
      </div>
    </div>
  );
}

function argumentsFor(table: Table, action: string, before: Record<string, string> = {}): Record<string, string> {
  const found = table.actions.find((each) => each.name === action);
  return Object.fromEntries((found?.parameters ?? []).map(([name]) => [name, before[name] ?? "0"]));
}

function TableEditor({ table }: { table: Table }) {
  const overlapping = table.keys.some(({ kind }) => ["ternary", "range", "optional"].includes(kind));
  const mine = scenario.value.entries.map((entry, index) => ({ entry, index })).filter(({ entry }) => entry.table === table.name);
  const rows = mine.filter(({ entry }) => !entry.default);
  const fallback = mine.find(({ entry }) => entry.default);
  const looked = step.value?.kind === "Lookup" && step.value.node === table.name ? step.value.entry : undefined;
  const add = (isDefault: boolean) => {
    const action = (isDefault ? table.default?.action : undefined) ?? table.actions[0]?.name ?? "";
    const match = isDefault ? {} : Object.fromEntries(table.keys.map(({ name, kind }) => [name, kind === "exact" ? "0" : ""]));
    const entry: Entry = { table: table.name, action, match, arguments: argumentsFor(table, action), priority: overlapping ? 1 : 0, default: isDefault };
    changeScenario({ entries: [...scenario.value.entries, entry] });
  };
  return (
    <section aria-label={`Table ${table.name}`}>
      <div class="bar">
        <h3>{table.name}</h3>
        {table.const ? <span class="quiet">its entries are const</span> : <button onClick={() => add(false)}>+ Entry</button>}
      </div>
      <table>
        <thead>
          <tr>
            {overlapping && <th scope="col">priority</th>}
            {table.keys.map(({ name, kind, width }) => (
              <th key={name} scope="col">
                {name} <small>{kind} · {width} bits</small>
              </th>
            ))}
            <th scope="col">action</th>
            <th>
              <span class="visually-hidden">remove</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ entry, index }, number) => (
            <tr key={index} class={looked === number ? "hit" : ""}>
              {overlapping && (
                <td>
                  <input
                    class="narrow"
                    inputMode="numeric"
                    aria-label="priority"
                    value={entry.priority}
                    onChange={(e) => replaceEntry(index, { ...entry, priority: Number(e.currentTarget.value) || 0 })}
                  />
                </td>
              )}
              {table.keys.map(({ name, kind }) => (
                <td key={name}>
                  <input
                    aria-label={name}
                    placeholder={kind === "exact" ? "value" : `any, or ${EXAMPLES[kind] ?? "value"}`}
                    value={entry.match[name] ?? ""}
                    onChange={(e) => replaceEntry(index, { ...entry, match: { ...entry.match, [name]: e.currentTarget.value } })}
                  />
                </td>
              ))}
              <ActionCells table={table} entry={entry} index={index} />
            </tr>
          ))}
          <tr class="default">
            <td colSpan={table.keys.length + (overlapping ? 1 : 0)}>otherwise</td>
            {fallback ? (
              <ActionCells table={table} entry={fallback.entry} index={fallback.index} />
            ) : (
              <>
                <td>
                  {table.default ? `${last(table.default.action)}(${Object.values(table.default.arguments).join(", ")})` : "nothing"}
                </td>
                <td>
                  {!table.fixedDefault && (
                    <button class="plain" onClick={() => add(true)}>
                      Change
                    </button>
                  )}
                </td>
              </>
            )}
          </tr>
        </tbody>
      </table>
    </section>
  );
}

function ActionCells({ table, entry, index }: { table: Table; entry: Entry; index: number }) {
  const action = table.actions.find((each) => each.name === entry.action);
  return (
    <>
      <td>
        <span class="action">
          <select
            aria-label="action"
            value={entry.action}
            onChange={(e) => {
              const name = e.currentTarget.value;
              replaceEntry(index, { ...entry, action: name, arguments: argumentsFor(table, name, entry.arguments) });
            }}
          >
            {table.actions.map(({ name }) => (
              <option key={name} value={name}>
                {last(name)}
              </option>
            ))}
          </select>
          {(action?.parameters ?? []).map(([name, width]) => (
            <label key={name}>
              {name}{" "}
              <input
                class={width > 16 ? "" : "narrow"}
                value={entry.arguments[name] ?? ""}
                onChange={(e) => replaceEntry(index, { ...entry, arguments: { ...entry.arguments, [name]: e.currentTarget.value } })}
              />
            </label>
          ))}
        </span>
      </td>
      <td>
        <button class="plain" aria-label="Remove this entry" title="Remove this entry" onClick={() => replaceEntry(index, null)}>
          ✕
        </button>
      </td>
    </>
  );
}

function numbered(found: object): number {
  return Math.max(0, ...Object.keys(found).map(Number)) + 1;
}

function Groups() {
  const groups = scenario.value.groups;
  const change = (number: string, text: string | null) => {
    const changed = { ...groups };
    if (text === null) delete changed[number];
    else {
      changed[number] = text
        .split(/[\s,]+/)
        .filter((each) => /^\d+(:\d+)?$/.test(each))
        .map((each) => each.split(":").map(Number))
        .map(([port = 0, replica = 0]) => [port, replica]);
    }
    changeScenario({ groups: changed });
  };
  return (
    <section aria-label="Multicast groups">
      <div class="bar">
        <h3>Multicast groups</h3>
        <button onClick={() => change(String(numbered(groups)), "1, 2")}>+ Group</button>
      </div>
      {Object.entries(groups).map(([number, replicas]) => (
        <div class="row" key={number}>
          <label>
            group {number}: ports{" "}
            <input
              title="Ports; 2:1 is port 2 with replication id 1"
              value={replicas.map(([port, id]) => (id ? `${port}:${id}` : port)).join(", ")}
              onChange={(e) => change(number, e.currentTarget.value)}
            />
          </label>
          <button class="plain" aria-label={`Remove group ${number}`} onClick={() => change(number, null)}>
            ✕
          </button>
        </div>
      ))}
    </section>
  );
}

function Sessions() {
  const sessions = scenario.value.sessions;
  const change = (number: string, port: number | null) => {
    const changed = { ...sessions };
    if (port === null) delete changed[number];
    else changed[number] = port;
    changeScenario({ sessions: changed });
  };
  return (
    <section aria-label="Clone sessions">
      <div class="bar">
        <h3>Clone sessions</h3>
        <button onClick={() => change(String(numbered(sessions)), 1)}>+ Session</button>
      </div>
      {Object.entries(sessions).map(([number, port]) => (
        <div class="row" key={number}>
          <label>
            session {number}: port{" "}
            <input class="narrow" value={port} onChange={(e) => change(number, Number(e.currentTarget.value) || 0)} />
          </label>
          <button class="plain" aria-label={`Remove session ${number}`} onClick={() => change(number, null)}>
            ✕
          </button>
        </div>
      ))}
    </section>
  );
}
