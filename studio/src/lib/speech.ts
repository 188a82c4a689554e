// speech.ts: answers read aloud by the voices of this browser. Some of them are services of the browser's maker, to which the
// text goes: such a voice is used only if the user has chosen it, and the page says so.
import { computed, effect, signal } from "@preact/signals";
import { language } from "../i18n";
import { settings } from "./settings";
import { current } from "./state";

const engine = "speechSynthesis" in window ? window.speechSynthesis : null;
export const voices = signal<SpeechSynthesisVoice[]>([]);
const list = () => (voices.value = engine?.getVoices() ?? []);
list();
engine?.addEventListener("voiceschanged", list);

// The chosen one, else one of this machine for the page's language.
export const voice = computed(() => {
    const chosen = voices.value.find((v) => v.voiceURI === settings.value.voice);
    return chosen ?? voices.value.find((v) => v.localService && v.lang.startsWith(language.value)) ?? null;
});
export const goesOut = computed(() => voice.value !== null && !voice.value.localService);
export const speaking = signal<string | null>(null); // id of the turn

// What of Markdown is spoken: no code, no addresses, no marks.
export function spoken(text: string): string {
    return text
        .replace(/^(```|~~~)[^\n]*\n[\s\S]*?(^\1[^\n]*$|(?![\s\S]))/gm, "\n")
        .replace(/\$\$[\s\S]*?\$\$/g, " ")
        .replace(/!?\[([^\]\n]*)\]\([^)\n]*\)/g, "$1")
        .replace(/<?https?:\/\/\S+/g, " ")
        .replace(/^[ \t]*([-*+>#|]+|\d+[.)])[ \t]*/gm, "")
        .replace(/[*_`|#~]+/g, " ")
        .replace(/[ \t]+/g, " ")
        .trim();
}

const MOST = 220; // characters at once: browsers break off what takes long
export function sentences(text: string): string[] {
    const out: string[] = [];
    for (const sentence of spoken(text).split(/(?<=[.!?…:])\s+|\n+/)) {
        let rest = sentence.trim();
        while (rest.length > MOST) {
            const space = rest.lastIndexOf(" ", MOST);
            const at = space > MOST / 2 ? space : MOST;
            out.push(rest.slice(0, at));
            rest = rest.slice(at).trim();
        }
        if (rest) out.push(rest);
    }
    return out;
}

export function hush(): void {
    speaking.value = null;
    engine?.cancel();
}
export function speak(id: string, text: string): void {
    const with_ = voice.value;
    hush();
    const parts = sentences(text);
    if (!engine || !with_ || !parts.length) return;
    speaking.value = id;
    for (const [i, part] of parts.entries()) {
        const u = new SpeechSynthesisUtterance(part);
        u.voice = with_;
        u.lang = with_.lang;
        const ended = () => {
            if (speaking.value === id && i === parts.length - 1) speaking.value = null;
        };
        u.onend = ended;
        u.onerror = ended;
        engine.speak(u);
    }
}
let shown = "";
effect(() => {
    const id = current.value?.id ?? "";
    if (id !== shown && shown) hush(); // another conversation
    shown = id;
});
window.addEventListener("pagehide", hush);
