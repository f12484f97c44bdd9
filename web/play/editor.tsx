// The editor in the page: the open file, its errors, and the line of the current step.

import { setDiagnostics } from "@codemirror/lint";
import { EditorState, StateEffect, StateField, type Extension } from "@codemirror/state";
import { Decoration, EditorView, type DecorationSet } from "@codemirror/view";
import { useEffect, useRef } from "preact/hooks";
import { diagnostics, editFile, files, openFile, step } from "./state";
import { p4Editor } from "./p4";
import type { Diagnostic } from "./types";

const setLine = StateEffect.define<number>();

const currentLine = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, transaction) {
    let result = marks.map(transaction.changes);
    for (const effect of transaction.effects) {
      if (!effect.is(setLine)) continue;
      const line = effect.value;
      const known = line >= 1 && line <= transaction.state.doc.lines;
      const mark = Decoration.line({ class: "cm-step" });
      result = known ? Decoration.set([mark.range(transaction.state.doc.line(line).from)]) : Decoration.none;
    }
    return result;
  },
  provide: (field) => EditorView.decorations.from(field),
});

function position(state: EditorState, line: number, column: number): number {
  const found = state.doc.line(Math.max(1, Math.min(line, state.doc.lines)));
  return Math.min(found.from + column, found.to);
}

function shown(state: EditorState, each: Diagnostic) {
  const from = position(state, each.line, each.column);
  const to = Math.max(from, position(state, each.endLine, each.endColumn));
  return { from, to, severity: each.severity, message: each.message, source: "" };
}

/** Shows a line, as when a node of a graph is chosen. */
export function showLine(view: EditorView, line: number): void {
  const at = position(view.state, line, 0);
  view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
  view.focus();
}

export function Editor({ onView }: { onView: (view: EditorView) => void }) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const states = useRef(new Map<string, EditorState>());
  const name = openFile.value;
  const text = files.value[name] ?? "";

  useEffect(() => {
    view.current = new EditorView({ parent: place.current!, extensions: p4Editor() });
    onView(view.current);
    // Where the size of letters depends on the window, lines have another height after a change.
    const measure = () => view.current?.requestMeasure();
    window.addEventListener("resize", measure);
    return () => {
      window.removeEventListener("resize", measure);
      view.current?.destroy();
    };
  }, []);

  // Another file, or another program with a file of that name.
  useEffect(() => {
    if (!view.current) return;
    // The newest text: what was typed since this was drawn is in it.
    const newest = files.peek()[name] ?? "";
    const kept = states.current.get(name);
    if (kept && kept.doc.toString() === newest) {
      if (view.current.state !== kept) view.current.setState(kept);
    } else {
      const extensions: Extension = [
        p4Editor(),
        currentLine,
        EditorView.updateListener.of((update) => {
          states.current.set(name, update.state);
          if (update.docChanged) editFile(name, update.state.doc.toString());
        }),
      ];
      view.current.setState(EditorState.create({ doc: newest, extensions }));
      states.current.set(name, view.current.state);
    }
  }, [name, text]);

  useEffect(() => {
    if (!view.current) return;
    const mine = diagnostics.value.filter((each) => each.file === name || each.file === "");
    view.current.dispatch(setDiagnostics(view.current.state, mine.map((each) => shown(view.current!.state, each))));
    // The list of errors below takes room from the editor: the line that is typed stays in sight above it.
    if (view.current.hasFocus) {
      const at = view.current.state.selection.main.head;
      view.current.dispatch({ effects: EditorView.scrollIntoView(at, { y: "nearest" }) });
    }
  }, [diagnostics.value, name]);

  const at = step.value;
  const line = at?.file === name ? (at.line ?? 0) : 0;
  useEffect(() => {
    if (!view.current) return;
    view.current.dispatch({ effects: setLine.of(line) });
    if (line >= 1 && line <= view.current.state.doc.lines && !view.current.hasFocus) {
      const from = view.current.state.doc.line(line).from;
      view.current.dispatch({ effects: EditorView.scrollIntoView(from, { y: "center" }) });
    }
  }, [line, name]);

  return <div class="editor" ref={place} />;
}
