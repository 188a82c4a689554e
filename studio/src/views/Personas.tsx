// Personas.tsx: the user's personas: written, named, edited, deleted, and chosen for this conversation.
import { useState } from "preact/hooks";
import { t } from "../i18n";
import { MOST_NAME, MOST_TEXT, personas, removePersona, savePersona, type Persona } from "../lib/personas";
import { chat, failed, setChat } from "../lib/state";
import { Dialog } from "./Dialog";
import { Icon, IconButton } from "./icons";

const focus = (el: HTMLElement | null) => void el?.focus();

function Form({ of, done }: { of: Persona; done: (saved: Persona | null) => void }) {
    const [p, setP] = useState(of);
    const [error, setError] = useState("");
    const save = async () => {
        try {
            done(await savePersona(p));
        } catch (e) {
            setError((e as Error).message);
        }
    };
    return (
        <form class="persona-form" onSubmit={(e) => { e.preventDefault(); if (p.name.trim() && p.text.trim()) void save(); }}>
            <label class="field">
                <span>{t("persona.name")}</span>
                <input type="text" required value={p.name} maxLength={MOST_NAME} placeholder={t("persona.name.hint")} ref={of.id ? undefined : focus} onInput={(e) => setP({ ...p, name: e.currentTarget.value })} />
            </label>
            <label class="field">
                <span>{t("persona.text")}</span>
                <textarea required rows={7} value={p.text} maxLength={MOST_TEXT} placeholder={t("persona.text.hint")} onInput={(e) => setP({ ...p, text: e.currentTarget.value })} />
            </label>
            {error ? <p class="error" role="alert">{error}</p> : null}
            <div class="row end">
                <button type="button" class="button" onClick={() => done(null)}>{t("cancel")}</button>
                <button type="submit" class="button primary">{t("save")}</button>
            </div>
        </form>
    );
}

export default function Personas({ close }: { close: () => void }) {
    const [edited, setEdited] = useState<Persona | null>(null);
    const list = personas.value ?? [];
    const choose = (id: number) => setChat({ ownPersona: id });
    const drop = async (p: Persona) => {
        try {
            await removePersona(p.id);
            if (chat.value.ownPersona === p.id) choose(0);
        } catch (e) {
            failed(e);
        }
    };
    const done = (saved: Persona | null) => {
        if (saved && !edited!.id) choose(saved.id);
        setEdited(null);
    };
    return (
        <Dialog title={t("personas")} close={close}>
            <p class="quiet">{t("personas.about")}</p>
            {edited ? (
                <Form of={edited} done={done} />
            ) : (
                <>
                    {list.length ? (
                        <ul class="personas" aria-label={t("personas")}>
                            {list.map((p) => (
                                <li key={p.id}>
                                    <label>
                                        <input type="radio" name="persona" checked={chat.value.ownPersona === p.id} onChange={() => choose(p.id)} />
                                        <span><strong>{p.name}</strong><span class="quiet clip">{p.text}</span></span>
                                    </label>
                                    <IconButton icon="edit" name={t("persona.edit", { name: p.name })} act={() => setEdited(p)} />
                                    <IconButton icon="trash" name={t("persona.delete", { name: p.name })} act={() => void drop(p)} />
                                </li>
                            ))}
                            <li>
                                <label>
                                    <input type="radio" name="persona" checked={!list.some((p) => p.id === chat.value.ownPersona)} onChange={() => choose(0)} />
                                    <span>{t("persona.without")}</span>
                                </label>
                            </li>
                        </ul>
                    ) : (
                        <p>{t("personas.empty")}</p>
                    )}
                    <div class="row end">
                        <button type="button" class="button primary" onClick={() => setEdited({ id: 0, name: "", text: "" })}><Icon name="plus" />{t("persona.new")}</button>
                    </div>
                </>
            )}
        </Dialog>
    );
}
