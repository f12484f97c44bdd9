// One page for each folder with an index.html. The result is committed, so that fanin needs no Node.

import { createHash } from "node:crypto";
import { readFileSync, readdirSync, existsSync } from "node:fs";
import { join, relative } from "node:path";
import { defineConfig, type Plugin } from "vite";

const root = import.meta.dirname;

/** All files that the result is made of, in order. tests/browser/test_built.py lists the same. */
function sources(folder: string = root): string[] {
  const found = readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === "node_modules" ? [] : sources(path);
    return entry.name === "README.md" ? [] : [path];
  });
  return found.sort();
}

/** Records which sources the result was built from. */
function recordSources(): Plugin {
  return {
    name: "record-sources",
    generateBundle() {
      const lines = sources().map((path) => {
        const digest = createHash("sha256").update(readFileSync(path)).digest("hex");
        return `${digest}  ${relative(root, path)}\n`;
      });
      this.emitFile({ type: "asset", fileName: "sources.sha256", source: lines.join("") });
    },
  };
}

const pages = readdirSync(root).filter((name) => existsSync(join(root, name, "index.html")));

export default defineConfig({
  root,
  plugins: [recordSources()],
  build: {
    outDir: "../browser/built",
    emptyOutDir: true,
    target: "es2022",
    license: { fileName: "licenses.txt" },
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000, // kB: they come from this machine
    rollupOptions: {
      input: Object.fromEntries(pages.map((name) => [name, join(root, name, "index.html")])),
      output: {
        // Without hashes, so that a rebuild changes files and does not rename them.
        entryFileNames: "assets/[name].js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/[name][extname]",
      },
    },
  },
});
