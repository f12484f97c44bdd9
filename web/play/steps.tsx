// One packet, step by step: where it is in the graph, what its headers and the registers hold.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { GraphView } from "./graph";
import { busy, diagnostics, goToStep, openFile, packetIndex, program, ran, scenario, step, stepIndex, trace } from "./state";
import type { Choice, GraphNode, Trace } from "./types";
import { cellsAt, valuesAt } from "./values";

export function Steps({ onLine }: { onLine: (line: number) => void }) {
  const shown = trace.value;
  if (!shown) {
    let said = "";
    if (busy.value) said = `Please wait: ${busy.value} the program.`;
    else if (!program.value && diagnostics.value.length) said = "Repair the program to see the path of its packets.";
    else if (!scenario.value.packets.length) said = "Send a packet to see its path through the program.";
    return <p class="empty">{said}</p>;
  }
  return (
    <div class="steps">
      <Controls count={shown.steps.length} />
      <div class="stage">
        <GraphPane shown={shown} onLine={onLine} />
        <ValuesPane shown={shown} />
        <StepList shown={shown} />
      </div>
    </div>
  );
}

function Controls({ count }: { count: number }) {
  const at = stepIndex.value;
  return (
    <div class="controls" role="group" aria-label="Steps">
      <button class="plain" onClick={() => goToStep(0)} disabled={at === 0} aria-label="First step" title="First step (Home)">
        |◀
      </button>
      <button onClick={() => goToStep(at - 1)} disabled={at === 0} title="Step back (←)">
        ◀ Back
      </button>
      <button class="primary" onClick={() => goToStep(at + 1)} disabled={at >= count - 1} title="Next step (→)">
        Step ▶
      </button>
      <button class="plain" onClick={() => goToStep(count - 1)} disabled={at >= count - 1} aria-label="Last step" title="Last step (End)">
        ▶|
      </button>
      <input
        type="range"
        min={0}
        max={Math.max(0, count - 1)}
        value={at}
        aria-label="Step"
        onInput={(event) => goToStep(Number(event.currentTarget.value))}
      />
      <span class="count">
        {at + 1} of {count}
      </span>
    </div>
  );
}

function GraphPane({ shown, onLine }: { shown: Trace; onLine: (line: number) => void }) {
  const graphs = program.value?.graphs ?? [];
  const [chosen, setChosen] = useState("");
  const current = step.value;
  useEffect(() => setChosen(""), [current?.graph, packetIndex.value]);
  const name = chosen || current?.graph || graphs[0]?.name;
  const graph = graphs.find((each) => each.name === name) ?? graphs[0];
  const way = useMemo(() => {
    const found: string[] = graph ? [graph.initial] : [];
    if (current?.graph !== graph?.name) return [];
    for (const each of shown.steps.slice(0, stepIndex.value + 1)) {
      if (each.copy !== current?.copy || each.graph !== graph?.name) continue;
      if (each.node === "") found.splice(0, found.length);
      else if (each.node && each.node !== found.at(-1)) found.push(each.node);
    }
    return found;
  }, [shown, stepIndex.value, graph]);
  const choose = (node: GraphNode) => {
    if (!node.line || !node.file) return;
    openFile.value = node.file;
    onLine(node.line);
  };
  return (
    <section class="graph-pane" aria-label="Graph">
      <div class="tabs small" role="tablist" aria-label="Which graph">
        {graphs.map((each) => (
          <button
            key={each.name}
            role="tab"
            aria-selected={each === graph}
            onClick={() => setChosen(each.name)}
          >
            {each.name}
          </button>
        ))}
      </div>
      {graph && <GraphView graph={graph} way={way} onChoose={choose} />}
    </section>
  );
}

function depth(shown: Trace, copy: number): number {
  const parent = shown.copies[copy]?.parent;
  return parent === null || parent === undefined ? 0 : 1 + depth(shown, parent);
}

function StepList({ shown }: { shown: Trace }) {
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const show = () => list.current?.querySelector("[aria-current=step]")?.scrollIntoView({ block: "nearest" });
    show();
    const sizes = new ResizeObserver(show);
    sizes.observe(list.current!.parentElement!);
    return () => sizes.disconnect();
  }, [stepIndex.value, shown]);
  return (
    <section class="step-list" aria-label="All steps">
      <ol ref={list}>
        {shown.steps.map((each, index) => {
          const begins = shown.steps[index - 1]?.copy !== each.copy && shown.copies.length > 1;
          const indent = ["Parse", "Ingress", "Egress", "Output", "Drop", "Request"].includes(each.kind) ? 0 : 1;
          return (
            <li key={index} class={`level-${Math.min(depth(shown, each.copy), 4)} copy-${each.copy % 6}`}>
              {begins && <CopyName shown={shown} copy={each.copy} />}
              <button
                class={`step kind-${each.kind}`}
                aria-current={index === stepIndex.value ? "step" : undefined}
                title="Click to go to this step"
                onClick={() => goToStep(index)}
              >
                {each.text.map((text, number) => (
                  <span key={number} class={indent || number ? "inner" : "outer"}>
                    {text}
                  </span>
                ))}
              </button>
            </li>
          );
        })}
        {shown.cut && <li class="quiet">This packet takes more steps than are shown.</li>}
      </ol>
    </section>
  );
}

function CopyName({ shown, copy }: { shown: Trace; copy: number }) {
  const { cause, replica } = shown.copies[copy]!;
  const said = copy === 0 ? "the packet" : `copy ${copy}: ${cause}${replica ? `, replica ${replica}` : ""}`;
  return <div class="copy-name">{said}</div>;
}

function CopyTree({ shown, parent }: { shown: Trace; parent: number | null }) {
  const children = shown.copies.map((_, index) => index).filter((index) => shown.copies[index]!.parent === parent);
  if (!children.length) return null;
  return (
    <ul>
      {children.map((copy) => {
        const first = shown.steps.findIndex((each) => each.copy === copy);
        const ends = shown.steps.filter((each) => each.copy === copy && ["Output", "Drop", "Enqueue"].includes(each.kind));
        const { cause, replica } = shown.copies[copy]!;
        return (
          <li key={copy}>
            <button
              class={`plain copy-${copy % 6}`}
              aria-current={step.value?.copy === copy ? "true" : undefined}
              onClick={() => first >= 0 && goToStep(first)}
              disabled={first < 0}
            >
              {copy === 0 ? "packet" : `${cause}${replica ? ` ${replica}` : ""}`}
              <span class="quiet">{ends.map((each) => ` · ${each.text[0]}`).join("")}</span>
            </button>
            <CopyTree shown={shown} parent={copy} />
          </li>
        );
      })}
    </ul>
  );
}

/** The actions that an entry could have run, below what they belong to: with another hash, another member. */
function ChoiceTree({ choice }: { choice: Choice }) {
  const { kind, number, chosen, of } = choice;
  const only = kind === "member" ? 0 : chosen;
  return (
    <div class="tree choice">
      <h3>{kind === "member" ? "Member" : `${kind === "group" ? "Group" : "Action set"} ${number ?? ""}`}</h3>
      <ul>
        {of.map(({ member, weight, call }, index) => (
          <li key={index} class={index === only ? "changed" : "quiet"} aria-current={index === only ? "true" : undefined}>
            {member !== null && <span class="badge">{member}</span>} {call}
            {weight > 1 && ` · weight ${weight}`}
            {index === only && <span class="badge good">chosen</span>}
          </li>
        ))}
        {!of.length && <li class="quiet">empty: nothing happens</li>}
      </ul>
    </div>
  );
}

function ValuesPane({ shown }: { shown: Trace }) {
  const values = useMemo(() => valuesAt(shown, stepIndex.value), [shown, stepIndex.value]);
  const cells = useMemo(() => cellsAt(ran.value!, packetIndex.value, stepIndex.value), [ran.value, packetIndex.value, stepIndex.value]);
  const pane = useRef<HTMLElement>(null);
  useEffect(() => {
    pane.current?.querySelector(".changed")?.scrollIntoView({ block: "nearest" });
  }, [stepIndex.value, shown]);
  const current = step.value;
  const groups = new Map<string, [string, string][]>();
  for (const [name, text] of values.fields) {
    const dot = name.lastIndexOf(".");
    const group = dot < 0 ? "variables" : name.slice(0, dot);
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group)!.push([name, text]);
  }
  const headers = Object.keys(program.value?.headers ?? {});
  const known = (name: string) => headers.indexOf(name) + 1 || 1000;
  const ordered = [...groups].sort(([one], [other]) => known(one) - known(other));
  const changed = (name: string, group: string) => current?.set?.[name] !== undefined || current?.assign?.[0] === group;
  return (
    <section class="values" aria-label="Headers and registers" ref={pane}>
      {shown.copies.length > 1 && (
        <div class="tree">
          <h3>Copies</h3>
          <CopyTree shown={shown} parent={null} />
        </div>
      )}
      {current?.choice && <ChoiceTree choice={current.choice} />}
      {ordered.map(([group, fields]) => {
        const isHeader = group in (program.value?.headers ?? {});
        const valid = values.valid.get(group) ?? false;
        return (
          <div key={group} class={`header ${isHeader && !valid ? "invalid" : ""}`}>
            <h3 class={current?.valid?.[group] !== undefined ? "changed" : ""}>
              {group}
              {isHeader && <span class={valid ? "badge good" : "badge"}>{valid ? "valid" : "not valid"}</span>}
            </h3>
            <dl>
              {fields.map(([name, text]) => (
                <div key={name} class={changed(name, group) ? "changed" : ""}>
                  <dt>{name.slice(name.lastIndexOf(".") + 1)}</dt>
                  <dd>{text}</dd>
                </div>
              ))}
            </dl>
          </div>
        );
      })}
      {cells.size > 0 && (
        <div class="registers">
          <h3>Registers, counters, meters</h3>
          <dl>
            {[...cells].flatMap(([name, at]) =>
              [...at].map(([index, text]) => (
                <div
                  key={`${name} ${index}`}
                  class={current?.cell?.[0] === name && current.cell[1] === index ? "changed" : ""}
                >
                  <dt>
                    {name.slice(name.lastIndexOf(".") + 1)}[{index}]
                  </dt>
                  <dd>{text}</dd>
                </div>
              )),
            )}
          </dl>
        </div>
      )}
    </section>
  );
}
