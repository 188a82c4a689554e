// Turn.tsx: one message, with what led to it: thinking, tools, sources; and what may be done with it.
import { useEffect, useState } from "preact/hooks";
import { number, t, when } from "../i18n";
import { copy } from "../lib/decorate";
import { allow, branch, drop, edit, goOn, permit, rate, reply, revision, say, settle, tree, writing } from "../lib/state";
import { settings } from "../lib/settings";
import { hush, speak, speaking, speaks } from "../lib/speech";
import type { Source, Tool, Turn as TurnData, Waiting } from "../lib/tree";
import { Icon, IconButton } from "./icons";
import { Markdown } from "./Markdown";
import { opened } from "./Opened";
import { openSource } from "./Source";

function Thinking({ turn, live }: { turn: TurnData; live: boolean }) {
    const seconds = number((turn.thinkingMs ?? 0) / 1000, 1);
    const thinks = live && !turn.text;
    const used = turn.usage?.reasoning ?? turn.thinkingParts ?? 0;
    return (
        <details class="fold">
            <summary>
                <Icon name="spark" />
                <span class={thinks ? "pulse" : ""}>{thinks ? t("thinking.now", { s: seconds }) : t("thinking.done", { s: seconds })}</span>
                {used && turn.budget ? (
                    <span class="budget">
                        <span class="quiet">{t("thinking.budget", { n: number(used), all: number(turn.budget) })}</span>
                        <meter min={0} max={turn.budget} value={Math.min(used, turn.budget)} aria-label={t("thinking.budget.name")} />
                    </span>
                ) : used ? (
                    <span class="quiet">{t("tokens", { n: number(used) })}</span>
                ) : null}
                {used && turn.budget && used >= turn.budget ? <span class="quiet">{t("thinking.spent")}</span> : null}
            </summary>
            <div class="fold-body">
                <Markdown text={turn.thinking!} growing={live} revision={revision.value} />
            </div>
        </details>
    );
}

function ToolCall({ tool }: { tool: Tool }) {
    return (
        <details class="fold">
            <summary>
                <Icon name="tool" />
                <span>{tool.name}</span>
                <span class="quiet">{tool.ok === undefined ? "" : tool.ok ? t("tool.ok", { ms: number(tool.ms ?? 0, 1) }) : t("tool.failed")}</span>
            </summary>
            <div class="fold-body">
                <pre class="plain" tabIndex={0}>{tool.arguments}</pre>
                {tool.result ? <pre class="plain" tabIndex={0}>{tool.result}</pre> : null}
            </div>
        </details>
    );
}

// An answer was given without tools that would write, run or send after text of strangers was read. The question waits for
// a minute, then it counts as answered with no.
const ASK_S = 60;
function Approval({ turn }: { turn: TurnData }) {
    const [left, setLeft] = useState(ASK_S);
    useEffect(() => {
        const timer = window.setInterval(() => setLeft((n) => n - 1), 1000);
        return () => clearInterval(timer);
    }, []);
    useEffect(() => {
        if (left <= 0) settle(turn.id);
    }, [left]);
    return (
        <div class="approval" role="group" aria-label={t("tool.ask", { names: turn.asks!.join(", ") })}>
            <p><Icon name="tool" /> {t("tool.ask", { names: turn.asks!.join(", ") })} <span class="quiet">{t("tool.ask.about", { s: left })}</span></p>
            <div class="row end">
                <button type="button" class="button" onClick={() => settle(turn.id)}>{t("tool.deny")}</button>
                <button type="button" class="button" onClick={() => void allow(turn.id, true)}>{t("tool.allow.chat")}</button>
                <button type="button" class="button primary" onClick={() => void allow(turn.id, false)}>{t("tool.allow")}</button>
            </div>
        </div>
    );
}

// A call that waits: the stream stands still until the user decides, or the time is over.
function Permission({ turn, call }: { turn: TurnData; call: Waiting }) {
    const [now, setNow] = useState(Date.now());
    useEffect(() => {
        const timer = window.setInterval(() => setNow(Date.now()), 1000);
        return () => clearInterval(timer);
    }, []);
    const left = Math.max(0, Math.round((call.until - now) / 1000));
    if (!left) return null;
    return (
        <div class="approval" role="group" aria-label={t("tool.wait", { name: call.name })}>
            <p role="alert"><Icon name="tool" /> {t("tool.wait", { name: call.name })} <span class="quiet">{t("tool.wait.about", { s: left })}</span></p>
            <pre class="plain" tabIndex={0}>{call.arguments}</pre>
            <div class="row end">
                <button type="button" class="button" onClick={() => void permit(turn, call.id, false)}>{t("tool.deny")}</button>
                <button type="button" class="button primary" onClick={() => void permit(turn, call.id, true)}>{t("tool.allow")}</button>
            </div>
        </div>
    );
}

function Comment({ turn, done }: { turn: TurnData; done: () => void }) {
    const [text, setText] = useState("");
    return (
        <form
            class="edit"
            onSubmit={(e) => {
                e.preventDefault();
                done();
                void rate(turn.id, turn.rating ?? "down", text.trim());
            }}
        >
            <label class="field">
                <span>{t("turn.comment")}</span>
                <textarea rows={2} maxLength={1000} value={text} onInput={(e) => setText(e.currentTarget.value)} />
            </label>
            <div class="row end">
                <button type="button" class="button" onClick={done}>{t("cancel")}</button>
                <button type="submit" class="button primary">{t("turn.comment.send")}</button>
            </div>
        </form>
    );
}

function Sources({ list }: { list: Source[] }) {
    return (
        <ol class="sources" aria-label={t("sources")}>
            {list.map((s, i) => (
                <li key={i}>
                    <button type="button" class="chip" onClick={() => openSource(s)}>
                        <span class="chip-number">{i + 1}</span>
                        {s.title.slice(0, 60)}
                        {s.page ? <span class="quiet">{t("source.page", { n: s.page })}</span> : null}
                    </button>
                </li>
            ))}
        </ol>
    );
}

function Figures({ turn }: { turn: TurnData }) {
    const u = turn.usage;
    const x = turn.timings;
    if (!u) return null;
    const parts = [t("figures.tokens", { n: number(u.generated) })];
    if (x?.perSecond) parts.push(t("figures.speed", { n: number(x.perSecond, 1) }));
    if (x?.firstMs) parts.push(t("figures.first", { n: number(x.firstMs / 1000, 2) }));
    parts.push(t("figures.prompt", { n: number(u.prompt), cached: number(u.cached) }));
    if (x?.drafted) parts.push(t("figures.drafts", { n: x.accepted, all: x.drafted }));
    return <p class="figures">{parts.join(" · ")}</p>;
}

function Edit({ turn, done }: { turn: TurnData; done: () => void }) {
    const [text, setText] = useState(turn.text);
    return (
        <form
            class="edit"
            onSubmit={(e) => {
                e.preventDefault();
                done();
                void edit(turn.id, text);
            }}
        >
            <textarea aria-label={t("turn.edit")} rows={Math.min(14, text.split("\n").length + 1)} value={text} onInput={(e) => setText(e.currentTarget.value)} />
            <div class="row end">
                <button type="button" class="button" onClick={done}>{t("cancel")}</button>
                <button type="submit" class="button primary">{turn.role === "user" ? t("turn.send") : t("save")}</button>
            </div>
        </form>
    );
}

function Actions({ turn, begin, comment }: { turn: TurnData; begin: () => void; comment: () => void }) {
    const all = tree.value.siblings(turn.id);
    const at = all.indexOf(turn.id);
    const mine = turn.role === "assistant";
    const busy = writing.value !== null;
    return (
        <div class="actions">
            {all.length > 1 ? (
                <span class="branches">
                    <IconButton icon="left" name={t("branch.before")} disabled={at === 0 || busy} act={() => branch(turn.id, -1)} />
                    <span aria-label={t("branch.at", { n: at + 1, all: all.length })}>{at + 1}/{all.length}</span>
                    <IconButton icon="right" name={t("branch.after")} disabled={at === all.length - 1 || busy} act={() => branch(turn.id, 1)} />
                </span>
            ) : null}
            <IconButton icon="copy" name={t("turn.copy")} act={async () => say((await copy(turn.text)) ? t("copied") : t("copy.failed"))} />
            {mine && speaks.value && turn.text ? (
                speaking.value === turn.id ? (
                    <IconButton icon="stop" name={t("turn.hush")} pressed act={hush} />
                ) : (
                    <IconButton icon="speaker" name={t("turn.speak")} act={() => speak(turn.id, turn.text)} />
                )
            ) : null}
            <IconButton icon="edit" name={t("turn.edit")} disabled={busy} act={begin} />
            {mine ? (
                <>
                    <IconButton icon="redo" name={t("turn.redo")} disabled={busy} act={() => void reply(turn.parent)} />
                    <IconButton icon="play" name={t("turn.continue")} disabled={busy} act={() => void goOn(turn.id)} />
                    {turn.text ? <IconButton icon="layers" name={t("evidence")} act={() => (opened.value = { kind: "evidence", turn })} /> : null}
                    <IconButton icon="up" name={t("turn.good")} pressed={turn.rating === "up"} act={() => { void rate(turn.id, "up"); if (turn.answer) comment(); }} />
                    <IconButton icon="down" name={t("turn.bad")} pressed={turn.rating === "down"} act={() => { void rate(turn.id, "down"); if (turn.answer) comment(); }} />
                </>
            ) : null}
            <IconButton icon="trash" name={t("turn.drop")} disabled={busy} act={() => void drop(turn.id)} />
        </div>
    );
}

export function Turn({ turn }: { turn: TurnData }) {
    const [editing, setEditing] = useState(false);
    const [commenting, setCommenting] = useState(false);
    const live = writing.value === turn.id;
    if (live) revision.value; // subscribes: the turn is written into
    const who = turn.role === "user" ? t("you") : turn.model || t("assistant");
    return (
        <article class={`turn ${turn.role}`} aria-label={t("turn.by", { who, at: when(turn.at) })}>
            {turn.role === "assistant" ? <h3 class="who">{who}</h3> : <h3 class="offscreen">{who}</h3>}
            {turn.thinking ? <Thinking turn={turn} live={live} /> : null}
            {turn.tools?.map((tool, i) => <ToolCall key={i} tool={tool} />)}
            {live ? turn.waits?.map((call) => <Permission key={call.id} turn={turn} call={call} />) : null}
            {turn.files?.length ? (
                <ul class="files">
                    {turn.files.map((f) => (
                        <li key={f.name} class="chip">
                            {f.url ? <img src={f.url} alt={f.name} /> : <Icon name="clip" />}
                            {f.name}
                        </li>
                    ))}
                </ul>
            ) : null}
            {editing ? (
                <Edit turn={turn} done={() => setEditing(false)} />
            ) : (
                <div class="body">
                    {turn.text ? <Markdown text={turn.text} growing={live} revision={live ? revision.value : 0} /> : null}
                    {live && !turn.text && !turn.thinking ? <p class="waiting"><span /><span /><span /></p> : null}
                </div>
            )}
            {turn.sources?.length ? <Sources list={turn.sources} /> : null}
            {turn.error ? <p class="error" role="alert">{turn.error}</p> : null}
            {turn.finish === "length" ? <p class="quiet">{t("finish.length")}</p> : null}
            {turn.asks?.length && !live && writing.value === null ? <Approval key={turn.id} turn={turn} /> : null}
            {!live && !editing ? <Actions turn={turn} begin={() => setEditing(true)} comment={() => setCommenting(true)} /> : null}
            {commenting ? <Comment turn={turn} done={() => setCommenting(false)} /> : null}
            {!live && turn.role === "assistant" && settings.value.showSteps ? <Figures turn={turn} /> : null}
        </article>
    );
}
