// Bench.tsx: the speed of a model that answers, measured by requests of this page: prompts by length, answers at once.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { number, t, when, type Word } from "../i18n";
import { ApiError, send } from "../lib/api";
import { Dialog } from "./Dialog";

interface Row {
    n: number; // tokens of the prompt, or answers at once
    speed: number; // tokens per second
}
interface Result {
    at: number;
    prompts: Row[];
    answers: Row[];
}
interface Run {
    model: string;
    step: string;
    done: number;
    steps: number;
    result: Result;
    before: Result | null; // the run before this one
    error: string;
    abort: AbortController | null; // while it runs
}
interface Timings {
    prompt_per_second: number;
    predicted_n: number;
}
const PROMPTS = [128, 512, 2048, 8192];
const ANSWERS = [1, 2, 4, 8, 16];
const EACH = 64; // tokens of an answer
const SHORT = 16; // tokens of its prompt

const run = signal<Run | null>(null); // one at a time; it continues while the dialog is closed
const key = (model: string) => `chimere.bench.${model}`;

function last(model: string): Result | null {
    try {
        const r = JSON.parse(localStorage.getItem(key(model)) ?? "null") as Result | null;
        return r && typeof r.at === "number" && [r.prompts, r.answers].every((l) => Array.isArray(l) && l.every((x) => x.n > 0 && x.speed > 0)) ? r : null;
    } catch {
        return null; // storage is closed, or another program wrote there
    }
}
function keep(model: string, r: Result): void {
    try {
        localStorage.setItem(key(model), JSON.stringify(r));
    } catch {
        // storage is full: the next run has nothing to compare with
    }
}

// Tokens drawn at random, so that no cached prompt helps.
function tokens(n: number, vocab: number): number[] {
    const draws = crypto.getRandomValues(new Uint32Array(n));
    return Array.from(draws, (x) => Math.floor(vocab / 4) + (x % Math.max(1, Math.floor(vocab / 2))));
}
async function complete(model: string, prompt: number[], n: number, signal: AbortSignal): Promise<Timings> {
    const res = await send("POST", "/v1/completions", { model, prompt, max_tokens: n, ignore_eos: true, temperature: 0, cache_prompt: false }, signal);
    return ((await res.json()) as { timings: Timings }).timings;
}

async function measure(model: string, vocab: number, ctx: number, slots: number): Promise<void> {
    const abort = new AbortController();
    const prompts = PROMPTS.filter((n, i) => !i || n + SHORT < ctx);
    const answers = ANSWERS.filter((n) => n === 1 || n <= slots);
    const result: Result = { at: Date.now(), prompts: [], answers: [] };
    const tell = (news: Partial<Run>) => (run.value = { ...run.value!, ...news });
    let done = 0;
    run.value = { model, step: "", done, steps: prompts.length + answers.length, result, before: last(model), error: "", abort };
    try {
        await complete(model, tokens(SHORT, vocab), 1, abort.signal); // pages and graphs are warm after this
        for (const n of prompts) {
            tell({ step: t("bench.step.prompt", { n: number(n) }), done: done++ });
            const got = await complete(model, tokens(Math.min(n, ctx - SHORT), vocab), 1, abort.signal);
            result.prompts.push({ n, speed: got.prompt_per_second });
        }
        for (const n of answers) {
            tell({ step: t("bench.step.answers", { n: number(n) }), done: done++ });
            const from = performance.now();
            const all = await Promise.all(Array.from({ length: n }, () => complete(model, tokens(SHORT, vocab), EACH, abort.signal)));
            result.answers.push({ n, speed: all.reduce((sum, x) => sum + x.predicted_n, 0) / ((performance.now() - from) / 1000) });
        }
        keep(model, result);
        tell({ done });
    } catch (e) {
        const stopped = abort.signal.aborted;
        abort.abort(); // the other answers of this step
        tell({ error: stopped ? t("bench.stopped") : e instanceof ApiError && e.code !== "offline" ? e.message : t("offline") });
    }
    tell({ abort: null });
}

// Bars of one scale, each with its number; beside them, the change since the last run.
function Bars({ name, head, rows, before }: { name: string; head: Word; rows: Row[]; before: Row[] }) {
    if (!rows.length) return null;
    const top = Math.max(...rows.map((r) => r.speed), ...before.map((r) => r.speed));
    const change = (r: Row) => {
        const old = before.find((b) => b.n === r.n);
        const by = old ? Math.round((r.speed / old.speed - 1) * 100) : 0;
        return old ? `${by > 0 ? "+" : ""}${number(by)} %` : "";
    };
    return (
        <table class="bars">
            <caption>{name}</caption>
            <thead>
                <tr><th scope="col">{t(head)}</th><th scope="col" class="number">{t("insight.per.second")}</th><th scope="col"><span class="offscreen">{t("bench.chart")}</span></th><th scope="col" class="number">{before.length ? t("bench.change") : <span class="offscreen">{t("bench.change")}</span>}</th></tr>
            </thead>
            <tbody>
                {rows.map((r) => (
                    <tr key={r.n}>
                        <th scope="row" class="number">{number(r.n)}</th>
                        <td class="number">{number(r.speed, r.speed < 100 ? 1 : 0)}</td>
                        <td class="bar">
                            <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
                                <rect width={(r.speed / top) * 100} height="10" class="fill-1" />
                            </svg>
                        </td>
                        <td class="number quiet">{change(r)}</td>
                    </tr>
                ))}
            </tbody>
        </table>
    );
}

export default function Bench({ model, vocab, ctx, slots, close }: { model: string; vocab: number; ctx: number; slots: number; close: () => void }) {
    const mine = run.value?.model === model ? run.value : null;
    const busy = run.value?.abort ? run.value : null;
    useEffect(() => {
        if (!mine && !busy) void measure(model, vocab, ctx, slots);
    }, []);
    const shown = mine?.result ?? null;
    const before = mine?.before ?? null;
    return (
        <Dialog title={t("bench.title", { name: model })} close={close}>
            <div class="bench">
                <p class="quiet">{t("bench.about", { n: EACH })}</p>
                {busy && busy.model !== model ? <p class="error" role="alert">{t("bench.busy", { name: busy.model })}</p> : null}
                {mine?.abort ? (
                    <>
                        <p class="ramp-step" role="status"><span>{mine.step || t("loading")}</span></p>
                        <progress value={mine.done} max={mine.steps} aria-label={t("bench.title", { name: model })} />
                    </>
                ) : null}
                {mine?.error ? <p class="error" role="alert">{mine.error}</p> : null}
                {shown ? (
                    <>
                        <Bars name={t("bench.prompts")} head="bench.prompt.tokens" rows={shown.prompts} before={before?.prompts ?? []} />
                        <Bars name={t("bench.answers")} head="bench.at.once" rows={shown.answers} before={before?.answers ?? []} />
                        {before ? <p class="quiet">{t("bench.since", { when: when(before.at) })}</p> : null}
                    </>
                ) : null}
                <div class="row end">
                    {mine?.abort ? (
                        <button type="button" class="button" onClick={() => mine.abort?.abort()}>{t("bench.stop")}</button>
                    ) : (
                        <button type="button" class="button primary" disabled={!!busy} onClick={() => void measure(model, vocab, ctx, slots)}>{t("bench.again")}</button>
                    )}
                </div>
            </div>
        </Dialog>
    );
}
