// Screen.tsx: the frame of the screens beside the chat, and the parts that several of them use.
import "../style/screens.css";
import type { ComponentChildren } from "preact";
import { named, number, t } from "../i18n";
import { drawer } from "../lib/route";
import { IconButton } from "./icons";

export function Screen({ title, children }: { title: string; children: ComponentChildren }) {
    return (
        <div class="chat">
            <header class="top">
                <IconButton icon="menu" name={t("menu")} kind="only-narrow" act={() => (drawer.value = true)} />
                <h1 class="title">{title}</h1>
            </header>
            <div class="screen" tabIndex={0} role="region" aria-label={title}>{children}</div>
        </div>
    );
}

export function Tile({ name, value, note }: { name: string; value: string; note?: string }) {
    return (
        <div class="tile">
            <dt>{name}</dt>
            <dd>
                {value}
                {note ? <span class="quiet"> {note}</span> : null}
            </dd>
        </div>
    );
}

// Parts of a whole, each with its colour and its name in the legend.
// most: what there is room for; without it, the parts are the whole.
export function Stack({ name, parts, most = 0, show }: { name: string; parts: [string, number][]; most?: number; show: (n: number) => string }) {
    const sum = parts.reduce((n, [, x]) => n + x, 0);
    const whole = Math.max(sum < most / 10 ? sum : Math.max(most, sum), 1); // what is small is drawn by itself
    const said = most ? `${name}: ${show(sum)} / ${show(most)}` : `${name}: ${parts.filter(([, n]) => n).map(([key, n]) => `${key} ${show(n)}`).join(", ")}`;
    let at = 0;
    return (
        <div class="stack">
            <svg viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label={said}>
                <rect width="1000" height="24" class="stack-all" />
                {parts.map(([key, n], i) => {
                    const x = (at / whole) * 1000;
                    at += n;
                    return <rect key={key} x={x} width={Math.max(0, (n / whole) * 1000 - 1)} height="24" class={`fill-${(i % 5) + 1}`} />;
                })}
                {most && sum > most ? <rect x={(most / whole) * 1000} width="3" height="24" class="stack-limit" /> : null}
            </svg>
            <ul class="legend">
                {parts.filter(([, n]) => n).map(([key, n]) => (
                    <li key={key}><span class={`dot fill-${(parts.findIndex((p) => p[0] === key) % 5) + 1}`} />{key} <span class="quiet">{show(n)}</span></li>
                ))}
            </ul>
        </div>
    );
}

export function Line({ name, values }: { name: string; values: number[] }) {
    const top = Math.max(...values, 1e-9);
    const points = values.map((v, i) => `${(i / Math.max(1, values.length - 1)) * 300},${58 - (v / top) * 54}`).join(" ");
    return (
        <figure class="line-box">
            <figcaption aria-hidden="true">{name}</figcaption>
            <svg class="line" viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label={name}>
                <polyline points={points} vector-effect="non-scaling-stroke" />
            </svg>
        </figure>
    );
}

// The same with the values of both ends. zero: the scale begins there, else at the smallest value.
export function Curve({ name, points, show, zero }: { name: string; points: { x: string; y: number }[]; show: (n: number) => string; zero?: boolean }) {
    if (points.length < 2) return null;
    const ys = points.map((p) => p.y);
    const [most, least] = [Math.max(...ys), zero ? 0 : Math.min(...ys)];
    const range = most - least || 1;
    const at = (p: { y: number }, i: number) => `${(i / (points.length - 1)) * 296 + 2},${56 - ((p.y - least) / range) * 52}`;
    const [from, to] = [points[0], points[points.length - 1]];
    const said = t("curve.said", { name, from: show(from.y), to: show(to.y), x: to.x });
    return (
        <figure class="line-box">
            <figcaption aria-hidden="true">{name} <strong>{show(to.y)}</strong></figcaption>
            <svg class="line" viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label={said}>
                <polyline points={points.map(at).join(" ")} vector-effect="non-scaling-stroke" />
            </svg>
            <p class="axis quiet" aria-hidden="true"><span>{from.x}: {show(from.y)}</span><span>{to.x}</span></p>
        </figure>
    );
}

// One step of a decision: its plain values side by side; what is deeper as text.
export function Values({ of }: { of: Record<string, any> }) {
    const show = (v: unknown): string => {
        if (typeof v === "number") return number(v, 3);
        if (typeof v === "boolean") return t(v ? "yes" : "no");
        if (Array.isArray(v)) return v.map(show).join(", ");
        if (v && typeof v === "object") return Object.entries(v).map(([k, x]) => `${named("v", k)} ${show(x)}`).join(", ");
        return named("is", String(v));
    };
    return (
        <dl>
            {Object.entries(of).filter(([, v]) => v !== null && !(Array.isArray(v) && !v.length)).map(([k, v]) => (
                <div key={k}><dt>{named("v", k)}</dt><dd>{show(v).slice(0, 600)}</dd></div>
            ))}
        </dl>
    );
}
