// api.ts: requests to the server. The key, if there is one, goes in a header; nothing is kept in cookies.
import { signal } from "@preact/signals";

export class ApiError extends Error {
    constructor(
        message: string,
        readonly status: number,
        readonly code: string | null,
        readonly retryAfter: number,
    ) {
        super(message);
    }
}

const KEY = "chimere.key";
export const needsKey = signal(false);
export const online = signal(true);

function storage(kind: "local" | "session"): Storage | null {
    try {
        return kind === "local" ? localStorage : sessionStorage;
    } catch {
        return null; // the browser keeps nothing for this page
    }
}

export function readKey(): string {
    return storage("session")?.getItem(KEY) ?? storage("local")?.getItem(KEY) ?? "";
}

export function writeKey(key: string, remember: boolean): void {
    for (const kind of ["local", "session"] as const) {
        try {
            storage(kind)?.removeItem(KEY);
            if (key && (kind === "local") === remember) storage(kind)?.setItem(KEY, key);
        } catch {
            // storage is full: the key is asked for again after a reload
        }
    }
}

let sessionKey = readKey();
export function useKey(key: string, remember: boolean): void {
    sessionKey = key;
    writeKey(key, remember);
    needsKey.value = false;
}

function headers(extra?: Record<string, string>): Record<string, string> {
    return { ...(sessionKey ? { Authorization: `Bearer ${sessionKey}` } : {}), ...extra };
}

async function failure(res: Response): Promise<ApiError> {
    let message = `${res.status} ${res.statusText}`;
    let code: string | null = null;
    try {
        const body = await res.json();
        const e = typeof body.error === "string" ? { message: body.error } : body.error;
        if (e?.message) message = String(e.message);
        if (e?.code) code = String(e.code);
    } catch {
        // no JSON: a proxy answered
    }
    if (res.status === 401) needsKey.value = true;
    return new ApiError(message, res.status, code, Number(res.headers.get("Retry-After") ?? 0));
}

export async function send(method: string, path: string, body?: unknown, signal?: AbortSignal, extra?: Record<string, string>): Promise<Response> {
    if (body === undefined) return raw(method, path, undefined, extra, signal);
    return raw(method, path, JSON.stringify(body), { "Content-Type": "application/json", ...extra }, signal);
}
async function raw(method: string, path: string, body?: BodyInit, extra?: Record<string, string>, signal?: AbortSignal): Promise<Response> {
    let res: Response;
    try {
        res = await fetch(path, {
            method,
            headers: headers(extra),
            body,
            signal,
            cache: "no-store",
            credentials: "omit",
        });
    } catch (e) {
        if ((e as Error).name === "AbortError") throw e;
        online.value = false;
        throw new ApiError("offline", 0, "offline", 0);
    }
    online.value = true;
    if (!res.ok) throw await failure(res);
    return res;
}

// The bytes of a file as they are.
export async function upload<T>(path: string, file: Blob): Promise<T> {
    const res = await raw("POST", path, file, { "Content-Type": "application/octet-stream" });
    return res.json();
}
export async function sendForm<T>(path: string, form: FormData): Promise<T> {
    return (await raw("POST", path, form)).json();
}
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return (await send("GET", path, undefined, signal)).json();
}
export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
    return (await send("POST", path, body, signal)).json();
}
export async function remove<T>(path: string): Promise<T> {
    return (await send("DELETE", path)).json();
}
// The version that a resource has now, of its ETag.
export function versionOf(res: Response): number {
    return Number(/"(\d+)"/.exec(res.headers.get("ETag") ?? "")?.[1] ?? 0);
}
// NULL if the server has no such endpoint, or not for this caller.
export async function maybe<T>(path: string): Promise<T | null> {
    try {
        return await get<T>(path);
    } catch (e) {
        if (e instanceof ApiError && [403, 404, 405, 400].includes(e.status)) return null;
        throw e;
    }
}

// Server-sent events of a response: the data of each, until the stream ends.
export async function* events(res: Response): AsyncGenerator<string> {
    const reader = res.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        text += value;
        let end: number;
        let at = 0;
        while ((end = text.indexOf("\n\n", at)) >= 0) {
            for (const line of text.slice(at, end).split("\n")) if (line.startsWith("data: ")) yield line.slice(6);
            at = end + 2;
        }
        text = text.slice(at);
    }
}
// The same of lines of JSON.
export async function* lines(res: Response): AsyncGenerator<Record<string, unknown>> {
    const reader = res.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
        const { done, value } = await reader.read();
        text += value ?? "";
        const parts = text.split("\n");
        text = done ? "" : parts.pop()!;
        for (const part of parts) if (part.trim()) yield JSON.parse(part);
        if (done) return;
    }
}
