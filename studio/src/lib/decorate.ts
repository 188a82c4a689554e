// decorate.ts: what is added to sanitised nodes: a bar over code, highlighting, mathematics.
import { t } from "../i18n";
import { actionOf, kindOf, shown } from "./artifacts";

const HIGHLIGHT_MAX = 30_000;
let highlighter: Promise<typeof import("./highlight")> | null = null;
let mathematics: Promise<typeof import("./math")> | null = null;

export async function copy(text: string): Promise<boolean> {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        const area = document.createElement("textarea"); // no clipboard: the page is not on https or localhost
        area.value = text;
        area.className = "offscreen";
        document.body.append(area);
        area.select();
        const ok = document.execCommand("copy");
        area.remove();
        return ok;
    }
}

function button(label: string, name: string, act: (b: HTMLButtonElement) => void): HTMLButtonElement {
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = label;
    b.setAttribute("aria-label", name);
    b.addEventListener("click", () => act(b));
    return b;
}

function bar(pre: HTMLPreElement, final: boolean): void {
    const code = pre.querySelector("code");
    if (!code || pre.parentElement?.classList.contains("code")) return;
    const language = /language-([\w+#.-]+)/.exec(code.className)?.[1]?.toLowerCase() ?? "";
    const box = document.createElement("div");
    const head = document.createElement("div");
    const name = document.createElement("span");
    box.className = "code";
    head.className = "code-bar";
    name.textContent = language || t("code.text");
    head.append(name);
    const text = () => code.textContent ?? "";
    const kind = final ? kindOf(language, text()) : null;
    if (kind) head.append(button(t(actionOf(kind)), `${t(actionOf(kind))}: ${language}`, () => (shown.value = { kind, text: text() })));
    head.append(
        button(t("copy"), t("code.copy", { language: language || t("code.text") }), async (b) => {
            b.textContent = (await copy(text())) ? t("copied") : t("copy.failed");
            setTimeout(() => (b.textContent = t("copy")), 1500);
        }),
    );
    pre.replaceWith(box);
    pre.tabIndex = 0;
    box.append(head, pre);
    if (!final || text().length > HIGHLIGHT_MAX || !language) return;
    highlighter ??= import("./highlight");
    void highlighter.then((h) => h.fill(code, language));
}

export function decorate(root: ParentNode, final: boolean): void {
    for (const pre of root.querySelectorAll<HTMLPreElement>("pre:not(.plain)")) bar(pre, final);
    for (const table of root.querySelectorAll("table")) {
        if (table.parentElement?.classList.contains("table")) continue;
        const box = document.createElement("div");
        box.className = "table";
        box.tabIndex = 0;
        table.replaceWith(box);
        box.append(table);
    }
    if (!final) return;
    const formulas = [...root.querySelectorAll<HTMLElement>(".math:not(.done)")];
    if (!formulas.length) return;
    mathematics ??= import("./math");
    void mathematics.then((m) => formulas.forEach((f) => m.fill(f)));
}
