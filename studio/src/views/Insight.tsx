// Insight.tsx: what the server does now, what it did, how the orchestrator decided, and what nights have learned.
import { useEffect, useState } from "preact/hooks";
import { named, number, t, when, type Word } from "../i18n";
import { maybe, send } from "../lib/api";
import { failed } from "../lib/state";
import { Nights } from "./Nights";
import { Line, Screen, Tile, Values } from "./Screen";

interface Times {
    count: number;
    p50_ms: number;
    p95_ms: number;
}
interface Status {
    uptime_s: number;
    models: { name: string; running: number; waiting: number; slots: number; step_ms: number; states: number }[];
    requests: { ok: number; refused: number; busy: number; failed: number; cancelled: number };
    tokens: { prompt: number; cached: number; generated: number };
    ttft: Times | null;
    queue: Times | null;
}
interface Request {
    id: number;
    at_ms: number;
    api: string;
    model: string;
    finish: string;
    status: number;
    prompt: number;
    cached: number;
    generated: number;
    queue_ms: number;
    prefill_ms: number;
    decode_ms: number;
}
interface Decision {
    id: number;
    at_ms: number;
    ms: number;
    failed: boolean;
    route: string;
    how: string;
    pipeline: string;
    mode: string;
    record: Record<string, any> | null;
}
const KEPT = 90; // points of the line, one every two seconds

// Sums of counters of /metrics, by name and, for some, by label.
interface Counters {
    drafted: number;
    accepted: number;
    joules: number;
    pooled: number;
    experts: number;
    hits: number;
    misses: number;
}
async function counters(): Promise<Counters> {
    const text = await (await send("GET", "/metrics")).text();
    const of = (name: string) => [...text.matchAll(new RegExp(`^chimere_${name}(?:\\{[^}]*\\})? ([0-9.e+]+)$`, "gm"))].reduce((n, m) => n + Number(m[1]), 0);
    return { drafted: of("drafted_tokens_total"), accepted: of("accepted_tokens_total"), joules: of("energy_joules_total"), pooled: of("experts_pooled"), experts: of("experts"), hits: of("expert_hits"), misses: of("expert_misses") };
}

function Live({ closed }: { closed: () => void }) {
    const [now, setNow] = useState<Status | null | undefined>(undefined);
    const [speeds, setSpeeds] = useState<number[]>([]);
    const [sums, setSums] = useState<Counters | null>(null);
    useEffect(() => {
        let last: { at: number; n: number } | null = null;
        const look = async () => {
            if (document.hidden) return;
            const s = await maybe<Status>("/v1/status").catch(() => undefined);
            if (s === undefined) return;
            setNow(s);
            if (!s) return closed();
            await counters().then(setSums, () => {});
            const at = performance.now();
            if (last) {
                const speed = (Math.max(0, s.tokens.generated - last.n) / (at - last.at)) * 1000;
                setSpeeds((list) => [...list, speed].slice(-KEPT));
            }
            last = { at, n: s.tokens.generated };
        };
        void look();
        const timer = window.setInterval(() => void look(), 2000);
        return () => clearInterval(timer);
    }, []);
    if (!now) return <p class="quiet">{t("loading")}</p>;
    const engines = now.models.filter((m) => !/^odo(:|$)/.test(m.name)); // odo answers with one of them
    const sum = (pick: (m: Status["models"][0]) => number) => (engines.length ? engines : now.models).reduce((n, m) => n + pick(m), 0);
    const prompt = now.tokens.prompt;
    return (
        <>
            <dl class="tiles">
                <Tile name={t("insight.running")} value={`${sum((m) => m.running)} / ${sum((m) => m.slots)}`} note={t("insight.waiting", { n: sum((m) => m.waiting) })} />
                <Tile name={t("insight.speed")} value={number(speeds.at(-1) ?? 0, 1)} note={t("insight.per.second")} />
                <Tile name={t("insight.answers")} value={number(now.ttft?.count ?? 0)} note={t("insight.failed", { n: now.requests.failed + now.requests.refused + now.requests.busy })} />
                <Tile name={t("insight.tokens")} value={number(now.tokens.generated)} note={t("insight.prompt", { n: number(prompt) })} />
                <Tile name={t("insight.cached")} value={prompt ? `${number((now.tokens.cached / prompt) * 100)} %` : "–"} />
                <Tile name={t("insight.first")} value={now.ttft ? `${number(now.ttft.p50_ms)} ms` : "–"} note={now.ttft ? t("insight.p95", { n: number(now.ttft.p95_ms) }) : undefined} />
                <Tile name={t("insight.states")} value={number(sum((m) => m.states))} />
                <Tile name={t("insight.drafts")} value={sums?.drafted ? `${number((sums.accepted / sums.drafted) * 100)} %` : "–"} note={sums?.drafted ? t("insight.drafts.of", { n: number(sums.drafted) }) : undefined} />
                {sums?.experts ? <Tile name={t("insight.experts")} value={`${number((sums.pooled / sums.experts) * 100)} %`} note={sums.hits + sums.misses ? t("insight.experts.hit", { n: number((sums.hits / (sums.hits + sums.misses)) * 100) }) : undefined} /> : null}
                <Tile name={t("insight.energy")} value={sums?.joules ? `${number(sums.joules / 3600, 1)} Wh` : "–"} note={!sums?.joules ? t("insight.energy.none") : now.tokens.generated ? t("insight.energy.token", { n: number(sums.joules / now.tokens.generated, 2) }) : undefined} />
                <Tile name={t("insight.uptime")} value={now.uptime_s < 7200 ? `${number(now.uptime_s / 60)} min` : `${number(now.uptime_s / 3600, 1)} h`} />
            </dl>
            {speeds.length > 1 ? <Line name={t("insight.speed.line", { n: number(Math.max(...speeds), 1) })} values={speeds} /> : null}
        </>
    );
}

// Where the time of a request went, against the longest of the list.
function Times_({ r, most }: { r: Request; most: number }) {
    const parts = [r.queue_ms, r.prefill_ms, r.decode_ms];
    const sum = parts.reduce((n, x) => n + x, 0);
    const speed = r.decode_ms > 0 && r.generated > 1 ? ` · ${t("figures.speed", { n: number((r.generated / r.decode_ms) * 1000) })}` : "";
    const said = t("insight.times", { queue: number(r.queue_ms), prefill: number(r.prefill_ms), decode: number(r.decode_ms) });
    let at = 0;
    return (
        <div class="times" title={said}>
            <svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label={said}>
                {parts.map((n, i) => {
                    const x = (at / most) * 1000;
                    at += n;
                    return <rect key={i} x={x} width={(n / most) * 1000} height="10" class={`fill-${i + 1}`} />;
                })}
            </svg>
            <span class="quiet">{number(sum)} ms{speed}</span>
        </div>
    );
}

function Requests() {
    const [list, setList] = useState<{ data: Request[]; is_recorded: boolean } | null | undefined>(undefined);
    const load = () => void maybe<{ data: Request[]; is_recorded: boolean }>("/chimere/v1/requests?limit=50").then(setList).catch(failed);
    useEffect(load, []);
    if (!list) return <p class="quiet">{list === null ? t("admin.only") : t("loading")}</p>;
    const most = Math.max(1, ...list.data.map((r) => r.queue_ms + r.prefill_ms + r.decode_ms));
    if (!list.data.length) return <p class="quiet">{list.is_recorded ? t("insight.requests.none") : t("insight.requests.off")}</p>;
    return (
        <>
            <div class="table-box" tabIndex={0} role="region" aria-label={t("insight.requests")}>
                <table>
                    <thead>
                        <tr>{(["insight.when", "insight.api", "model", "insight.end", "insight.prompt.tokens", "insight.generated", "insight.time"] as Word[]).map((w, i) => <th scope="col" key={w} class={`${i > 3 && i < 6 ? "number" : ""} ${i === 1 || i === 3 || i === 4 || i === 5 ? "wide-only" : ""}`}>{t(w)}</th>)}</tr>
                    </thead>
                    <tbody>
                        {list.data.map((r) => (
                            <tr key={r.id}>
                                <th scope="row" class="line-whole">{when(r.at_ms)}</th>
                                <td class="wide-only">{r.api.replace(/^\/v1\//, "")}</td>
                                <td class="line-whole">{r.model}</td>
                                <td class={`wide-only ${r.status >= 400 ? "bad" : ""}`}>{r.status >= 400 ? r.status : named("is", r.finish)}</td>
                                <td class="number wide-only">{number(r.prompt)}{r.cached ? <div class="quiet">{t("insight.cached.of", { n: number(r.cached) })}</div> : null}</td>
                                <td class="number wide-only">{number(r.generated)}</td>
                                <td><Times_ r={r} most={most} /></td>
                            </tr>
                        ))}
                    </tbody>
                </table>
            </div>
            <ul class="legend">
                {(["insight.queue", "insight.prefill", "insight.decode"] as Word[]).map((w, i) => <li key={w}><span class={`dot fill-${i + 1}`} />{t(w)}</li>)}
            </ul>
            <p><button type="button" class="button" onClick={load}>{t("insight.again")}</button></p>
        </>
    );
}

function DecisionCard({ d }: { d: Decision }) {
    const [open, setOpen] = useState(false);
    const r = d.record ?? {};
    const list = (x: unknown): Record<string, any>[] => (Array.isArray(x) ? x.filter((v) => v && typeof v === "object") : []);
    const { decision, enrich, sources, tools, steps, answer: _, ...rest } = r;
    return (
        <li class="card">
            <details class="fold" onToggle={(e) => setOpen(e.currentTarget.open)}>
                <summary>
                    <strong>{d.route}</strong>
                    <span class="quiet">{when(d.at_ms)} · {d.pipeline} · {named("is", d.mode)} · {t("tool.ok", { ms: number(d.ms) })}</span>
                    {d.failed ? <span class="bad">{t("tool.failed")}</span> : null}
                </summary>
                {open ? (
                    <ol class="steps">
                        {decision ? <li><strong>{t("step.decision")}</strong><Values of={decision} /></li> : null}
                        {list(enrich).map((x, i) => <li key={`e${i}`}><strong>{t("step.enrich")}</strong><Values of={x} /></li>)}
                        {list(sources).map((x, i) => <li key={`s${i}`}><strong>{t("source")}</strong><Values of={x} /></li>)}
                        {list(steps).map((x, i) => <li key={`p${i}`}><strong>{t("step.step")}</strong><Values of={x} /></li>)}
                        {list(tools).map((x, i) => <li key={`t${i}`}><strong>{t("step.tool", { name: String(x.name ?? "") })}</strong><Values of={x} /></li>)}
                        <li><strong>{t("step.done")}</strong><Values of={rest} /></li>
                    </ol>
                ) : null}
            </details>
        </li>
    );
}

function Decisions() {
    const [list, setList] = useState<Decision[] | null | undefined>(undefined);
    useEffect(() => void maybe<{ data: Decision[] }>("/chimere/v1/decisions?limit=50").then((x) => setList(x ? x.data : null)).catch(failed), []);
    if (!list) return <p class="quiet">{list === null ? t("admin.only") : t("loading")}</p>;
    if (!list.length) return <p class="quiet">{t("insight.decisions.none")}</p>;
    return (
        <ul class="cards" aria-label={t("insight.decisions")}>
            {list.map((d) => <DecisionCard key={d.id} d={d} />)}
        </ul>
    );
}

interface Day {
    at_ms: number;
    answers: number;
    rated: number;
    worth: number | null;
}
function Quality() {
    const [days, setDays] = useState<Day[] | null | undefined>(undefined);
    useEffect(() => void maybe<{ data: Day[] }>("/chimere/v1/quality").then((x) => setDays(x ? x.data : null)).catch(failed), []);
    if (!days) return <p class="quiet">{days === null ? t("admin.only") : t("loading")}</p>;
    const rated = days.filter((d) => d.worth !== null);
    if (!rated.length) return <p class="quiet">{t("quality.none")}</p>;
    const n = rated.reduce((sum, d) => sum + d.rated, 0);
    const mean = rated.reduce((sum, d) => sum + d.worth! * d.rated, 0) / n;
    return (
        <>
            <Line name={t("quality.line", { n, mean: number(mean * 100) })} values={rated.map((d) => d.worth!)} />
            <ul class="legend">
                <li>{when(rated[0].at_ms)}</li>
                {rated.length > 1 ? <li>– {when(rated[rated.length - 1].at_ms)}</li> : null}
            </ul>
        </>
    );
}

export default function Insight() {
    const [isOpen, setOpen] = useState(true);
    if (!isOpen) return <Screen title={t("screen.insight")}><p class="quiet">{t("admin.only")}</p></Screen>;
    return (
        <Screen title={t("screen.insight")}>
            <h2>{t("insight.now")}</h2>
            <Live closed={() => setOpen(false)} />
            <h2>{t("quality")}</h2>
            <p class="quiet">{t("quality.about")}</p>
            <Quality />
            <h2>{t("nights")}</h2>
            <p class="quiet">{t("nights.about")}</p>
            <Nights />
            <h2>{t("insight.decisions")}</h2>
            <p class="quiet">{t("insight.decisions.about")}</p>
            <Decisions />
            <h2>{t("insight.requests")}</h2>
            <Requests />
        </Screen>
    );
}
