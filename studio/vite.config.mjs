import { defineConfig } from "vite";

// The output must be the same bytes on every machine: nothing here reads the date, the host or the environment.
export default defineConfig({
    base: "/studio/",
    root: new URL(".", import.meta.url).pathname,
    oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
    build: {
        target: "es2022",
        outDir: process.env.STUDIO_OUT ?? "build",
        emptyOutDir: true,
        assetsInlineLimit: 0,
        modulePreload: { polyfill: false },
        reportCompressedSize: false,
        rollupOptions: { output: { hashCharacters: "hex" } },
    },
});
