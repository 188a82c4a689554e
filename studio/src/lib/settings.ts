// settings.ts: what this browser remembers: appearance, defaults of new chats, drafts.
import { effect, signal } from "@preact/signals";

export interface ChatSettings {
    model: string;
    system: string;
    persona: string; // of the orchestrator's folder
    ownPersona: number; // one that the user wrote; 0: none
    skill: string; // "": whichever fits
    think_budget: number | null; // tokens
    effort: "" | "none" | "low" | "medium" | "high";
    mode: "" | "fast" | "quality" | "ultra";
    temperature: number | null;
    top_p: number | null;
    top_k: number | null;
    min_p: number | null;
    max_tokens: number | null;
    seed: number | null;
    collection: string; // of documents that answers read; "": all that the user may read
    confirm: string[]; // tools that this chat may use after strangers' text
    askFirst: boolean; // each tool that writes, runs or sends waits for the user's permission
}
export interface Settings {
    theme: "system" | "light" | "dark";
    language: "system" | "en" | "fr";
    enterSends: boolean;
    announce: boolean;
    showSteps: boolean;
    sidebar: boolean;
    voice: string; // its URI; "": the server's, else one of this machine
    talk: boolean; // what is said is sent, and the answer is read aloud
    defaults: ChatSettings;
}
export const plainChat: ChatSettings = {
    model: "",
    system: "",
    persona: "",
    ownPersona: 0,
    skill: "",
    think_budget: null,
    effort: "",
    mode: "",
    temperature: null,
    top_p: null,
    top_k: null,
    min_p: null,
    max_tokens: null,
    seed: null,
    collection: "",
    confirm: [],
    askFirst: true,
};
const first: Settings = {
    theme: "system",
    language: "system",
    enterSends: true,
    announce: true,
    showSteps: true,
    sidebar: true,
    voice: "",
    talk: false,
    defaults: plainChat,
};

export const storageFull = signal(false);

export function keep(name: string, value: string | null): void {
    try {
        if (value === null || value === "") localStorage.removeItem(name);
        else localStorage.setItem(name, value);
        storageFull.value = false;
    } catch {
        storageFull.value = true; // the page works on; nothing is kept in this browser
    }
}
export function kept(name: string): string | null {
    try {
        return localStorage.getItem(name);
    } catch {
        return null;
    }
}

function read(): Settings {
    try {
        const v = JSON.parse(kept("chimere.settings") ?? "{}");
        return { ...first, ...v, defaults: { ...plainChat, ...v.defaults } };
    } catch {
        return first;
    }
}
export const settings = signal<Settings>(read());
export function change(part: Partial<Settings>): void {
    settings.value = { ...settings.value, ...part };
    keep("chimere.settings", JSON.stringify(settings.value));
}
effect(() => {
    const theme = settings.value.theme;
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
});
window.addEventListener("storage", (e) => {
    if (e.key === "chimere.settings") settings.value = read(); // another tab
});
