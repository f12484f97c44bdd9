// Light and dark: the system's choice, until the reader makes one, which this browser keeps.

import { signal } from "@preact/signals";
import "./theme.css";

export type Theme = "light" | "dark";

const KEY = "fanin-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");

function chosen(): Theme {
  const kept = localStorage.getItem(KEY);
  if (kept === "light" || kept === "dark") return kept;
  return system.matches ? "dark" : "light";
}

export const theme = signal<Theme>(chosen());

theme.subscribe((value) => document.documentElement.setAttribute("data-theme", value));
system.addEventListener("change", () => (theme.value = chosen()));

export function toggleTheme(): void {
  theme.value = theme.value === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, theme.value);
}

export function ThemeButton() {
  const other = theme.value === "dark" ? "light" : "dark";
  return (
    <button class="plain" onClick={toggleTheme} title={`Use ${other} colours`} aria-label={`Use ${other} colours`}>
      {theme.value === "dark" ? "☀" : "☾"}
    </button>
  );
}
