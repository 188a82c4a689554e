// Knowledge.tsx: what the server knows of its owner: documents, and facts that it was told.
import { useEffect, useState } from "preact/hooks";
import { number, t, when } from "../i18n";
import { maybe, post, remove } from "../lib/api";
import { current, failed } from "../lib/state";
import { collections, Documents } from "./Documents";
import { Engram } from "./Engram";
import { IconButton } from "./icons";
import { Screen } from "./Screen";

interface Fact {
    id: number;
    kind: string;
    text: string;
    pinned: boolean;
}
const focus = (el: HTMLElement | null) => void el?.focus();
function FactCard({ fact, load }: { fact: Fact; load: () => void }) {
    const [text, setText] = useState<string | null>(null);
    const act = async (what: () => Promise<unknown>) => {
        try {
            await what();
            setText(null);
        } catch (e) {
            failed(e);
        }
        load();
    };
    const path = `/v1/memory/${fact.id}`;
    return (
        <li class="card">
            {text === null ? (
                <div class="card-head">
                    <span>{fact.text}</span>
                    {fact.kind === "fact" ? null : <span class="quiet">{t("memory.talk")}</span>}
                    <IconButton icon="pin" name={fact.pinned ? t("memory.unpin", { text: fact.text }) : t("memory.pin", { text: fact.text })} pressed={fact.pinned} act={() => void act(() => post(path, { pinned: !fact.pinned }))} />
                    {fact.kind === "fact" ? <IconButton icon="edit" name={t("memory.edit", { text: fact.text })} act={() => setText(fact.text)} /> : null}
                    <IconButton icon="trash" name={t("memory.forget", { text: fact.text })} act={() => void act(() => remove(path))} />
                </div>
            ) : (
                <form class="row" onSubmit={(e) => { e.preventDefault(); void act(() => post(path, { text })); }}>
                    <label class="field">
                        <span>{t("memory.text")}</span>
                        <input type="text" value={text} maxLength={900} ref={focus} onInput={(e) => setText(e.currentTarget.value)} />
                    </label>
                    <button type="button" class="button" onClick={() => setText(null)}>{t("cancel")}</button>
                    <button type="submit" class="button primary">{t("save")}</button>
                </form>
            )}
        </li>
    );
}

function Memory() {
    const [facts, setFacts] = useState<Fact[] | null | undefined>(undefined);
    const [text, setText] = useState("");
    const load = () => void maybe<{ data: Fact[] }>("/v1/memory").then((x) => setFacts(x ? x.data : null)).catch(failed);
    useEffect(load, []);
    if (facts === null) return <p class="quiet">{t("memory.none.here")}</p>;
    const add = async () => {
        try {
            await post("/v1/memory", { text });
            setText("");
        } catch (e) {
            failed(e);
        }
        load();
    };
    return (
        <>
            <form class="row" onSubmit={(e) => { e.preventDefault(); if (text.trim()) void add(); }}>
                <label class="field">
                    <span>{t("memory.new")}</span>
                    <input type="text" value={text} maxLength={900} onInput={(e) => setText(e.currentTarget.value)} />
                </label>
                <button type="submit" class="button primary">{t("memory.remember")}</button>
            </form>
            {facts?.length ? (
                <ul class="cards" aria-label={t("memory")}>
                    {facts.slice(0, 500).map((f) => <FactCard key={f.id} fact={f} load={load} />)}
                </ul>
            ) : (
                <p class="quiet">{facts ? t("memory.empty") : t("loading")}</p>
            )}
        </>
    );
}

interface Example {
    id: number;
    at_ms: number;
    question: string;
    answer: string;
    worth: number;
}
function Examples() {
    const [list, setList] = useState<Example[] | null | undefined>(undefined);
    useEffect(() => void maybe<{ examples: Example[] }>("/chimere/v1/quality").then((x) => setList(x ? [...x.examples].reverse() : null)).catch(failed), []);
    if (!list) return <p class="quiet">{list === null ? t("admin.only") : t("loading")}</p>;
    if (!list.length) return <p class="quiet">{t("examples.none")}</p>;
    return (
        <ul class="cards" aria-label={t("examples")}>
            {list.map((x) => (
                <li class="card" key={x.id}>
                    <div class="card-head">
                        <strong>{x.question.slice(0, 300)}</strong>
                        <span class="quiet">{t("examples.worth", { n: number(x.worth * 100), at: when(x.at_ms) })}</span>
                    </div>
                    <blockquote class="passage" tabIndex={0}>{x.answer}</blockquote>
                </li>
            ))}
        </ul>
    );
}

// Which collection is shown and added to; "": all that the key reads, and the shared one.
function Library() {
    const [at, setAt] = useState("");
    const [known, setKnown] = useState<string[]>([]);
    const [name, setName] = useState("");
    const c = current.value;
    const names = [...new Set([...known, ...(at ? [at] : [])])].filter((x) => !x.startsWith("chat:"));
    return (
        <>
            <label class="field">
                <span>{t("docs.collection")}</span>
                <select value={at} onChange={(e) => setAt(e.currentTarget.value)}>
                    <option value="">{t("docs.all")}</option>
                    {names.map((x) => <option key={x} value={x}>{x}</option>)}
                    {c ? <option value={`chat:${c.id}`}>{t("docs.chat", { name: c.title || t("chat.untitled") })}</option> : null}
                </select>
            </label>
            <form class="row" onSubmit={(e) => { e.preventDefault(); if (name.trim()) setAt(`my:${name.trim()}`); setName(""); }}>
                <label class="field">
                    <span>{t("docs.new")}</span>
                    <input type="text" value={name} maxLength={40} onInput={(e) => setName(e.currentTarget.value)} />
                </label>
                <button type="submit" class="button">{t("docs.make")}</button>
            </form>
            <p class="quiet">{t("docs.private")}</p>
            <Documents collection={at} target={async () => at} changed={() => void collections().then(setKnown, failed)} />
        </>
    );
}

export default function Knowledge() {
    return (
        <Screen title={t("screen.knowledge")}>
            <h2>{t("docs")}</h2>
            <Library />
            <h2>{t("memory")}</h2>
            <p class="quiet">{t("memory.about")}</p>
            <Memory />
            <h2>{t("examples")}</h2>
            <p class="quiet">{t("examples.about")}</p>
            <Examples />
            <h2>{t("engram")}</h2>
            <p class="quiet">{t("engram.about")}</p>
            <Engram />
        </Screen>
    );
}
