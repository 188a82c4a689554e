// artifacts.ts: code of an answer that can be looked at (HTML, SVG, diagrams) or run.
import { signal } from "@preact/signals";
import type { Word } from "../i18n";

export type ArtifactKind = "html" | "svg" | "diagram" | "python" | "javascript" | "shell";
export interface Artifact {
    kind: ArtifactKind;
    text: string;
}
const kinds: Record<string, ArtifactKind> = {
    html: "html", htm: "html", xhtml: "html", svg: "svg", mermaid: "diagram",
    python: "python", python3: "python", py: "python", javascript: "javascript", js: "javascript", node: "javascript",
    sh: "shell", bash: "shell", shell: "shell",
};
const MOST = 1_000_000; // characters

export function kindOf(language: string, text: string): ArtifactKind | null {
    if (text.length > MOST || !text.trim()) return null;
    const kind = Object.hasOwn(kinds, language) ? kinds[language] : null;
    return kind ?? (language === "xml" && /^\s*(<\?xml[^>]*>\s*)?<svg[\s>]/.test(text) ? "svg" : null);
}
export const isShown = (kind: ArtifactKind) => kind === "html" || kind === "svg" || kind === "diagram";
export const actionOf = (kind: ArtifactKind): Word => (isShown(kind) ? "artifact.show" : "artifact.run");
export const shown = signal<Artifact | null>(null);
