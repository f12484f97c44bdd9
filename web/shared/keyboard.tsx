// Keys of a page, and the dialog that lists them.

import { useEffect, useRef } from "preact/hooks";

export interface Shortcut {
  /** As `KeyboardEvent.key` has it, such as "ArrowRight" or "?"; with "Ctrl+" before it for Ctrl or the command key. */
  key: string;
  /** What it does, for the reader. */
  does: string;
  /** Without it the browser or the editor does it, and the dialog only lists the key. */
  run?: () => void;
}

const SIGNS: Record<string, string> = {
  ArrowLeft: "←",
  ArrowRight: "→",
  ArrowUp: "↑",
  ArrowDown: "↓",
  " ": "Space",
};

/** Whether keys typed there are text. */
function takesText(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable=true]") !== null;
}

/** Lets a page obey these keys while it is shown. Keys without Ctrl are left to fields that take text. */
export function useShortcuts(shortcuts: Shortcut[]): void {
  const current = useRef(shortcuts);
  current.current = shortcuts;
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      const ctrl = event.ctrlKey || event.metaKey;
      if (!ctrl && takesText(event.target)) return;
      // A button has the space bar and Enter to itself.
      if ((event.key === " " || event.key === "Enter") && !ctrl && event.target instanceof HTMLButtonElement) return;
      const pressed = (ctrl ? "Ctrl+" : "") + event.key;
      const found = current.current.find((each) => each.key === pressed);
      if (!found?.run) return;
      event.preventDefault();
      found.run();
    };
    window.addEventListener("keydown", listen);
    return () => window.removeEventListener("keydown", listen);
  }, []);
}

/** The properties of a part of a drawing that is a button, too. */
export function buttonOf(run: () => void) {
  const onKeyDown = (event: KeyboardEvent) => event.key === "Enter" && run();
  return { role: "button" as const, tabindex: 0, onClick: run, onKeyDown }; // SVG knows no tabIndex
}

export function ShortcutsDialog({ shortcuts, onClose }: { shortcuts: Shortcut[]; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={onClose} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl class="keys">
        {shortcuts.map(({ key, does }) => (
          <div key={key}>
            <dt>
              {key.split("+").map((part) => (
                <kbd key={part}>{SIGNS[part] ?? part}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog">
        <button autofocus>Close</button>
      </form>
    </dialog>
  );
}
