import { defineConfig } from "vite";

// One script and one style sheet, which assemble.mjs puts into the page.
export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"' },
  build: {
    target: "es2022",
    outDir: "out",
    cssCodeSplit: false,
    lib: { entry: "src/main.tsx", formats: ["iife"], name: "gyre", fileName: () => "page.js", cssFileName: "page" },
  },
});
