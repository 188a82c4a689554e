// speech.ts: answers read aloud, by the server's voice or the voices of this browser. Some of them are services of the browser's maker, to which the
// text goes: such a voice is used only if the user has chosen it, and the page says so.
import { computed, effect, signal } from "@preact/signals";
import { language } from "../i18n";
import { hosts, soundOf } from "./audio";
import { settings } from "./settings";
import { current, failed } from "./state";

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
export const byServer = computed(() => hosts.value.speech !== null && settings.value.voice === "");
export const speaks = computed(() => byServer.value || voice.value !== null);
export const goesOut = computed(() => !byServer.value && voice.value !== null && !voice.value.localService);
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

// What is speaking now: sentences are added as they come.
interface Player {
    add: (sentence: string) => void;
    end: () => void; // no more sentences
    stop: () => void;
}
let player: Player | null = null;
let following = 0; // timer of follow

export function hush(): void {
    clearInterval(following);
    speaking.value = null;
    player?.stop();
    player = null;
}

function browserPlayer(with_: SpeechSynthesisVoice, done: () => void): Player {
    let waiting = 0;
    let whole = false;
    const ended = () => {
        if (--waiting === 0 && whole) done();
    };
    return {
        add: (sentence) => {
            const u = new SpeechSynthesisUtterance(sentence);
            u.voice = with_;
            u.lang = with_.lang;
            u.onend = ended;
            u.onerror = ended;
            waiting++;
            engine!.speak(u);
        },
        end: () => {
            whole = true;
            if (!waiting) done();
        },
        stop: () => engine!.cancel(),
    };
}

// The sound of the next sentence is fetched while one plays.
function serverPlayer(done: () => void): Player {
    const control = new AbortController();
    const sounds: Promise<Blob | null>[] = [];
    const audio = new Audio();
    let next = 0;
    let fetched = Promise.resolve<unknown>(null);
    let whole = false;
    let busy = false;
    const play = async () => {
        if (busy || control.signal.aborted) return;
        busy = true;
        while (next < sounds.length && !control.signal.aborted) {
            const sound = await sounds[next++];
            if (!sound || control.signal.aborted) continue;
            audio.src = URL.createObjectURL(sound);
            await new Promise<void>((over) => {
                audio.onended = audio.onerror = () => over();
                control.signal.addEventListener("abort", () => over(), { once: true });
                void audio.play().catch(() => over());
            });
            URL.revokeObjectURL(audio.src);
        }
        busy = false;
        if (whole && next === sounds.length && !control.signal.aborted) done();
    };
    return {
        add: (sentence) => {
            const sound = fetched.then(() => soundOf(sentence, control.signal)).catch((e: Error) => {
                if (e.name !== "AbortError") failed(e);
                return null;
            });
            fetched = sound;
            sounds.push(sound);
            void play();
        },
        end: () => {
            whole = true;
            void play();
        },
        stop: () => {
            control.abort();
            audio.pause();
        },
    };
}

function begin(id: string): Player | null {
    hush();
    const done = () => {
        if (speaking.value === id) hush();
    };
    const with_ = voice.value;
    if (byServer.value) player = serverPlayer(done);
    else if (engine && with_) player = browserPlayer(with_, done);
    if (player) speaking.value = id;
    return player;
}
export function speak(id: string, text: string): void {
    const parts = sentences(text);
    const to = parts.length ? begin(id) : null;
    for (const part of parts) to?.add(part);
    to?.end();
}
// Reads an answer aloud while it is being written. text returns what there is so far, or null if the answer is gone.
const LOOK_MS = 200;
export function follow(id: string, text: () => { text: string; whole: boolean } | null): void {
    const to = begin(id);
    let n = 0;
    if (!to) return;
    following = window.setInterval(() => {
        const now = text();
        if (!now) return hush();
        const parts = sentences(now.text);
        for (const last = now.whole ? parts.length : parts.length - 1; n < last; n++) to.add(parts[n]);
        if (!now.whole) return;
        clearInterval(following);
        to.end();
    }, LOOK_MS);
}
let shown = "";
effect(() => {
    const id = current.value?.id ?? "";
    if (id !== shown && shown) hush(); // another conversation
    shown = id;
});
window.addEventListener("pagehide", hush);
