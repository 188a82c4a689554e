// answer.ts: one answer: the request, and what its stream says, put into a turn.
import { t } from "../i18n";
import { ApiError, events, send } from "./api";
import { limits } from "./limits";
import { systemOf } from "./personas";
import type { ChatSettings } from "./settings";
import type { Attachment, Source, Turn } from "./tree";
import { pause } from "./soon";

interface Part {
    type: string;
    text?: string;
    image_url?: { url: string };
}

function attached(files: Attachment[] | undefined): string {
    return (files ?? [])
        .filter((f) => f.text !== undefined)
        .map((f) => `\n\n<document name=${JSON.stringify(f.name)}>\n${f.text}\n</document>`)
        .join("");
}

export function messagesOf(path: Turn[], system: string): unknown[] {
    const out: unknown[] = [];
    if (system.trim()) out.push({ role: "system", content: system });
    for (const turn of path) {
        const text = turn.text + (turn.role === "user" ? attached(turn.files) : "");
        const images = (turn.files ?? []).filter((f) => f.url);
        if (turn.role === "assistant" && !text) continue;
        const parts: Part[] = [{ type: "text", text }, ...images.map((f) => ({ type: "image_url", image_url: { url: f.url! } }))];
        out.push({ role: turn.role, content: images.length ? parts : text });
    }
    return out;
}

// Tokens that thinking may take; null: no limit.
export function budgetOf(chat: ChatSettings): number | null {
    if (chat.effort === "none") return null;
    if (chat.think_budget !== null) return chat.think_budget;
    return limits.value.thinking_budgets[chat.effort] ?? null;
}

export function requestOf(path: Turn[], chat: ChatSettings, confirm: string[], resume: boolean): Record<string, unknown> {
    const body: Record<string, unknown> = {
        model: chat.model,
        messages: messagesOf(path, systemOf(chat)),
        stream: true,
        stream_options: { include_usage: true },
    };
    for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"] as const)
        if (chat[name] !== null) body[name] = chat[name];
    if (chat.effort) body.reasoning_effort = chat.effort;
    if (chat.effort !== "none" && chat.think_budget !== null) body.thinking_budget = chat.think_budget;
    if (resume) body.continue_final_message = true;
    if (/^odo(:|$)/.test(chat.model)) {
        const odo: Record<string, unknown> = {};
        if (chat.mode) odo.mode = chat.mode;
        if (chat.persona) odo.persona = chat.persona;
        if (chat.skill) odo.skill = chat.skill;
        if (chat.collection) odo.collection = chat.collection;
        const allowed = [...new Set([...chat.confirm, ...confirm])].slice(0, 16);
        if (allowed.length) odo.confirm = allowed;
        else if (chat.askFirst) odo.confirm = "ask";
        if (Object.keys(odo).length) body.odo = odo;
    }
    return body;
}

function source(s: Record<string, unknown>): Source {
    const where = String(s.where ?? "");
    return {
        title: String(s.title ?? where),
        ...(/^https?:/.test(where) ? { url: where } : { path: where }),
        text: typeof s.text === "string" ? s.text : undefined,
        page: Number(s.page) || undefined,
        line: Number(s.line) || undefined,
    };
}

function note(turn: Turn, step: string, data: any): void {
    if (step === "tool") {
        const waited = turn.waits?.find((w) => w.name === String(data.name));
        turn.waits = turn.waits?.filter((w) => w !== waited);
        turn.tools = [...(turn.tools ?? []), { name: String(data.name), arguments: String(data.arguments ?? ""), ok: data.ok, ms: data.ms, result: data.result }];
    } else if (step === "confirm" && data.id) {
        const args = typeof data.arguments === "string" ? data.arguments : JSON.stringify(data.arguments ?? {}, null, 1);
        turn.waits = [...(turn.waits ?? []), { id: String(data.id), name: String(data.name), arguments: args, until: Date.now() + 1000 * Number(data.wait_s ?? 120) }];
    } else if (step === "confirm" && Array.isArray(data.tools)) {
        turn.asks = data.tools.map(String);
    } else if (step === "sources" && Array.isArray(data)) {
        turn.sources = data.map(source);
    } else if (step !== "done") {
        turn.steps = [...(turn.steps ?? []), { step, data }];
    }
}

// Reads one event into the turn. True: the text grew.
export function take(turn: Turn, data: any, started: number): boolean {
    if (data.error) {
        turn.error = String(data.error.message ?? data.error);
        return false;
    }
    if (data.odo) note(turn, data.odo.step, data.odo.data);
    const delta = data.choices?.[0]?.delta;
    let grew = false;
    const thinking = delta?.reasoning_content ?? delta?.reasoning;
    if (thinking) {
        turn.thinking = (turn.thinking ?? "") + thinking;
        turn.thinkingMs = performance.now() - started;
        turn.thinkingParts = (turn.thinkingParts ?? 0) + 1;
        grew = true;
    }
    if (delta?.content) {
        turn.text += delta.content;
        grew = true;
    }
    for (const call of delta?.tool_calls ?? []) {
        const list = (turn.tools ??= []);
        const at = (list[call.index ?? 0] ??= { name: "", arguments: "" });
        if (call.function?.name) at.name = call.function.name;
        at.arguments += call.function?.arguments ?? "";
    }
    if (data.choices?.[0]?.finish_reason) turn.finish = data.choices[0].finish_reason;
    if (grew && !turn.timings) turn.timings = { prefillMs: 0, perSecond: 0, firstMs: performance.now() - started, drafted: 0, accepted: 0 };
    if (data.usage)
        turn.usage = {
            prompt: data.usage.prompt_tokens ?? 0,
            cached: data.usage.prompt_tokens_details?.cached_tokens ?? 0,
            generated: data.usage.completion_tokens ?? 0,
            reasoning: data.usage.completion_tokens_details?.reasoning_tokens ?? 0,
        };
    if (data.timings)
        turn.timings = {
            prefillMs: data.timings.prompt_ms ?? 0,
            perSecond: data.timings.predicted_per_second ?? 0,
            firstMs: turn.timings?.firstMs ?? 0,
            drafted: data.timings.draft_n ?? 0,
            accepted: data.timings.draft_n_accepted ?? 0,
        };
    return grew;
}

const BURST_MS = 8;
// True: it has come to its end.
export async function follow(turn: Turn, res: Response, started: number, changed: () => void): Promise<boolean> {
    turn.answer = res.headers.get("X-Odo-Answer") ?? turn.answer;
    let from = performance.now();
    for await (const data of events(res)) {
        if (data === "[DONE]") return true;
        take(turn, JSON.parse(data), started);
        changed();
        if (performance.now() - from < BURST_MS) continue;
        await pause(); // much has come at once
        from = performance.now();
    }
    return Boolean(turn.error);
}

// body: what is asked; a text: the name of an answer that the server goes on with. began: its name, once it is known.
// False: the connection broke in the middle.
export async function answer(turn: Turn, body: Record<string, unknown> | string, changed: () => void, signal: AbortSignal, began: (name: string) => void): Promise<boolean> {
    const started = performance.now();
    let begun = false;
    let whole = true;
    try {
        const res = typeof body === "string"
            ? await send("GET", `/chimere/v1/answers/${encodeURIComponent(body)}`, undefined, signal)
            : await send("POST", "/v1/chat/completions", body, signal, { "X-Chimere-Keep": "true" });
        began(typeof body === "string" ? body : (res.headers.get("X-Request-Id") ?? ""));
        begun = true;
        whole = await follow(turn, res, started, changed);
    } catch (e) {
        if ((e as Error).name === "AbortError") turn.finish = "stopped";
        else if (begun) whole = false;
        else turn.error = e instanceof ApiError ? (e.code === "offline" ? t("offline") : e.message) : String((e as Error).message);
    }
    if (!whole) turn.error = t("answer.cut");
    changed();
    return whole;
}
