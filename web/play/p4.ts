// The editor of P4 programs: CodeMirror with P4's words.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import {
  bracketMatching,
  HighlightStyle,
  indentOnInput,
  indentUnit,
  StreamLanguage,
  type StringStream,
  syntaxHighlighting,
} from "@codemirror/language";
import { lintGutter } from "@codemirror/lint";
import { clike } from "@codemirror/legacy-modes/mode/clike";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import type { Extension } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

function words(text: string): Record<string, boolean> {
  return Object.fromEntries(text.split(/\s+/).map((word) => [word, true]));
}

const p4 = StreamLanguage.define(
  clike({
    name: "p4",
    keywords: words(
      `action actions abstract apply const control default default_action else entries enum error exit extern for
       header header_union if in inout key match_kind out package parser pragma priority return select size state
       struct switch table transition this tuple type typedef value_set default_only counters meters implementation
       break continue`,
    ),
    types: words("bit bool int varbit string void packet_in packet_out standard_metadata_t"),
    blockKeywords: words("control parser state table action if else switch struct header apply actions key entries"),
    atoms: words("true false accept reject _"),
    number: /^(?:\d+[ws])?(?:0[xX][\da-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|\d[\d_]*)/,
    hooks: {
      "#": (stream: StringStream) => {
        stream.skipToEnd();
        return "meta";
      },
      "@": (stream: StringStream) => {
        stream.eatWhile(/\w/);
        return "meta";
      },
    },
  }),
);

// Colours are variables of theme.css, so that both themes need one style.
const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.definitionKeyword, tags.controlKeyword], color: "var(--series-4)" },
  { tag: tags.typeName, color: "var(--series-5)" },
  { tag: [tags.number, tags.atom, tags.bool], color: "var(--series-2)" },
  { tag: tags.string, color: "var(--series-3)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
  { tag: tags.meta, color: "var(--series-6)" },
  { tag: tags.definition(tags.variableName), color: "var(--accent)" },
]);

const look = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--surface)", color: "var(--text)" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--raised)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", border: "1px solid var(--line-strong)", color: "var(--text)" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)" },
  ".cm-diagnosticText": { whiteSpace: "pre-wrap", fontFamily: "var(--mono)" },
});

/** What makes a CodeMirror editor one for P4. */
export function p4Editor(): Extension[] {
  const nonce = document.querySelector<HTMLMetaElement>("meta[name=nonce]")?.content ?? "";
  return [
    EditorView.cspNonce.of(nonce),
    lineNumbers(),
    lintGutter(),
    history(),
    drawSelection(),
    EditorView.lineWrapping,
    indentUnit.of("    "),
    indentOnInput(),
    bracketMatching(),
    highlightActiveLine(),
    highlightActiveLineGutter(),
    highlightSelectionMatches(),
    p4,
    syntaxHighlighting(colours),
    look,
    keymap.of([...defaultKeymap, ...searchKeymap, ...historyKeymap, indentWithTab]),
    EditorView.contentAttributes.of({ "aria-label": "P4 program; Escape, then Tab leaves the editor", spellcheck: "false" }),
  ];
}
