// Table entries, multicast groups and clone sessions, edited in place.

import { changeScenario, program, scenario, step } from "./state";
import type { Call, Entry, ProfileContent, Table, Weighted } from "./types";

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
      {(program.value?.profiles ?? []).map(({ name, selector }) => (
        <ProfileEditor key={name} name={name} selector={selector} />
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
    const refers = table.profile !== null && !isDefault;
    const action = refers ? "" : ((isDefault ? table.default?.action : undefined) ?? table.actions[0]?.name ?? "");
    const match = isDefault ? {} : Object.fromEntries(table.keys.map(({ name, kind }) => [name, kind === "exact" ? "0" : ""]));
    const entry: Entry = { table: table.name, action, match, arguments: argumentsFor(table, action), priority: overlapping ? 1 : 0, default: isDefault, ...(refers && firstReference(table.profile!)) };
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
              {table.profile !== null ? (
                <ReferenceCells profile={table.profile} entry={entry} index={index} />
              ) : (
                <ActionCells table={table} entry={entry} index={index} />
              )}
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
                  {!table.fixedDefault && table.profile === null && (
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
  return (
    <>
      <td>
        <CallEditor table={table} call={entry} onChange={(call) => replaceEntry(index, { ...entry, ...call })} />
      </td>
      <RemoveCell index={index} />
    </>
  );
}

function RemoveCell({ index }: { index: number }) {
  return (
    <td>
      <button class="plain" aria-label="Remove this entry" title="Remove this entry" onClick={() => replaceEntry(index, null)}>
        ✕
      </button>
    </td>
  );
}

/** An action of a table, and its arguments. */
function CallEditor({ table, call, onChange }: { table: Table; call: Call; onChange: (call: Call) => void }) {
  const action = table.actions.find((each) => each.name === call.action);
  return (
    <span class="action">
      <select
        aria-label="action"
        value={call.action}
        onChange={(e) => {
          const name = e.currentTarget.value;
          onChange({ action: name, arguments: argumentsFor(table, name, call.arguments) });
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
            value={call.arguments[name] ?? ""}
            onChange={(e) => onChange({ action: call.action, arguments: { ...call.arguments, [name]: e.currentTarget.value } })}
          />
        </label>
      ))}
    </span>
  );
}

// Action profiles

const NOTHING: ProfileContent = { members: [], groups: [] };

function contentOf(profile: string): ProfileContent {
  return scenario.value.profiles[profile] ?? NOTHING;
}

function weighted(member: Weighted): [number, number] {
  return typeof member === "number" ? [member, 1] : member;
}

/** The members of a group as one writes them: `0, 2*3` is member 0, and member 2 with weight 3. */
function groupText(group: Weighted[]): string {
  return group.map((each) => (typeof each === "number" ? each : each.join("*"))).join(", ");
}

/** The members of a group that a text names, each once. */
function groupOf(text: string): Weighted[] {
  const found = [...text.matchAll(/(\d+)(?:\s*\*\s*(\d+))?/g)].map(([, number, weight]) => [Number(number), Number(weight ?? 1)] as const);
  return [...new Map(found)].map(([number, weight]): Weighted => (weight === 1 ? number : [number, weight]));
}

/** What a new entry refers to: a group, if there is one. */
function firstReference(profile: string): Partial<Entry> {
  return contentOf(profile).groups.length ? { group: 0 } : { member: 0 };
}

function ReferenceCells({ profile, entry, index }: { profile: string; entry: Entry; index: number }) {
  const { members, groups } = contentOf(profile);
  const choose = (value: string) => {
    const [kind, number] = value.split(" ");
    const of = Number(number);
    replaceEntry(index, { ...entry, action: "", arguments: {}, member: kind === "member" ? of : null, group: kind === "group" ? of : null });
  };
  const chosen = typeof entry.group === "number" ? `group ${entry.group}` : typeof entry.member === "number" ? `member ${entry.member}` : "";
  const offered = [...groups.map((_, number) => `group ${number}`), ...members.map((_, number) => `member ${number}`)];
  return (
    <>
      <td>
        <select aria-label="member or group" value={chosen} onChange={(e) => choose(e.currentTarget.value)}>
          {!offered.includes(chosen) && <option value={chosen}>{chosen ? `${chosen}, which does not exist` : "choose"}</option>}
          {offered.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </td>
      <RemoveCell index={index} />
    </>
  );
}

function ProfileEditor({ name, selector }: { name: string; selector: boolean }) {
  const users = (program.value?.tables ?? []).filter(({ profile }) => profile === name);
  const table = users[0];
  if (!table) return null;
  const { members, groups } = contentOf(name);
  const change = (content: Partial<ProfileContent>, entries: Entry[] = scenario.value.entries) =>
    changeScenario({ profiles: { ...scenario.value.profiles, [name]: { members, groups, ...content } }, entries });
  const addMember = () => {
    const action = table.actions[0]?.name ?? "";
    change({ members: [...members, { action, arguments: argumentsFor(table, action) }] });
  };
  // The numbers of those behind it go down by one, and so does what refers to them.
  const without = (numbers: number[], gone: number) => numbers.filter((each) => each !== gone).map((each) => (each > gone ? each - 1 : each));
  const entriesWithout = (kind: "member" | "group", gone: number) =>
    scenario.value.entries.flatMap((entry) => {
      const number = entry[kind];
      if (typeof number !== "number" || !users.some((each) => each.name === entry.table)) return [entry];
      return without([number], gone).map((left) => ({ ...entry, [kind]: left }));
    });
  const groupWithout = (group: Weighted[], gone: number) =>
    group.flatMap((each) => {
      const [number, weight] = weighted(each);
      return without([number], gone).map((left): Weighted => (weight === 1 ? left : [left, weight]));
    });
  const removeMember = (gone: number) =>
    change(
      { members: members.filter((_, number) => number !== gone), groups: groups.map((each) => groupWithout(each, gone)) },
      entriesWithout("member", gone),
    );
  const removeGroup = (gone: number) =>
    change({ groups: groups.filter((_, number) => number !== gone) }, entriesWithout("group", gone));
  return (
    <section aria-label={`Action profile ${name}`}>
      <div class="bar">
        <h3>{name}</h3>
        <span class="quiet">
          {selector ? "action selector" : "action profile"} of {users.map((each) => last(each.name)).join(", ")}
        </span>
        <button onClick={addMember}>+ Member</button>
        {selector && (
          <button disabled={!members.length} onClick={() => change({ groups: [...groups, members.map((_, number) => number)] })}>
            + Group of members
          </button>
        )}
      </div>
      {members.map((member, number) => (
        <div class="row member" key={`member ${number}`} role="group" aria-label={`Member ${number}`}>
          <span>member {number}</span>
          <CallEditor
            table={table}
            call={member}
            onChange={(call) => change({ members: members.map((each, at) => (at === number ? call : each)) })}
          />
          <button class="plain" aria-label={`Remove member ${number}`} onClick={() => removeMember(number)}>
            ✕
          </button>
        </div>
      ))}
      {groups.map((group, number) => (
        <div class="row member" key={`group ${number}`}>
          <label>
            group {number}: members{" "}
            <input
              value={groupText(group)}
              title="Numbers of members. 2*3 is member 2 with weight 3: it is chosen three times as often as one with weight 1."
              onChange={(e) => change({ groups: groups.map((each, at) => (at === number ? groupOf(e.currentTarget.value) : each)) })}
            />
          </label>
          <button class="plain" aria-label={`Remove group ${number}`} onClick={() => removeGroup(number)}>
            ✕
          </button>
        </div>
      ))}
    </section>
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
