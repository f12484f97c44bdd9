// The playground.

import type { EditorView } from "@codemirror/view";
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ShortcutsDialog, useShortcuts, type Shortcut } from "../shared/keyboard";
import { ThemeButton, toggleTheme } from "../shared/theme";
import { Compare } from "./compare";
import { Editor, showLine } from "./editor";
import { PacketDialog, Packets } from "./packets";
import "./play.css";
import {
  ask,
  busy,
  changed,
  changePackets,
  choosePacket,
  diagnostics,
  files,
  goToStep,
  load,
  main,
  openFile,
  packetIndex,
  preset,
  presets,
  problem,
  program,
  ran,
  scenario,
  start,
  step,
  stepIndex,
  view,
  type View,
} from "./state";
import { Steps } from "./steps";
import { Tables } from "./tables";

const VIEWS: [View, string][] = [
  ["steps", "Steps"],
  ["tables", "Tables"],
  ["compare", "Compare"],
];

function Playground() {
  const editor = useRef<EditorView | null>(null);
  const [editing, setEditing] = useState<number | null | undefined>(undefined);
  const [dialog, setDialog] = useState<"keys" | "stf" | "">("");
  useEffect(() => void start(), []);
  // The file of the current step is the one to show.
  useEffect(() => {
    const file = step.value?.file;
    if (file && file in files.value) openFile.value = file;
  }, [step.value]);

  const packets = scenario.value.packets.length;
  const shortcuts: Shortcut[] = [
    { key: "ArrowRight", does: "next step", run: () => goToStep(stepIndex.value + 1) },
    { key: "ArrowLeft", does: "step back", run: () => goToStep(stepIndex.value - 1) },
    { key: "Home", does: "first step", run: () => goToStep(0) },
    { key: "End", does: "last step", run: () => goToStep(Infinity) },
    { key: "ArrowDown", does: "next packet", run: () => choosePacket(Math.min(packetIndex.value + 1, packets - 1)) },
    { key: "ArrowUp", does: "packet before", run: () => choosePacket(Math.max(packetIndex.value - 1, 0)) },
    { key: "n", does: "new packet", run: () => setEditing(null) },
    { key: "e", does: "edit the packet", run: () => packets && setEditing(packetIndex.value) },
    {
      key: "Delete",
      does: "remove the packet",
      run: () => changePackets(scenario.value.packets.filter((_, index) => index !== packetIndex.value), packetIndex.value),
    },
    { key: "s", does: "steps", run: () => (view.value = "steps") },
    { key: "t", does: "tables", run: () => (view.value = "tables") },
    { key: "c", does: "compare", run: () => (view.value = "compare") },
    { key: "d", does: "light or dark", run: toggleTheme },
    { key: "Ctrl+Enter", does: "compile and run now", run: () => changed() },
    { key: "Escape+Tab", does: "leave the editor" },
    { key: "?", does: "these keys", run: () => setDialog("keys") },
  ];
  useShortcuts(shortcuts);

  return (
    <div class="playground">
      <Header onKeys={() => setDialog("keys")} onExport={() => setDialog("stf")} />
      <main>
        <section class="left" aria-label="Program">
          <Files />
          <Editor onView={(found) => (editor.current = found)} />
          <Problems />
        </section>
        <section class="right" aria-label="Switch">
          <Packets onEdit={setEditing} />
          {problem.value && (
            <p class="problem" role="alert">
              {problem.value}
            </p>
          )}
          <div class="tabs" role="tablist" aria-label="View">
            {VIEWS.map(([name, text]) => (
              <button key={name} role="tab" aria-selected={view.value === name} onClick={() => (view.value = name)}>
                {text}
              </button>
            ))}
          </div>
          <div class="view">
            {view.value === "steps" && <Steps onLine={(line) => editor.current && showLine(editor.current, line)} />}
            {view.value === "tables" && <Tables />}
            {view.value === "compare" && <Compare />}
          </div>
        </section>
      </main>
      {editing !== undefined && <PacketDialog index={editing} onClose={() => setEditing(undefined)} />}
      {dialog === "keys" && <ShortcutsDialog shortcuts={shortcuts} onClose={() => setDialog("")} />}
      {dialog === "stf" && <ExportDialog onClose={() => setDialog("")} />}
    </div>
  );
}

function Header({ onKeys, onExport }: { onKeys: () => void; onExport: () => void }) {
  const [copied, setCopied] = useState(false);
  const groups = [...new Set(presets.value.map((each) => each.group))];
  const share = async () => {
    await navigator.clipboard.writeText(location.href);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <header>
      <h1>
        fanin <span>play</span>
      </h1>
      <label>
        <span class="visually-hidden">Program</span>
        <select
          value={preset.value}
          onChange={(e) => load(e.currentTarget.value).catch((error: Error) => (problem.value = error.message))}
        >
          {groups.map((group) => (
            <optgroup key={group} label={group}>
              {presets.value
                .filter((each) => each.group === group)
                .map((each) => (
                  <option key={each.name} value={each.name}>
                    {each.title}
                  </option>
                ))}
            </optgroup>
          ))}
        </select>
      </label>
      <Status />
      <span class="space" />
      <button onClick={() => void share()} title="Copy the address of this page, which holds the program and the packets">
        {copied ? "Copied" : "Copy link"}
      </button>
      <button onClick={onExport} disabled={!ran.value?.packets.length} title="The packets and what comes out, as a test">
        Export test
      </button>
      <ThemeButton />
      <button class="plain" onClick={onKeys} aria-label="Keys" title="Keys (?)">
        ?
      </button>
    </header>
  );
}

function Status() {
  const errors = diagnostics.value.filter((each) => each.severity === "error").length;
  const warnings = diagnostics.value.length - errors;
  const count = (number: number, what: string) => `${number} ${what}${number === 1 ? "" : "s"}`;
  const kind = busy.value ? "" : errors || problem.value ? "bad" : warnings ? "warn" : "good";
  let text = program.value ? "compiled" : "";
  if (busy.value) text = `${busy.value}…`;
  else if (errors) text = count(errors, "error");
  else if (warnings) text = count(warnings, "warning");
  return (
    <span class={`badge ${kind}`} role="status">
      {text}
    </span>
  );
}

function Files() {
  const names = Object.keys(files.value);
  // The main file first: it is where a reader begins.
  const ordered = [main.value, ...names.filter((name) => name !== main.value)];
  const tabs = useRef<HTMLDivElement>(null);
  useEffect(() => {
    tabs.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [openFile.value, main.value]);
  return (
    <div class="tabs" role="tablist" aria-label="Files" ref={tabs}>
      {ordered.map((name) => (
        <button key={name} role="tab" aria-selected={name === openFile.value} onClick={() => (openFile.value = name)}>
          {name}
        </button>
      ))}
    </div>
  );
}

function Problems() {
  if (!diagnostics.value.length) return null;
  return (
    <section class="problems" aria-label="Errors and warnings">
      {diagnostics.value.map((each, index) => (
        <button
          key={index}
          class={`plain ${each.severity}`}
          onClick={() => each.file in files.value && (openFile.value = each.file)}
        >
          <pre>{each.text}</pre>
        </button>
      ))}
    </section>
  );
}

function ExportDialog({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [made, setMade] = useState<{ stf: string; differences: string[] } | null>(null);
  const [wrong, setWrong] = useState("");
  const name = main.value.replace(/\.p4$/, "");
  useEffect(() => {
    dialog.current?.showModal();
    ask<{ stf: string; differences: string[] }>("export", { scenario: scenario.value }).then(setMade, (error: Error) =>
      setWrong(error.message),
    );
  }, []);
  const save = (file: string, text: string) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    link.download = file;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <dialog ref={dialog} class="export-dialog" onClose={onClose} aria-labelledby="export-title">
      <h2 id="export-title">Export as an STF test</h2>
      <p>
        It sends these packets and expects what comes out now. Save it next to the program, then type{" "}
        <code>
          fanin stf {main.value} {name}.stf
        </code>
        .
      </p>
      {wrong && (
        <p class="wrong" role="alert">
          {wrong}
        </p>
      )}
      {made && made.differences.length > 0 && (
        <p class="wrong" role="alert">
          A second run gives something else, perhaps because of random numbers or time: {made.differences[0]}
        </p>
      )}
      <textarea class="mono" readOnly rows={14} aria-label="The test" value={made?.stf ?? "…"} />
      <form method="dialog" class="row end">
        <button>Close</button>
        <button type="button" onClick={() => save(main.value, files.value[main.value] ?? "")}>
          Save {main.value}
        </button>
        <button type="button" class="primary" disabled={!made} onClick={() => made && save(`${name}.stf`, made.stf)}>
          Save {name}.stf
        </button>
      </form>
    </dialog>
  );
}

render(<Playground />, document.getElementById("page")!);
