// audio.ts: speech through the server, if its owner named audio servers: recordings become text, sentences become sound.
import { signal } from "@preact/signals";
import { maybe, send, sendForm } from "./api";

export interface Hosts {
    transcriptions: string | null; // host and port; null: none
    speech: string | null;
}
export const hosts = signal<Hosts>({ transcriptions: null, speech: null });
export async function loadAudio(): Promise<void> {
    hosts.value = (await maybe<Hosts>("/chimere/v1/audio").catch(() => null)) ?? { transcriptions: null, speech: null };
}

export async function soundOf(text: string, stop: AbortSignal): Promise<Blob> {
    const res = await send("POST", "/v1/audio/speech", { model: "tts-1", voice: "alloy", input: text, response_format: "mp3" }, stop);
    return res.blob();
}

// ---- the microphone ----

const QUIET_MS = 1200; // silence after speech that ends a recording
const SEEN_MS = 100;
const IDLE_MS = 30_000; // without any speech
const MOST_MS = 120_000;
const LOUD = 2.5; // times the level of the room
export const recording = signal<"" | "asked" | "on" | "sent">(""); // asked: the browser asks for the microphone

let running: { stop: () => void } | null = null;
let asked = false; // the user ended the recording: it is sent even if it seems silent
export function endRecording(): void {
    asked = true;
    running?.stop();
}

// Records until endRecording, or until a pause after speech, and returns the text. "": nothing was said. heard is called when
// speech begins. The caller sets `recording` back when it listens no more: until then no second recording can begin.
export async function listen(heard: () => void): Promise<string> {
    if (!recording.value) recording.value = "asked";
    const stream = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true, noiseSuppression: true } });
    const type = ["audio/webm;codecs=opus", "audio/ogg;codecs=opus", "audio/mp4"].find((x) => MediaRecorder.isTypeSupported(x));
    const recorder = new MediaRecorder(stream, type ? { mimeType: type } : {});
    const context = new AudioContext();
    const parts: Blob[] = [];
    let spoke = false;
    asked = false;
    const ended = new Promise<void>((done) => (recorder.onstop = () => done()));
    recorder.ondataavailable = (e) => parts.push(e.data);
    recorder.start(250);
    recording.value = "on";
    running = { stop: () => recorder.state !== "inactive" && recorder.stop() };
    const timer = watchLevel(context, stream, {
        speech: () => {
            if (!spoke) heard();
            spoke = true;
        },
        pause: () => running?.stop(),
    });
    try {
        await ended;
    } finally {
        clearInterval(timer);
        for (const track of stream.getTracks()) track.stop();
        void context.close();
        running = null;
        recording.value = "sent";
    }
    if (!spoke && !asked) return "";
    const form = new FormData();
    const kind = (recorder.mimeType || "audio/webm").split(";")[0];
    form.append("file", new Blob(parts, { type: kind }), `speech.${kind.split("/")[1]}`);
    form.append("model", "whisper-1");
    return String((await sendForm<{ text?: string }>("/v1/audio/transcriptions", form)).text ?? "").trim();
}

// The first 300 ms give the level of the room; louder sound is speech. A page that was busy has not listened: of the time since
// the last look, at most SEEN_MS count as silence.
function watchLevel(context: AudioContext, stream: MediaStream, on: { speech: () => void; pause: () => void }): number {
    const meter = context.createAnalyser();
    meter.fftSize = 1024;
    context.createMediaStreamSource(stream).connect(meter);
    const wave = new Float32Array(meter.fftSize);
    const start = performance.now();
    let room = 0.004;
    let heard = false;
    let quiet = 0;
    let before = start;
    return window.setInterval(() => {
        meter.getFloatTimeDomainData(wave);
        const level = Math.sqrt(wave.reduce((sum, x) => sum + x * x, 0) / wave.length);
        const now = performance.now();
        quiet += Math.min(now - before, SEEN_MS);
        before = now;
        if (now - start < 300) room = Math.min(0.02, Math.max(room, level));
        else if (level > LOUD * room) {
            heard = true;
            quiet = 0;
            on.speech();
        }
        if (quiet > (heard ? QUIET_MS : IDLE_MS)) on.pause();
        if (now - start > MOST_MS) on.pause();
    }, 50);
}
