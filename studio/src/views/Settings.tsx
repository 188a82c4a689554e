// Settings.tsx: appearance, language, the key, files of conversations.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { t, type Word } from "../i18n";
import { needsKey, readKey, useKey } from "../lib/api";
import { importFile } from "../lib/exchange";
import { change, settings, storageFull, type Settings } from "../lib/settings";
import { hosts } from "../lib/audio";
import { voices } from "../lib/speech";
import { failed, loadConversations, loadModels, say } from "../lib/state";
import { Dialog } from "./Dialog";

export const settingsOpen = signal(false);

function Choose<K extends "theme" | "language">({ name, options }: { name: K; options: Settings[K][] }) {
    return (
        <label class="field">
            <span>{t(`settings.${name}` as Word)}</span>
            <select value={settings.value[name]} onChange={(e) => change({ [name]: e.currentTarget.value } as Partial<Settings>)}>
                {options.map((o) => (
                    <option key={o} value={o}>{t(`settings.${name}.${o}` as Word)}</option>
                ))}
            </select>
        </label>
    );
}
function Switch({ name }: { name: "enterSends" | "announce" | "showSteps" | "talk" }) {
    return (
        <label class="switch">
            <input type="checkbox" checked={settings.value[name]} onChange={(e) => change({ [name]: e.currentTarget.checked })} />
            <span>{t(`settings.${name}` as Word)}</span>
        </label>
    );
}

function Voices() {
    const { speech, transcriptions } = hosts.value;
    if (!voices.value.length && !speech) return <p class="quiet">{t("settings.voice.none")}</p>;
    const named = [...voices.value].sort((a, b) => a.lang.localeCompare(b.lang) || a.name.localeCompare(b.name));
    return (
        <>
            <label class="field">
                <span>{t("settings.voice")}</span>
                <select value={settings.value.voice} onChange={(e) => change({ voice: e.currentTarget.value })}>
                    {speech ? <option value="">{t("settings.voice.server", { host: speech })}</option> : <option value="">{t("settings.voice.auto")}</option>}
                    {named.map((v) => (
                        <option key={v.voiceURI} value={v.voiceURI}>{v.localService ? `${v.name} (${v.lang})` : t("settings.voice.out", { name: v.name, lang: v.lang })}</option>
                    ))}
                </select>
            </label>
            {voices.value.length ? <p class="quiet">{t("settings.voice.about")}</p> : null}
            {transcriptions ? <Switch name="talk" /> : null}
        </>
    );
}

export function KeyForm({ done, focus }: { done: () => void; focus?: boolean }) {
    const [remember, setRemember] = useState(false);
    const field = useRef<HTMLInputElement>(null);
    useEffect(() => {
        if (focus) field.current?.select();
    }, []);
    const submit = async (form: HTMLFormElement) => {
        useKey(((new FormData(form).get("key") as string) ?? "").trim(), remember);
        try {
            await loadModels();
            await loadConversations();
            done();
        } catch (e) {
            failed(e);
        }
    };
    return (
        <form
            onSubmit={(e) => {
                e.preventDefault();
                void submit(e.currentTarget);
            }}
        >
            <label class="field">
                <span>{t("key")}</span>
                <input name="key" type="password" autocomplete="off" defaultValue={readKey()} placeholder="sk-chimere-…" ref={field} />
            </label>
            <label class="switch">
                <input type="checkbox" checked={remember} onChange={(e) => setRemember(e.currentTarget.checked)} />
                <span>{t("key.remember")}</span>
            </label>
            <div class="row end">
                <button type="submit" class="button primary">{t("key.use")}</button>
            </div>
        </form>
    );
}

export function KeyDialog() {
    return (
        <Dialog title={t("key.needed")} close={() => (needsKey.value = false)}>
            {readKey() ? <p class="error" role="alert">{t("key.wrong")}</p> : null}
            <p class="quiet">{t("key.about")}</p>
            <KeyForm focus done={() => (needsKey.value = false)} />
        </Dialog>
    );
}

export function SettingsDialog() {
    const picker = useRef<HTMLInputElement>(null);
    return (
        <Dialog title={t("settings")} close={() => (settingsOpen.value = false)}>
            <section>
                <h3>{t("settings.look")}</h3>
                <div class="grid-2 roomy">
                    <Choose name="theme" options={["system", "light", "dark"]} />
                    <Choose name="language" options={["system", "en", "fr"]} />
                </div>
                <Switch name="enterSends" />
                <Switch name="showSteps" />
                <Switch name="announce" />
                {storageFull.value ? <p class="error">{t("storage.full")}</p> : null}
            </section>
            <section>
                <h3>{t("settings.aloud")}</h3>
                <Voices />
            </section>
            <section>
                <h3>{t("key")}</h3>
                <KeyForm done={() => say(t("key.taken"))} />
            </section>
            <section>
                <h3>{t("settings.files")}</h3>
                <p class="quiet">{t("settings.import.about")}</p>
                <button type="button" class="button" onClick={() => picker.current?.click()}>{t("settings.import")}</button>
                <input
                    ref={picker}
                    type="file"
                    accept=".json,.md,.markdown"
                    class="offscreen"
                    tabIndex={-1}
                    aria-label={t("settings.import")}
                    onChange={async (e) => {
                        const file = e.currentTarget.files?.[0];
                        if (!file) return;
                        try {
                            say(t("settings.imported", { n: await importFile(file) }));
                        } catch {
                            say(t("settings.import.unknown"));
                        }
                    }}
                />
            </section>
            <section>
                <h3>{t("settings.keys")}</h3>
                <dl class="shortcuts">
                    {(["palette", "new", "search", "sidebar", "rename", "stop"] as const).map((k) => (
                        <div key={k}>
                            <dt>{t(`keys.${k}` as Word)}</dt>
                            <dd><kbd>{t(`keys.${k}.press` as Word)}</kbd></dd>
                        </div>
                    ))}
                </dl>
            </section>
            <p class="quiet"><a href="/studio/licences.txt" target="_blank" rel="noopener">{t("settings.licences")}</a></p>
        </Dialog>
    );
}
