// exchange.ts: conversations as files: ours (JSON, Markdown), and those of ChatGPT, Open WebUI and llama.cpp's page, read.
import { post } from "./api";
import { itemsOf, loadConversations, type Conversation } from "./state";
import { newId } from "./tree";

interface Item {
    id?: string;
    type?: string;
    role?: string;
    parent?: string | null;
    content?: { type?: string; text?: string }[] | string;
    chimere?: unknown;
    created_at?: number;
}
interface Exported {
    format: "chimere.conversation";
    version: 1;
    title: string;
    project: string;
    created_at: number;
    items: Item[];
}

export function save(name: string, type: string, text: string): void {
    const a = document.createElement("a");
    a.href = URL.createObjectURL(new Blob([text], { type }));
    a.download = name;
    a.click();
    setTimeout(() => URL.revokeObjectURL(a.href), 10_000);
}

const textOf = (item: Item) => (typeof item.content === "string" ? item.content : (item.content ?? []).map((p) => p.text ?? "").join(""));

export async function exported(c: Conversation): Promise<Exported> {
    return { format: "chimere.conversation", version: 1, title: c.title, project: c.project, created_at: c.created_at, items: await itemsOf<Item>(c.id) };
}
const fileName = (title: string) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation";

export async function download(c: Conversation, as: "json" | "md"): Promise<void> {
    const data = await exported(c);
    if (as === "json") return save(`${fileName(c.title)}.json`, "application/json", JSON.stringify(data, null, 1));
    save(`${fileName(c.title)}.md`, "text/markdown", toMarkdown(data));
}

// The newest branch. A line of a message that looks like a heading of ours gets a backslash.
const heading = /^\\*## (?:user|assistant)$/gm;
export function toMarkdown(data: Exported): string {
    const byParent = new Map<string, Item[]>();
    for (const item of data.items) {
        const list = byParent.get(item.parent ?? "");
        if (list) list.push(item);
        else byParent.set(item.parent ?? "", [item]);
    }
    const parts = [`# ${data.title.replace(/\s+/g, " ")}\n`];
    for (let at = "", next: Item | undefined; (next = byParent.get(at)?.at(-1)); at = next.id ?? "\0")
        if (next.role) parts.push(`\n## ${next.role}\n\n${textOf(next).replace(heading, "\\$&")}\n`);
    return parts.join("");
}

type Loose = Record<string, any>;
interface Draft {
    title: string;
    project?: string;
    items: Item[];
}

const message = (id: string, parent: string | null, role: string, text: string, chimere?: unknown, at?: unknown): Item => ({
    type: "message",
    id,
    parent,
    role: role === "user" ? "user" : "assistant",
    content: [{ type: role === "user" ? "input_text" : "output_text", text }],
    ...(chimere ? { chimere } : {}),
    ...(Number(at) > 0 && Number(at) < 4e9 ? { created_at: Math.floor(Number(at)) } : {}),
});

// Open WebUI: [{title, chat: {history: {messages: {ID: {id, parentId, role, content, model}}}}}]
function fromOpenWebUi(one: Loose): Draft {
    const all: Loose[] = Object.values(one.chat.history.messages);
    const ids = new Map(all.map((m) => [m.id, newId("msg_")]));
    const items = all
        .sort((a, b) => (a.timestamp ?? 0) - (b.timestamp ?? 0))
        .map((m) => message(ids.get(m.id)!, ids.get(m.parentId) ?? null, m.role, String(m.content ?? ""), m.model ? { model: String(m.model) } : undefined, m.timestamp));
    return { title: String(one.title ?? one.chat.title ?? ""), items };
}
// llama.cpp's page: {conv: {id, name}, messages: [{id, parent, role, content, thinking}]}
function fromLlama(one: Loose): Draft {
    const all: Loose[] = (one.messages as Loose[]).filter((m) => m.role === "user" || m.role === "assistant");
    const ids = new Map(all.map((m) => [String(m.id), newId("msg_")]));
    const items = all.map((m) =>
        message(ids.get(String(m.id))!, ids.get(String(m.parent)) ?? null, m.role, String(m.content ?? ""), m.thinking ? { thinking: String(m.thinking) } : undefined),
    );
    return { title: String(one.conv?.name ?? ""), items };
}
function fromOurs(one: Loose): Draft {
    const all = (one.items as Item[]).filter((x) => x.id);
    const ids = new Map(all.map((x) => [x.id, newId("msg_")]));
    const items = all.map((x) => ({ ...x, id: ids.get(x.id), parent: ids.get(x.parent ?? undefined) ?? null }));
    return { title: String(one.title ?? ""), project: String(one.project ?? ""), items };
}
// ChatGPT: [{title, mapping: {ID: {parent, message: {author: {role}, content: {parts}, create_time, metadata}}}}].
// Nodes without a message of the user or the assistant are left out; what follows them follows what is before them.
function fromChatGpt(one: Loose): Draft {
    const nodes = new Map<string, Loose>(Object.entries(one.mapping as Loose));
    const text = (m: Loose | null | undefined): string =>
        (Array.isArray(m?.content?.parts) ? m.content.parts : []).map((p: unknown) => (typeof p === "string" ? p : String((p as Loose)?.text ?? ""))).join("\n");
    const keep = (n: Loose | undefined) =>
        ["user", "assistant"].includes(n?.message?.author?.role) && text(n?.message) !== "" && !n?.message?.metadata?.is_visually_hidden_from_conversation;
    const ids = new Map([...nodes].filter(([, n]) => keep(n)).map(([id]) => [id, newId("msg_")]));
    const above = (id: string): string | null => {
        let at = nodes.get(id)?.parent;
        for (let steps = nodes.size; at && steps > 0 && !ids.has(at); steps--) at = nodes.get(at)?.parent;
        return (at && ids.get(at)) ?? null;
    };
    const items = [...ids].map(([id, name]) => {
        const m = nodes.get(id)!.message;
        return message(name, above(id), m.author.role, text(m), m.metadata?.model_slug ? { model: String(m.metadata.model_slug) } : undefined, m.create_time);
    });
    return { title: String(one.title ?? ""), items };
}
function fromMarkdown(text: string): Draft[] {
    const parts = text.replace(/\r\n?/g, "\n").split(/^## (user|assistant)$/m);
    if (parts.length < 3) throw new Error("unknown");
    const items: Item[] = [];
    for (let i = 1; i + 1 < parts.length; i += 2)
        items.push(message(newId("msg_"), items.at(-1)?.id ?? null, parts[i], parts[i + 1].replace(/^\n+|\n+$/g, "").replace(heading, (x) => x.slice(1))));
    return [{ title: /^# (.*)/.exec(parts[0])?.[1] ?? "", items }];
}

// Parents first, as the server expects them; what has no way to a root is left out.
function inOrder(items: Item[]): Item[] {
    const below = new Map<string, Item[]>();
    const known = new Set(items.map((x) => x.id));
    for (const x of items) {
        const parent = x.parent && known.has(x.parent) ? x.parent : "";
        const list = below.get(parent);
        if (list) list.push(x);
        else below.set(parent, [x]);
    }
    const out: Item[] = [];
    const next = [...(below.get("") ?? [])].reverse();
    for (let x = next.pop(); x; x = next.pop()) {
        out.push(x.parent && known.has(x.parent) ? x : { ...x, parent: null });
        next.push(...[...(below.get(x.id!) ?? [])].reverse());
    }
    return out;
}

export function readFile(text: string): Draft[] {
    if (!/^\s*[[{]/.test(text)) return fromMarkdown(text);
    const data = JSON.parse(text);
    const list: Loose[] = Array.isArray(data) ? data : [data];
    const drafts = list.map((one) => {
        if (one?.format === "chimere.conversation") return fromOurs(one);
        if (one?.mapping) return fromChatGpt(one);
        if (one?.chat?.history?.messages) return fromOpenWebUi(one);
        if (Array.isArray(one?.messages) && one?.conv) return fromLlama(one);
        throw new Error("unknown");
    });
    return drafts.map((d) => ({ ...d, items: inOrder(d.items) }));
}

// As many at once as one request may hold.
function* batches(items: Item[]): Generator<Item[]> {
    let out: Item[] = [];
    let bytes = 0;
    for (const x of items) {
        const n = JSON.stringify(x).length * 3;
        if (out.length && (out.length === 1000 || bytes + n > 12e6)) {
            yield out;
            out = [];
            bytes = 0;
        }
        out.push(x);
        bytes += n;
    }
    yield out;
}

export async function importFile(file: File): Promise<number> {
    const drafts = readFile(await file.text());
    for (const d of drafts) {
        let id = "";
        for (const items of batches(d.items)) {
            if (id) await post(`/v1/conversations/${id}/items`, { items });
            else id = (await post<Conversation>("/v1/conversations", { title: d.title.slice(0, 120), project: (d.project ?? "").slice(0, 40), items })).id;
        }
    }
    await loadConversations();
    return drafts.length;
}
