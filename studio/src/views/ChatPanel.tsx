// ChatPanel.tsx: how this conversation is answered.
import { useEffect, useState } from "preact/hooks";
import { number, t, type Word } from "../i18n";
import { budgetOf } from "../lib/answer";
import { maybe } from "../lib/api";
import { personas } from "../lib/personas";
import { chat, failed, model, models, setChat } from "../lib/state";
import type { ChatSettings } from "../lib/settings";
import { IconButton } from "./icons";
import { opened } from "./Opened";

type Numeric = "temperature" | "top_p" | "top_k" | "min_p" | "max_tokens" | "seed" | "think_budget";
const numbers: [Numeric, number, number, number][] = [
    ["temperature", 0, 2, 0.05],
    ["top_p", 0, 1, 0.01],
    ["top_k", 0, 1000, 1],
    ["min_p", 0, 1, 0.01],
    ["max_tokens", 1, 1000000, 1],
    ["seed", 0, 4294967295, 1],
];

function Choice<K extends "effort" | "mode">({ name, options }: { name: K; options: ChatSettings[K][] }) {
    return (
        <label class="field">
            <span>{t(`chat.${name}` as Word)}</span>
            <select value={chat.value[name]} onChange={(e) => setChat({ [name]: e.currentTarget.value })}>
                {options.map((o) => (
                    <option key={o} value={o}>{t(`chat.${name}.${o || "auto"}` as Word)}</option>
                ))}
            </select>
        </label>
    );
}

function Count({ name, min, max, step, hint }: { name: Numeric; min: number; max: number; step: number; hint?: number | null }) {
    return (
        <label class="field">
            <span>{t(`chat.${name}` as Word)}</span>
            <input
                type="number"
                min={min}
                max={max}
                step={step}
                value={chat.value[name] ?? ""}
                placeholder={hint ? number(hint) : t("default")}
                onChange={(e) => {
                    const v = e.currentTarget.value === "" ? null : Number(e.currentTarget.value);
                    if (v === null || (v >= min && v <= max)) setChat({ [name]: v });
                }}
            />
        </label>
    );
}

export function ChatPanel({ close }: { close: () => void }) {
    const c = chat.value;
    const odo = /^odo(:|$)/.test(model.value);
    const [skills, setSkills] = useState<{ name: string; about: string }[]>([]);
    useEffect(() => {
        if (odo) maybe<{ data: { name: string; about: string }[] }>("/v1/skills").then((x) => setSkills(x?.data ?? []), failed);
    }, [odo]);
    return (
        <aside class="panel" aria-label={t("chat.settings")}>
            <header class="panel-head">
                <h2>{t("chat.settings")}</h2>
                <IconButton icon="close" name={t("close")} act={close} />
            </header>
            {personas.value ? (
                <div class="with-button">
                    <label class="field">
                        <span>{t("chat.persona")}</span>
                        <select value={String(personas.value.some((p) => p.id === c.ownPersona) ? c.ownPersona : 0)} onChange={(e) => setChat({ ownPersona: Number(e.currentTarget.value) })}>
                            <option value="0">{t("persona.none")}</option>
                            {personas.value.map((p) => <option key={p.id} value={String(p.id)}>{p.name}</option>)}
                        </select>
                    </label>
                    <IconButton icon="edit" name={t("personas.open")} act={() => (opened.value = { kind: "personas" })} />
                </div>
            ) : null}
            <label class="field">
                <span>{t("chat.system")}</span>
                <textarea rows={6} value={c.system} placeholder={t("chat.system.hint")} onChange={(e) => setChat({ system: e.currentTarget.value })} />
            </label>
            <Choice name="effort" options={["", "none", "low", "medium", "high"]} />
            {c.effort === "none" ? null : <Count name="think_budget" min={1} max={1000000} step={1} hint={budgetOf({ ...c, think_budget: null })} />}
            {odo ? (
                <>
                    <Choice name="mode" options={["", "fast", "quality", "ultra"]} />
                    <label class="field">
                        <span>{t("pipe.with")}</span>
                        <select value={model.value} onChange={(e) => setChat({ model: e.currentTarget.value })}>
                            {models.value.filter((m) => /^odo(:|$)/.test(m.id)).map((m) => <option key={m.id} value={m.id}>{m.id === "odo" ? t("pipe.any") : m.id.slice(4)}</option>)}
                        </select>
                    </label>
                    <label class="field">
                        <span>{t("chat.skill")}</span>
                        <select value={c.skill} onChange={(e) => setChat({ skill: e.currentTarget.value })}>
                            <option value="">{t("chat.skill.auto")}</option>
                            {c.skill && !skills.some((s) => s.name === c.skill) ? <option value={c.skill}>{c.skill}</option> : null}
                            {skills.map((s) => <option key={s.name} value={s.name}>{s.about ? t("pair", { name: s.name, value: s.about }) : s.name}</option>)}
                        </select>
                    </label>
                    <label class="field">
                        <span>{t("chat.persona.server")}</span>
                        <input type="text" value={c.persona} maxLength={64} placeholder={t("chat.persona.hint")} onChange={(e) => setChat({ persona: e.currentTarget.value.trim() })} />
                    </label>
                    <label class="switch">
                        <input type="checkbox" checked={c.askFirst} onChange={(e) => setChat({ askFirst: e.currentTarget.checked })} />
                        <span>{t("chat.askFirst")}</span>
                    </label>
                </>
            ) : null}
            <h3>{t("chat.sampling")}</h3>
            <div class="grid-2">
                {numbers.map(([name, min, max, step]) => (
                    <Count key={name} name={name} min={min} max={max} step={step} />
                ))}
            </div>
            <p class="quiet">{t("chat.sampling.hint")}</p>
        </aside>
    );
}
