// The theatre in one script and one style sheet: `fanin animate` puts both, and a recording, into one file.

import { join } from "node:path";
import { defineConfig } from "vite";

export default defineConfig({
  root: import.meta.dirname,
  build: {
    outDir: "../browser/built/theatre",
    emptyOutDir: true,
    target: "es2022",
    cssCodeSplit: false,
    rollupOptions: {
      input: { theatre: join(import.meta.dirname, "theatre/main.tsx") },
      output: {
        format: "iife",
        entryFileNames: "theatre.js",
        assetFileNames: "theatre[extname]",
      },
    },
  },
});
