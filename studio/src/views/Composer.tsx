// Composer.tsx: what is written next: text, files, a draft that survives a reload.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { bytes, t } from "../i18n";
import { endRecording, hosts, listen, recording } from "../lib/audio";
import { attach } from "../lib/files";
import { follow, hush } from "../lib/speech";
import { ask, current, failed, model, path, say, sees, stop, tree, writing } from "../lib/state";
import { keep, kept, settings } from "../lib/settings";
import type { Attachment } from "../lib/tree";
import { Icon, IconButton } from "./icons";

export const focusComposer = signal(0);
const draftName = (id: string) => `chimere.draft.${id || "new"}`;

// Asks and returns the id of the answer as soon as it begins; "": none began.
async function answerOf(said: string): Promise<string> {
    if (writing.value) stop();
    for (let i = 0; i < 100 && writing.value; i++) await new Promise((done) => setTimeout(done, 50));
    let id = "";
    await new Promise<void>((begun) => {
        const begins = (x: string) => {
            id = x;
            begun();
        };
        void ask(said, [], path.value.at(-1)?.id ?? "", begins).catch(failed).finally(begun);
    });
    return id;
}

export function Composer() {
    const id = current.value?.id ?? "";
    const box = useRef<HTMLTextAreaElement>(null);
    const picker = useRef<HTMLInputElement>(null);
    const [text, setText] = useState(kept(draftName(id)) ?? "");
    const [files, setFiles] = useState<Attachment[]>([]);
    const [over, setOver] = useState(false);
    const timer = useRef(0);

    useEffect(() => {
        setText(kept(draftName(id)) ?? "");
        setFiles([]);
    }, [id]);
    useEffect(() => {
        box.current?.focus();
    }, [focusComposer.value, id]);
    useEffect(() => {
        const el = box.current!;
        el.rows = 1;
        const line = 24;
        el.rows = Math.max(1, Math.min(12, Math.ceil((el.scrollHeight - 16) / line)));
    }, [text]);

    const change = (value: string) => {
        setText(value);
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => keep(draftName(id), value), 250);
    };
    const add = async (list: Iterable<File>) => {
        for (const file of list) {
            try {
                if (file.type.startsWith("image/") && !sees.value) throw new Error(t("file.blind", { name: file.name, model: model.value }));
                const a = await attach(file);
                setFiles((before) => [...before, a]);
            } catch (e) {
                say(String((e as Error).message));
            }
        }
    };
    const submit = () => {
        const what = text.trim();
        if ((!what && !files.length) || writing.value) return;
        clearTimeout(timer.current);
        keep(draftName(id), null);
        setText("");
        setFiles([]);
        void ask(what, files, path.value.at(-1)?.id ?? "");
    };
    // What is said goes into the message. In a spoken conversation it is sent, the answer is read aloud while it is written,
    // and the microphone listens on: who speaks interrupts the voice.
    const talk = async () => {
        hush();
        try {
            for (;;) {
                const said = await listen(hush);
                if (!said) {
                    if (!settings.value.talk) say(t("mic.empty"));
                    return;
                }
                if (!settings.value.talk) return change(text.trim() ? `${text.trimEnd()} ${said}` : said);
                const id = await answerOf(said);
                if (!id) return;
                follow(id, () => {
                    const turn = tree.value.turns.get(id);
                    return turn ? { text: turn.text, whole: writing.value !== id } : null;
                });
            }
        } catch (e) {
            say((e as Error).name === "NotAllowedError" || (e as Error).name === "NotFoundError" ? t("mic.none", { why: (e as Error).message }) : String((e as Error).message));
        } finally {
            recording.value = "";
        }
    };
    const onKey = (e: KeyboardEvent) => {
        if (e.key === "Enter" && !e.isComposing && (settings.value.enterSends ? !e.shiftKey : e.ctrlKey || e.metaKey)) {
            e.preventDefault();
            submit();
        }
        if (e.key === "ArrowUp" && !text) {
            const last = [...document.querySelectorAll<HTMLElement>(".turn.user")].at(-1);
            last?.querySelector<HTMLElement>(`[aria-label="${t("turn.edit")}"]`)?.click();
            e.preventDefault();
        }
    };
    return (
        <form
            class={`composer ${over ? "over" : ""}`}
            onSubmit={(e) => {
                e.preventDefault();
                submit();
            }}
            onDragOver={(e) => {
                e.preventDefault();
                setOver(true);
            }}
            onDragLeave={() => setOver(false)}
            onDrop={(e) => {
                e.preventDefault();
                setOver(false);
                void add(e.dataTransfer?.files ?? []);
            }}
        >
            {files.length ? (
                <ul class="files">
                    {files.map((f, i) => (
                        <li key={i} class="chip">
                            {f.url ? <img src={f.url} alt="" /> : <Icon name="clip" />}
                            {f.name} <span class="quiet">{bytes(f.bytes)}</span>
                            <IconButton icon="close" name={t("file.remove", { name: f.name })} act={() => setFiles(files.filter((_, k) => k !== i))} />
                        </li>
                    ))}
                </ul>
            ) : null}
            <div class="composer-row">
                <IconButton icon="clip" name={t("file.add")} act={() => picker.current?.click()} />
                <input
                    ref={picker}
                    type="file"
                    multiple
                    class="offscreen"
                    tabIndex={-1}
                    aria-label={t("file.add")}
                    onChange={(e) => {
                        void add([...(e.currentTarget.files ?? [])]);
                        e.currentTarget.value = "";
                    }}
                />
                <textarea
                    ref={box}
                    id="composer"
                    rows={1}
                    value={text}
                    placeholder={t("composer.hint")}
                    aria-label={t("composer")}
                    onInput={(e) => change(e.currentTarget.value)}
                    onKeyDown={onKey}
                    onPaste={(e) => {
                        const list = e.clipboardData?.files;
                        if (!list?.length) return;
                        e.preventDefault();
                        void add(list);
                    }}
                />
                {hosts.value.transcriptions ? (
                    recording.value === "on" ? (
                        <IconButton icon="stop" name={t("mic.stop")} kind="recording" pressed act={endRecording} />
                    ) : (
                        <IconButton icon="mic" name={t(recording.value === "sent" ? "mic.wait" : "mic.start")} disabled={recording.value !== ""} act={() => void talk()} />
                    )
                ) : null}
                {writing.value ? (
                    <IconButton icon="stop" name={t("stop")} kind="round primary" act={stop} />
                ) : (
                    <IconButton icon="send" name={t("send")} kind="round primary" disabled={!text.trim() && !files.length} act={submit} />
                )}
            </div>
        </form>
    );
}
