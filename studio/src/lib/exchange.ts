// exchange.ts: conversations as files: ours (JSON, Markdown), and those of llama.cpp's page and of Open WebUI, read.
import { get, post } from "./api";
import { loadConversations, type Conversation } from "./state";
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

export async function itemsOf(id: string): Promise<Item[]> {
    const out: Item[] = [];
    for (let after = ""; ; ) {
        const list = await get<{ data: Item[]; has_more: boolean; last_id: string }>(
            `/v1/conversations/${encodeURIComponent(id)}/items?order=asc&limit=500${after ? `&after=${after}` : ""}`,
        );
        out.push(...list.data);
        if (!list.has_more) return out;
        after = list.last_id;
    }
}
const textOf = (item: Item) => (typeof item.content === "string" ? item.content : (item.content ?? []).map((p) => p.text ?? "").join(""));

export async function exported(c: Conversation): Promise<Exported> {
    return { format: "chimere.conversation", version: 1, title: c.title, project: c.project, created_at: c.created_at, items: await itemsOf(c.id) };
}
const fileName = (title: string) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation";

export async function download(c: Conversation, as: "json" | "md"): Promise<void> {
    const data = await exported(c);
    if (as === "json") return save(`${fileName(c.title)}.json`, "application/json", JSON.stringify(data, null, 1));
    const byParent = new Map<string, Item[]>();
    for (const item of data.items) {
        const list = byParent.get(item.parent ?? "") ?? [];
        list.push(item);
        byParent.set(item.parent ?? "", list);
    }
    let text = `# ${c.title}\n`;
    for (let at = "", next: Item | undefined; (next = byParent.get(at)?.at(-1)); at = next.id ?? "\0") text += `\n## ${next.role}\n\n${textOf(next)}\n`;
    save(`${fileName(c.title)}.md`, "text/markdown", text);
}

type Loose = Record<string, any>;
interface Draft {
    title: string;
    items: Item[];
}

const message = (id: string, parent: string | null, role: string, text: string, chimere?: unknown): Item => ({
    type: "message",
    id,
    parent,
    role: role === "user" ? "user" : "assistant",
    content: [{ type: role === "user" ? "input_text" : "output_text", text }],
    ...(chimere ? { chimere } : {}),
});

// Open WebUI: [{title, chat: {history: {messages: {ID: {id, parentId, role, content, model}}}}}]
function fromOpenWebUi(one: Loose): Draft {
    const all: Loose[] = Object.values(one.chat.history.messages);
    const ids = new Map(all.map((m) => [m.id, newId("msg_")]));
    const items = all
        .sort((a, b) => (a.timestamp ?? 0) - (b.timestamp ?? 0))
        .map((m) => message(ids.get(m.id)!, ids.get(m.parentId) ?? null, m.role, String(m.content ?? ""), m.model ? { model: String(m.model) } : undefined));
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
    const ids = new Map((one.items as Item[]).map((x) => [x.id, newId("msg_")]));
    return { title: String(one.title ?? ""), items: (one.items as Item[]).map(({ created_at, ...x }) => (void created_at, { ...x, id: ids.get(x.id), parent: ids.get(x.parent ?? undefined) ?? null })) };
}

export function readFile(text: string): Draft[] {
    const data = JSON.parse(text);
    const list: Loose[] = Array.isArray(data) ? data : [data];
    return list.map((one) => {
        if (one?.format === "chimere.conversation") return fromOurs(one);
        if (one?.chat?.history?.messages) return fromOpenWebUi(one);
        if (Array.isArray(one?.messages) && one?.conv) return fromLlama(one);
        throw new Error("unknown");
    });
}

export async function importFile(file: File): Promise<number> {
    const drafts = readFile(await file.text());
    for (const d of drafts) {
        const c = await post<Conversation>("/v1/conversations", { title: d.title.slice(0, 200) });
        for (let i = 0; i < d.items.length; i += 200) await post(`/v1/conversations/${c.id}/items`, { items: d.items.slice(i, i + 200) });
    }
    await loadConversations();
    return drafts.length;
}
