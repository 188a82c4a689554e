// Pipelines.tsx: the texts that say how the orchestrator answers: edited, checked by the server while one types, drawn, tried.
import "../style/artifact.css";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { t } from "../i18n";
import { maybe, post, remove } from "../lib/api";
import { failed, say } from "../lib/state";
import { graphOf } from "../lib/steps";
import { Graph } from "./Graph";
import { Screen, Values } from "./Screen";

interface Pipeline {
    name: string;
    about: string;
    text: string | null;
}
interface List {
    folder: string;
    can_write: boolean;
    problem: string;
    data: Pipeline[];
}
interface Check {
    ok: boolean;
    line?: number;
    message?: string;
}
const WAIT_MS = 350;
const path = (name: string) => `/chimere/v1/pipelines/${encodeURIComponent(name)}`;

function Editor({ pipeline, isNew, canWrite, took }: { pipeline: Pipeline; isNew: boolean; canWrite: boolean; took: (list: List, name: string) => void }) {
    const saved = pipeline.text ?? "";
    const [text, setText] = useState(saved);
    const [checked, setChecked] = useState<(Check & { of: string }) | null>(null);
    const check = checked?.of === text ? checked : null; // what was said of another text does not count
    const [asked, setAsked] = useState(false);
    const area = useRef<HTMLTextAreaElement>(null);
    const graph = useMemo(() => graphOf(text), [text]);
    useEffect(() => {
        const stop = new AbortController();
        const timer = window.setTimeout(() => post<Check>("/chimere/v1/pipelines/check", { name: pipeline.name, text }, stop.signal).then((c) => setChecked({ ...c, of: text }), (e) => e.name !== "AbortError" && failed(e)), WAIT_MS);
        return () => {
            clearTimeout(timer);
            stop.abort();
        };
    }, [text]);
    const goTo = (line: number) => {
        const from = text.split("\n").slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
        const end = text.indexOf("\n", from);
        area.current?.focus();
        area.current?.setSelectionRange(from, end < 0 ? text.length : end);
        if (area.current) area.current.scrollTop = Math.max(0, (line - 6) * (area.current.scrollHeight / Math.max(1, text.split("\n").length)));
    };
    const act = async (what: () => Promise<List>, said: string, name: string) => {
        try {
            took(await what(), name);
            say(said);
        } catch (e) {
            failed(e);
        }
    };
    const name = pipeline.name;
    const changed = isNew || text !== saved;
    return (
        <>
            <label class="field">
                <span>{t("pipe.text", { name })}{changed ? <em class="quiet"> · {t("pipe.changed")}</em> : null}</span>
                <textarea ref={area} class="editor" rows={20} wrap="off" spellcheck={false} value={text} onInput={(e) => setText(e.currentTarget.value)} aria-invalid={check?.ok === false} aria-describedby="pipe-check" />
            </label>
            <p id="pipe-check" role="status" class={!check ? "quiet" : check.ok ? "good" : "bad"}>
                {!check ? t("pipe.checking") : check.ok ? t("pipe.ok") : check.line ? t("pipe.bad", { line: check.line, text: check.message ?? "" }) : t("pipe.bad.whole", { text: check.message ?? "" })}
            </p>
            <div class="row">
                {check?.line ? <button type="button" class="button" onClick={() => goTo(check.line!)}>{t("pipe.goto", { line: check.line })}</button> : null}
                <button type="button" class="button primary" disabled={!changed || !check?.ok || !canWrite} onClick={() => void act(() => post(path(name), { text }), t("pipe.saved", { name }), name)}>{t("pipe.save")}</button>
                {changed && !isNew ? <button type="button" class="button" onClick={() => setText(saved)}>{t("pipe.revert")}</button> : null}
                {isNew || name === "default" || !canWrite ? null : asked ? (
                    <>
                        <button type="button" class="button" onClick={() => setAsked(false)}>{t("cancel")}</button>
                        <button type="button" class="button primary" onClick={() => void act(() => remove(path(name)), t("pipe.deleted", { name }), "default")}>{t("pipe.delete.sure", { name })}</button>
                    </>
                ) : <button type="button" class="button" onClick={() => setAsked(true)}>{t("pipe.delete")}</button>}
            </div>
            <Graph graph={graph} name={t("pipe.graph", { name })} />
        </>
    );
}

function Try({ names }: { names: string[] }) {
    const [result, setResult] = useState<Record<string, unknown> | null>(null);
    const submit = async (form: HTMLFormElement) => {
        const data = new FormData(form);
        const route = data.get("route") as string;
        try {
            setResult(await post("/chimere/v1/explain", { question: data.get("question"), ...(route ? { odo: { route } } : {}) }));
        } catch (e) {
            setResult(null);
            failed(e);
        }
    };
    return (
        <>
            <p class="quiet">{t("pipe.try.about")}</p>
            <form class="row" onSubmit={(e) => { e.preventDefault(); void submit(e.currentTarget); }}>
                <label class="field"><span>{t("pipe.question")}</span><input name="question" type="text" required maxLength={4000} /></label>
                <label class="field">
                    <span>{t("pipe.with")}</span>
                    <select name="route">
                        <option value="">{t("pipe.any")}</option>
                        {names.map((n) => <option key={n} value={n}>{n}</option>)}
                    </select>
                </label>
                <button type="submit" class="button primary">{t("pipe.decide")}</button>
            </form>
            {result ? <div class="card steps" role="region" aria-label={t("step.decision")}><Values of={result} /></div> : null}
        </>
    );
}

const fresh = (name: string): Pipeline => ({ name, about: "", text: `name: ${name}\nabout: \nprompt: |\n  Answer briefly.\ntools: [calculator]\nenrich:\n  documents: true\n` });
export default function Pipelines() {
    const [list, setList] = useState<List | null | undefined>(undefined);
    const [shown, setShown] = useState<{ pipeline: Pipeline; isNew: boolean; turn: number } | null>(null);
    const take = (l: List | null, name: string) => {
        setList(l);
        const p = l?.data.find((x) => x.name === name) ?? l?.data[0];
        setShown(p ? { pipeline: p, isNew: false, turn: Date.now() } : null);
    };
    useEffect(() => void maybe<List>("/chimere/v1/pipelines").then((l) => take(l, "default")).catch(failed), []);
    return (
        <Screen title={t("screen.pipelines")}>
            <p class="quiet">{t("pipe.about")}</p>
            {!list ? <p class="quiet">{list === null ? t("admin.only") : t("loading")}</p> : (
                <>
                    {list.problem ? <p class="error" role="alert">{t("pipe.problem", { text: list.problem })}</p> : null}
                    {list.can_write ? null : <p class="quiet">{t("pipe.readonly", { folder: list.folder })}</p>}
                    <div class="row" role="group" aria-label={t("pipe.list")}>
                        {[...list.data].sort((a, b) => a.name.localeCompare(b.name)).map((p) => (
                            <button key={p.name} type="button" class="button" title={p.about} aria-pressed={shown?.pipeline.name === p.name} onClick={() => setShown({ pipeline: p, isNew: false, turn: Date.now() })}>{p.name}</button>
                        ))}
                    </div>
                    {list.can_write ? (
                        <form class="row" onSubmit={(e) => {
                            e.preventDefault();
                            const name = String(new FormData(e.currentTarget).get("name")).trim();
                            e.currentTarget.reset();
                            setShown({ pipeline: list.data.find((p) => p.name === name) ?? fresh(name), isNew: !list.data.some((p) => p.name === name), turn: Date.now() });
                        }}>
                            <label class="field"><span>{t("pipe.new.name")}</span><input name="name" type="text" required maxLength={48} pattern="[A-Za-z0-9][A-Za-z0-9_\-]*" /></label>
                            <button type="submit" class="button">{t("pipe.new")}</button>
                        </form>
                    ) : null}
                    {shown ? <Editor key={`${shown.pipeline.name} ${shown.turn}`} pipeline={shown.pipeline} isNew={shown.isNew} canWrite={list.can_write} took={take} /> : null}
                    <h2>{t("pipe.try")}</h2>
                    <Try names={list.data.map((p) => p.name)} />
                </>
            )}
        </Screen>
    );
}
