// Nights.tsx: what nights have learned: the versions, their curves, the report of each, and the way back.
import { useEffect, useState } from "preact/hooks";
import { named, number, reason, t, when } from "../i18n";
import { maybe, post } from "../lib/api";
import { failed, say } from "../lib/state";
import { Dialog } from "./Dialog";
import { Curve } from "./Screen";

interface Target {
    n?: number;
    before?: number;
    after?: number;
    gain?: number;
    low?: number;
    high?: number;
    unit?: string;
}
interface Step {
    name: string;
    about?: string;
    promoted?: boolean;
    why?: string;
    did?: string;
    target?: Target;
}
interface Suite {
    skill?: string;
    n?: number;
    a: number;
    b: number;
    p?: number;
}
interface Votes {
    bad: number;
    rated: number;
}
interface Night {
    night: number;
    at?: number;
    model?: string;
    promoted?: boolean;
    steps?: Step[];
    read?: Record<string, number>;
    gate?: { total?: Suite; skills?: Suite[] };
    canary?: { share: number; result: string; trial?: Votes; current?: Votes };
    joules?: number;
    price?: { per_kwh: number; currency: string };
}
interface List {
    current: number;
    data: Night[];
}

const percent = (n: number) => `${number(100 * n, 1)} %`;
const aboutOf = (s: Step) => named("night.about", s.name, s.about ?? "");
const unitOf = (x: Target) => named("unit", x.unit || "nats per token");
const spent = (n: Night) =>
    n.joules ? [t("night.kwh", { n: number(n.joules / 3.6e6, 4) }), n.price ? `${number((n.joules / 3.6e6) * n.price.per_kwh, 4)} ${n.price.currency}`.trim() : ""] : [];
const wh = (joules: number) => `${number(joules / 3600, joules < 36000 ? 2 : 0)} Wh`;

// ---- over all nights

function Bars({ nights }: { nights: Night[] }) {
    const counts = nights.map((n) => {
        const tried = (n.steps ?? []).filter((s) => !s.did);
        const good = tried.filter((s) => s.promoted).length;
        return { night: n.night, good, refused: tried.length - good };
    });
    const most = Math.max(1, ...counts.map((c) => c.good + c.refused));
    const width = 300 / counts.length;
    const sums = counts.reduce((all, c) => [all[0] + c.good, all[1] + c.refused], [0, 0]);
    const name = t("night.bars", { good: sums[0], refused: sums[1] });
    return (
        <figure class="line-box">
            <figcaption aria-hidden="true">{name}</figcaption>
            <svg class="line" viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label={name}>
                {counts.map((c, i) => (
                    <g key={c.night} transform={`translate(${i * width + width * 0.15} 0)`}>
                        <rect width={width * 0.7} y={60 - (c.good / most) * 56} height={(c.good / most) * 56} class="fill-good" />
                        <rect width={width * 0.7} y={60 - ((c.good + c.refused) / most) * 56} height={(c.refused / most) * 56} class="fill-none" />
                    </g>
                ))}
            </svg>
            <ul class="legend">
                <li><span class="dot fill-good" />{t("night.promoted")}</li>
                <li><span class="dot fill-none" />{t("night.refused")}</li>
            </ul>
        </figure>
    );
}

function Curves({ nights }: { nights: Night[] }) {
    const line = [...nights].sort((a, b) => a.night - b.night);
    if (line.length < 2) return null;
    const points = (of: (n: Night) => number | undefined) =>
        line.map((n) => ({ x: t("night.name", { n: n.night }), y: of(n) })).filter((p): p is { x: string; y: number } => p.y !== undefined);
    // what served after the night: the answers of what was proposed if it was promoted
    const right = points((n) => (n.gate?.total ? (n.promoted ? n.gate.total.b : n.gate.total.a) : undefined));
    const joules = points((n) => n.joules);
    return (
        <div class="curves" role="group" aria-label={t("night.curves")}>
            <Curve name={t("night.accuracy")} points={right} show={percent} />
            <Bars nights={line} />
            <Curve name={t("night.energy")} points={joules} show={wh} zero />
        </div>
    );
}

// ---- the report of one night

// A figure of a step in percent of what it was before: steps have different units.
const share = (x: Target, n = 0) => (x.before && x.before > 0 ? (100 * n) / x.before : 0);
function Intervals({ steps }: { steps: Step[] }) {
    const rows = steps.filter((s) => s.target);
    if (!rows.length) return null;
    const most = Math.max(1e-9, ...rows.flatMap((s) => [Math.abs(share(s.target!, s.target!.low)), Math.abs(share(s.target!, s.target!.high))]));
    const at = (n: number) => 50 + (n / most) * 46;
    return (
        <figure class="intervals">
            <figcaption class="quiet">{t("night.intervals")}</figcaption>
            {rows.map((s) => {
                const x = s.target!;
                const [low, gain, high] = [share(x, x.low), share(x, x.gain), share(x, x.high)];
                const said = t("night.interval", { name: s.name, gain: number(gain, 2), low: number(low, 2), high: number(high, 2) });
                return (
                    <div key={s.name}>
                        <span>{s.name}</span>
                        <svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={said} class={low > 0 ? "is-good" : high < 0 ? "is-bad" : ""}>
                            <line x1="50" x2="50" y1="0" y2="10" class="middle" vector-effect="non-scaling-stroke" />
                            <line x1={at(low)} x2={at(high)} y1="5" y2="5" class="range" vector-effect="non-scaling-stroke" />
                            <line x1={at(gain)} x2={at(gain)} y1="1.5" y2="8.5" class="mark" vector-effect="non-scaling-stroke" />
                        </svg>
                        <span class="number">{gain > 0 ? "+" : ""}{number(gain, 2)} %</span>
                    </div>
                );
            })}
        </figure>
    );
}

function Suites({ gate }: { gate: Night["gate"] }) {
    if (!gate?.total) return <p class="quiet">{t("night.suites.none")}</p>;
    return (
        <>
            <p>{t("night.suites.total", { n: number(gate.total.n ?? 0), a: percent(gate.total.a), b: percent(gate.total.b), p: number(gate.total.p ?? 1, 3) })}</p>
            {gate.skills?.length ? (
                <div class="table-box" tabIndex={0} role="region" aria-label={t("night.suites")}>
                    <table>
                        <thead><tr><th scope="col">{t("night.skill")}</th><th scope="col" class="number">{t("night.before")}</th><th scope="col" class="number">{t("night.after")}</th><th scope="col"><span class="offscreen">{t("night.change")}</span></th></tr></thead>
                        <tbody>
                            {gate.skills.map((s) => (
                                <tr key={s.skill}>
                                    <th scope="row">{s.skill}</th>
                                    <td class="number">{percent(s.a)}</td>
                                    <td class={`number ${s.b < s.a && (s.p ?? 1) < 0.1 ? "bad" : s.b > s.a ? "good" : ""}`}>{percent(s.b)}</td>
                                    <td class="bar-cell" aria-hidden="true"><svg viewBox="0 0 100 14" preserveAspectRatio="none"><rect width={100 * s.a} height="5" y="1" class="fill-none" /><rect width={100 * s.b} height="5" y="8" class="fill-good" /></svg></td>
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </div>
            ) : null}
        </>
    );
}

function Report({ night, close }: { night: Night; close: () => void }) {
    const r = night.read;
    const steps = night.steps ?? [];
    return (
        <Dialog title={t("night.name", { n: night.night })} close={close} kind="wide">
            <div class="report">
                <p class="quiet">{[night.at ? when(night.at * 1000) : "", night.model ?? "", ...spent(night)].filter(Boolean).join(" · ")}</p>
                <p><strong class={night.promoted ? "good" : undefined}>{t(night.promoted ? "night.better" : "night.same")}</strong></p>
                {r ? <p>{t("night.read", { answers: number(r.answers ?? 0), learned: number(r.learned ?? 0), held: number(r.held_out ?? 0), below: number(r.below_worth ?? 0), same: number(r.duplicates ?? 0), secrets: number(r.secrets_masked ?? 0) })}</p> : null}
                <h3>{t("night.tried")}</h3>
                <Intervals steps={steps} />
                <ul class="tried">
                    {steps.map((s) => (
                        <li key={s.name}>
                            <p><strong>{s.name}</strong> <span class={s.promoted ? "good" : "quiet"}>{t(s.promoted ? "night.promoted" : s.did ? "night.done" : "night.refused")}</span> · {aboutOf(s)}</p>
                            {s.target ? <p class="quiet">{t("night.figures", { before: number(s.target.before ?? 0, 4), after: number(s.target.after ?? 0, 4), unit: unitOf(s.target), n: number(s.target.n ?? 0) })}</p> : null}
                            {s.did ? <p class="quiet">{s.did}</p> : null}
                            {!s.promoted && s.why ? <p class="quiet">{t("night.why", { why: reason(s.why) })}</p> : null}
                        </li>
                    ))}
                </ul>
                <h3>{t("night.suites")}</h3>
                <Suites gate={night.gate} />
                {night.canary ? (
                    <>
                        <h3>{t("night.trial")}</h3>
                        <p>
                            {t("night.trial.share", { share: percent(night.canary.share), result: reason(night.canary.result) })}
                            {night.canary.trial && night.canary.current ? ` ${t("night.trial.votes", { bad: night.canary.trial.bad, rated: night.canary.trial.rated, bad0: night.canary.current.bad, rated0: night.canary.current.rated })}` : ""}
                        </p>
                    </>
                ) : null}
            </div>
        </Dialog>
    );
}

// ---- the list

export function Nights() {
    const [nights, setNights] = useState<List | null | undefined>(undefined);
    const [asked, setAsked] = useState<number | null>(null);
    const [shown, setShown] = useState<Night | null>(null);
    useEffect(() => void maybe<List>("/chimere/v1/nights").then(setNights).catch(failed), []);
    const back = async (night: number) => {
        setAsked(null);
        try {
            setNights(await post("/chimere/v1/nights", { night }));
            say(night ? t("night.now", { n: night }) : t("night.now.none"));
        } catch (e) {
            failed(e);
        }
    };
    if (!nights) return <p class="quiet">{nights === null ? t("admin.only") : t("loading")}</p>;
    const choice = (night: number) =>
        asked === night ? (
            <span class="row">
                <button type="button" class="button" onClick={() => setAsked(null)}>{t("cancel")}</button>
                <button type="button" class="button primary" onClick={() => void back(night)}>{t("night.sure")}</button>
            </span>
        ) : (
            <button type="button" class="button" onClick={() => setAsked(night)}>{night ? t("night.back", { n: night }) : t("night.back.none")}</button>
        );
    if (!nights.data.length) return <p class="quiet">{t("night.none")}</p>;
    return (
        <>
            <Curves nights={nights.data} />
            <ul class="cards" aria-label={t("nights")}>
                {nights.data.map((n) => (
                    <li class="card" key={n.night}>
                        <div class="card-head">
                            <span>
                                <strong>{t("night.name", { n: n.night })}</strong>
                                <span class="quiet"> {n.at ? when(n.at * 1000) : ""} {n.model ?? ""}</span>
                            </span>
                            <button type="button" class="button" aria-label={t("night.report.of", { n: n.night })} onClick={() => setShown(n)}>{t("night.report")}</button>
                            {nights.current === n.night ? <span class="good">{t("night.serves")}</span> : n.promoted ? choice(n.night) : null}
                        </div>
                        <ol class="steps">
                            {(n.steps ?? []).map((s) => (
                                <li key={s.name}>
                                    <strong>{s.name}</strong> <span class={s.promoted ? "good" : "quiet"}>{t(s.promoted ? "night.promoted" : s.did ? "night.done" : "night.refused")}</span>
                                    {s.target ? <p class="quiet">{t("night.gain", { gain: number(s.target.gain ?? 0, 3), low: number(s.target.low ?? 0, 3), high: number(s.target.high ?? 0, 3), n: number(s.target.n ?? 0), unit: unitOf(s.target) })}</p> : s.why ? <p class="quiet">{reason(s.why)}</p> : null}
                                </li>
                            ))}
                        </ol>
                    </li>
                ))}
            </ul>
            {nights.current ? <p>{choice(0)}</p> : null}
            {shown ? <Report night={shown} close={() => setShown(null)} /> : null}
        </>
    );
}
