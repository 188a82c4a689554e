// Ramp.tsx: a model made smaller: the goal, the search's progress, and what came of it.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { bytes, language, number, t, type Word } from "../i18n";
import { ApiError, lines, maybe, send } from "../lib/api";
import { attach } from "../lib/files";
import { failed, say } from "../lib/state";
import { Dialog } from "./Dialog";
import { Tile } from "./Screen";

interface Step {
    step: string;
    done: number;
    total: number;
}
interface Made {
    name: string;
    bytes: number;
    bpw: number;
    predicted: number;
    measured?: number | null; // without these if it was only predicted
    start?: number | null;
    generations?: number;
    pareto?: string;
    heat?: string;
}
interface Job {
    model: string;
    out: string;
    at: Step | null;
    made: Made | null;
    error: string;
    abort: AbortController | null; // while it runs
}

// The server makes one at a time. It goes on while the dialog is closed.
const job = signal<Job | null>(null);
let isOpen = false;

async function make(model: string, out: string, want: Record<string, unknown>, done: () => void): Promise<void> {
    const abort = new AbortController();
    const tell = (news: Partial<Job>) => (job.value = { ...job.value!, ...news });
    job.value = { model, out, at: null, made: null, error: "", abort };
    try {
        const res = await send("POST", "/chimere/v1/ramp", { model, out, ...want }, abort.signal);
        for await (const line of lines(res)) {
            const l = line as any;
            if (l.error) tell({ error: l.error.message });
            else if (l.name) tell({ made: l });
            else tell({ at: l });
        }
        if (!job.value.made && !job.value.error) tell({ error: t("ramp.cut") });
    } catch (e) {
        const offline = e instanceof ApiError && e.code === "offline";
        if (abort.signal.aborted) tell({ error: t("ramp.stopped") });
        else tell({ error: offline ? t("offline") : e instanceof ApiError ? e.message : t("ramp.cut") });
    }
    tell({ abort: null });
    if (!isOpen) say(job.value.error || t("ramp.made", { name: out }));
    done();
}

type Goal = "bpw" | "size" | "card";
interface Card {
    name: string;
    bytes: number;
}
// The model's own name without its folder and its type, and the goal.
function suggested(model: string, goal: string): string {
    const base = model.replace(/^.*\//, "").replace(/[-.](BF16|F16|F32|I?Q\d\w*|MXFP4)$/i, "");
    return `${base}-${goal}`.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[.-]+/, "").slice(0, 100);
}
const focus = (el: HTMLElement | null) => void el?.focus();

function Form({ model, hidden, error, done }: { model: string; hidden: boolean; error: string; done: () => void }) {
    const [cards, setCards] = useState<Card[]>([]);
    const [goal, setGoal] = useState<Goal>("bpw");
    const [bpw, setBpw] = useState("3.5");
    const [size, setSize] = useState("");
    const [card, setCard] = useState("");
    const [name, setName] = useState<string | null>(null); // null: as suggested
    const [text, setText] = useState("");
    const [wrong, setWrong] = useState("");
    useEffect(() => void maybe<{ cards: Card[] }>("/chimere/v1/ramp").then((r) => {
        setCards(r?.cards ?? []);
        setCard(r?.cards[0]?.name ?? "");
    }).catch(failed), []);
    const tidy = size.trim().replace(",", ".").replace(/\s+/g, "");
    const out = name ?? suggested(model, goal === "bpw" ? `${bpw}bpw` : goal === "size" ? tidy || "size" : card);
    const read = async (file: File | undefined) => {
        setText("");
        setWrong("");
        if (!file) return;
        try {
            if (!/\.(txt|md)$/i.test(file.name)) throw new Error(t("ramp.text.type", { name: file.name }));
            setText((await attach(file)).text ?? "");
        } catch (e) {
            setWrong((e as Error).message);
        }
    };
    const start = (form: HTMLFormElement) => {
        const said = new FormData(form);
        void make(model, out, {
            ...(goal === "bpw" ? { bpw: Number(bpw) } : goal === "size" ? { size: tidy } : { card, ctx: Number(said.get("ctx")) }),
            mode: said.get("mode"),
            predict: said.has("predict"),
            ...(text ? { text } : {}),
        }, done);
    };
    const goals: Goal[] = cards.length ? ["bpw", "size", "card"] : ["bpw", "size"];
    return (
        <form hidden={hidden} aria-label={t("ramp.make.this", { name: model })} onSubmit={(e) => { e.preventDefault(); if (!wrong) start(e.currentTarget); }}>
            <p class="quiet">{t("ramp.about")}</p>
            <fieldset class="goals">
                <legend>{t("ramp.goal")}</legend>
                {goals.map((g) => (
                    <label class="switch" key={g}>
                        <input type="radio" name="goal" value={g} checked={goal === g} onChange={() => setGoal(g)} />
                        <span>{t(`ramp.goal.${g}` as Word)}</span>
                    </label>
                ))}
            </fieldset>
            <div class="grid-2">
                {goal === "bpw" ? (
                    <label class="field"><span>{t("ramp.bpw")}</span><input type="number" required min="0.5" max="32" step="any" value={bpw} onInput={(e) => setBpw(e.currentTarget.value)} /></label>
                ) : goal === "size" ? (
                    <label class="field"><span>{t("ramp.size")}</span><input type="text" required pattern="\s*[0-9]+([.,][0-9]+)?\s*[KMGTkmgt]?\s*" placeholder="14.2G" value={size} onInput={(e) => setSize(e.currentTarget.value)} /></label>
                ) : (
                    <>
                        <label class="field">
                            <span>{t("ramp.card")}</span>
                            <select value={card} onChange={(e) => setCard(e.currentTarget.value)}>
                                {cards.map((c) => <option key={c.name} value={c.name}>{c.name} ({bytes(c.bytes)})</option>)}
                            </select>
                        </label>
                        <label class="field"><span>{t("ramp.ctx")}</span><input name="ctx" type="number" required min="256" max="16777216" step="1" defaultValue="32768" /></label>
                    </>
                )}
            </div>
            <label class="field"><span>{t("ramp.name")}</span><input type="text" required maxLength={100} pattern="[A-Za-z0-9_][A-Za-z0-9._\-]*" autocomplete="off" value={out} onInput={(e) => setName(e.currentTarget.value || null)} /></label>
            <label class="field">
                <span>{t("ramp.mode")}</span>
                <select name="mode">
                    <option value="portable">{t("ramp.mode.portable")}</option>
                    <option value="chimere">{t("ramp.mode.chimere")}</option>
                </select>
            </label>
            <label class="field"><span>{t("ramp.text")}</span><input type="file" accept=".txt,.md" onChange={(e) => void read(e.currentTarget.files?.[0])} /></label>
            <label class="switch"><input type="checkbox" name="predict" /><span>{t("ramp.predict")}</span></label>
            {wrong || error ? <p class="error" role="alert">{wrong || error}</p> : null}
            <div class="row end"><button type="submit" class="button primary" ref={hidden ? null : focus}>{t("ramp.start")}</button></div>
        </form>
    );
}

function Running({ j }: { j: Job }) {
    const step = j.at?.step ? (t(`ramp.step.${j.at.step}` as Word) ?? j.at.step) : t("ramp.starts");
    const known = !!j.at?.total;
    return (
        <>
            <p>{t("ramp.making", { model: j.model, name: j.out })}</p>
            <div class="ramp-step">
                <span role="status">{step}</span>
                {known ? <span class="quiet">{number((100 * j.at!.done) / j.at!.total)} %</span> : null}
            </div>
            <progress aria-label={step} max={known ? j.at!.total : 1} {...(known ? { value: j.at!.done } : {})} />
            <p class="quiet">{t("ramp.goes.on")}</p>
            <div class="row end"><button type="button" class="button" ref={focus} onClick={() => j.abort?.abort()}>{t("ramp.stop")}</button></div>
        </>
    );
}

// A picture of the server: as an image, none of it runs.
function Picture({ name, svg }: { name: string; svg: string }) {
    const url = useMemo(() => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`, [svg]);
    return (
        <figure class="ramp-picture">
            <figcaption>{name}</figcaption>
            <img src={url} alt={name} />
        </figure>
    );
}
function Result({ made, close }: { made: Made; close: () => void }) {
    const kl = (n: number) => n.toLocaleString(language.value, { maximumSignificantDigits: 3 });
    return (
        <>
            <p class="good" tabIndex={-1} ref={focus}>{t("ramp.made", { name: made.name })}</p>
            <dl class="tiles">
                <Tile name={t("docs.size")} value={bytes(made.bytes)} />
                <Tile name={t("ramp.bpw")} value={number(made.bpw, 3)} />
                <Tile name={t("ramp.predicted")} value={kl(made.predicted)} />
                {made.start == null ? null : <Tile name={t("ramp.before")} value={kl(made.start)} />}
                {made.measured == null ? null : <Tile name={t("ramp.after")} value={kl(made.measured)} note={t("ramp.generations", { n: made.generations ?? 0 })} />}
            </dl>
            <p class="quiet">{t("ramp.divergence.about")}</p>
            {made.pareto ? <Picture name={t("ramp.pareto")} svg={made.pareto} /> : null}
            {made.heat ? <Picture name={t("ramp.heat")} svg={made.heat} /> : null}
            <div class="row end"><button type="button" class="button primary" onClick={close}>{t("close")}</button></div>
        </>
    );
}

export default function Ramp({ model, close, done }: { model: string; close: () => void; done: () => void }) {
    const all = job.value;
    const j = all && (all.abort || all.model === model) ? all : null;
    useEffect(() => {
        isOpen = true;
        return () => {
            isOpen = false;
            if (!job.value?.abort) job.value = null; // what came of it was seen
        };
    }, []);
    return (
        <Dialog title={t("ramp.title", { name: j?.model ?? model })} close={close} kind={j?.made ? "wide" : undefined}>
            <div class="ramp">
                {j?.made ? null : <Form model={model} hidden={!!j?.abort} error={j?.error ?? ""} done={done} />}
                {j?.abort ? <Running j={j} /> : j?.made ? <Result made={j.made} close={close} /> : null}
            </div>
        </Dialog>
    );
}
