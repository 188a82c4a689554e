// state.ts: the conversation that is shown, the list of the others, and what may be done with them.
import { batch, computed, signal } from "@preact/signals";
import { t } from "../i18n";
import { answer, budgetOf, requestOf } from "./answer";
import { ApiError, get, maybe, post, remove, send, versionOf } from "./api";
import { limits, loadLimits } from "./limits";
import { loadPersonas } from "./personas";
import { change, keep, kept, plainChat, settings, type ChatSettings } from "./settings";
import { Tree, newId, type Attachment, type Turn } from "./tree";

export interface Model {
    id: string;
    meta?: { n_ctx?: number; n_vocab?: number; vision?: boolean };
}
export interface Conversation {
    id: string;
    title: string;
    project: string;
    pinned: boolean;
    created_at: number;
    updated_at: number;
    version: number;
    settings?: Partial<ChatSettings>;
    match?: string;
}
interface Item {
    id: string;
    parent?: string | null;
    role: "user" | "assistant";
    content: { text?: string }[];
    chimere?: Partial<Turn>;
    created_at?: number;
}
interface List<T> {
    data: T[];
    has_more: boolean;
    last_id: string | null;
}

export const models = signal<Model[]>([]);
export const conversations = signal<Conversation[]>([]);
export const moreConversations = signal(false);
export const searchText = signal("");
export const current = signal<Conversation | null>(null); // null: a new chat
export const chat = signal<ChatSettings>({ ...settings.value.defaults });
export const tree = signal(new Tree());
export const path = signal<Turn[]>([]);
export const revision = signal(0); // of the turn that is being written
export const writing = signal<string | null>(null); // its id
export const announcement = signal("");
export const notice = signal("");
export const keeps = signal(true); // the server keeps conversations
export const loading = signal(false);
const saved = new Set<string>(); // turns of the current conversation that the server has
const tabs = "BroadcastChannel" in window ? new BroadcastChannel("chimere") : null; // of this browser

export const model = computed(() => chat.value.model || models.value.find((m) => m.id === "odo")?.id || models.value[0]?.id || "");
export const sees = computed(() => models.value.find((m) => m.id === model.value)?.meta?.vision !== false); // images

let noticeTimer = 0;
export function say(text: string): void {
    notice.value = text;
    clearTimeout(noticeTimer);
    noticeTimer = window.setTimeout(() => (notice.value = ""), 5000);
}
export function failed(e: unknown): void {
    if (e instanceof ApiError && e.status === 401) return; // the page asks for a key
    say(e instanceof ApiError && e.code === "offline" ? t("offline") : String((e as Error).message));
}

export async function loadModels(): Promise<void> {
    const list = await get<List<Model>>("/v1/models");
    models.value = list.data;
    void loadPersonas().catch(() => {});
    void loadLimits();
}

const url = (id: string, rest = "") => `/v1/conversations/${encodeURIComponent(id)}${rest}`;

export async function loadConversations(more = false): Promise<void> {
    const after = more ? conversations.value.at(-1)?.id : undefined;
    const query = new URLSearchParams({ limit: "60" });
    if (after) query.set("after", after);
    if (searchText.value.trim()) query.set("search", searchText.value.trim());
    const list = await maybe<List<Conversation>>(`/v1/conversations?${query}`);
    keeps.value = list !== null;
    if (!list) return;
    batch(() => {
        conversations.value = more ? [...conversations.value, ...list.data] : list.data;
        moreConversations.value = list.has_more;
    });
}

function show(): void {
    path.value = tree.value.path();
}

export function startNew(): void {
    detach();
    batch(() => {
        current.value = null;
        saved.clear();
        tree.value = new Tree();
        chat.value = { ...settings.value.defaults };
        show();
    });
    if (location.hash !== "#/") location.hash = "#/";
}

function toTurn(item: Item): Turn {
    return {
        ...item.chimere,
        id: item.id,
        parent: item.parent ?? "",
        role: item.role,
        text: item.content.map((p) => p.text ?? "").join(""),
        at: (item.created_at ?? 0) * 1000,
    };
}
export async function itemsOf<T = Item>(id: string, wanted: () => boolean = () => true): Promise<T[]> {
    const out: T[] = [];
    for (let after = ""; wanted(); ) {
        const list = await get<List<T>>(url(id, `/items?order=asc&limit=1000${after ? `&after=${after}` : ""}`));
        out.push(...list.data);
        if (!list.has_more || !list.last_id) break;
        after = list.last_id;
    }
    return out;
}
function toItem(turn: Turn): unknown {
    const { id, parent, role, text, at, ...rest } = turn;
    void at;
    return {
        type: "message",
        id,
        parent: parent || null,
        role,
        content: [{ type: role === "user" ? "input_text" : "output_text", text }],
        chimere: rest,
    };
}

let opening = 0;
export async function open(id: string): Promise<void> {
    if (current.value?.id === id) return;
    detach();
    const mine = ++opening;
    loading.value = true;
    try {
        const c = await get<Conversation>(url(id));
        const next = new Tree();
        const items = await itemsOf(id, () => mine === opening);
        if (mine !== opening) return;
        saved.clear();
        for (const item of items) {
            saved.add(item.id);
            if (item.role) next.put(toTurn(item));
        }
        const leaf = kept(`chimere.leaf.${id}`);
        if (leaf) next.choose(leaf);
        batch(() => {
            current.value = c;
            chat.value = { ...plainChat, ...c.settings };
            tree.value = next;
            show();
        });
        void pickUp(id);
    } catch (e) {
        failed(e);
        if (e instanceof ApiError && e.status === 404) startNew();
    } finally {
        if (mine === opening) loading.value = false;
    }
}

// Another tab or device has changed the conversation that is shown: what is new there joins the tree here.
export async function catchUp(): Promise<void> {
    const c = current.value;
    if (!c || writing.value) return;
    try {
        const now = await get<Conversation>(url(c.id));
        if (now.version === c.version) return;
        const items = await itemsOf(c.id, () => current.value?.id === c.id && !writing.value);
        if (current.value?.id !== c.id || writing.value) return;
        const there = new Set(items.map((x) => x.id));
        for (const id of saved) if (!there.has(id) && tree.value.turns.has(id)) tree.value.drop(id);
        saved.clear();
        for (const item of items) {
            saved.add(item.id);
            if (item.role) tree.value.put(toTurn(item));
        }
        batch(() => {
            current.value = now;
            chat.value = { ...plainChat, ...now.settings };
            show();
        });
    } catch (e) {
        if (e instanceof ApiError && e.status === 404) startNew();
    }
}
function changed(id = current.value?.id ?? ""): void {
    tabs?.postMessage(id);
}
tabs?.addEventListener("message", (e) => {
    void loadConversations().catch(() => {});
    if (e.data === current.value?.id) void catchUp();
});
document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") void catchUp();
});

// The list with this one first of its kind, as the server orders it: those that are pinned, then the others.
function newest(c: Conversation): Conversation[] {
    const rest = conversations.value.filter((x) => x.id !== c.id);
    const at = c.pinned ? 0 : rest.filter((x) => x.pinned).length;
    return [...rest.slice(0, at), c, ...rest.slice(at)];
}

async function ensure(first: string): Promise<void> {
    if (current.value || !keeps.value) return;
    const title = first.replace(/\s+/g, " ").trim().slice(0, 60) || t("chat.untitled");
    try {
        const c = await post<Conversation>("/v1/conversations", { title, settings: chat.value });
        current.value = c;
        conversations.value = newest(c);
        history.replaceState(null, "", `#/c/${c.id}`);
    } catch (e) {
        if (e instanceof ApiError && e.status === 404) keeps.value = false;
        else throw e;
    }
}

// The id of this conversation, which begins now if nothing was said in it; "": the server keeps none.
export async function begin(): Promise<string> {
    await inOrder(() => ensure(""));
    return current.value?.id ?? "";
}

// A turn, and those before it that could not be kept when they came.
let queue: Promise<unknown> = Promise.resolve();
function inOrder<T>(act: () => Promise<T>): Promise<T> {
    const done = queue.then(act);
    queue = done.catch(() => {});
    return done;
}
const store = (turn: Turn) => inOrder(() => storeNow(turn));
async function storeNow(turn: Turn): Promise<void> {
    if (!keeps.value) return;
    const line = tree.value.to(turn.id);
    await ensure(line[0]?.text ?? "");
    const c = current.value;
    if (!c) return;
    const fresh = line.filter((x) => !saved.has(x.id));
    const res = saved.has(turn.id)
        ? await send("POST", url(c.id, `/items/${encodeURIComponent(turn.id)}`), toItem(turn))
        : await send("POST", url(c.id, "/items"), { items: fresh.map(toItem) });
    for (const x of fresh) saved.add(x.id);
    const missed = versionOf(res) !== c.version + 1;
    const now = { ...c, updated_at: Math.floor(Date.now() / 1000), version: missed ? c.version : versionOf(res) };
    if (current.value?.id === c.id) current.value = now;
    conversations.value = newest(now);
    changed();
    if (missed) await catchUp();
}

function remember(id: string): void {
    tree.value.choose(id);
    if (current.value) keep(`chimere.leaf.${current.value.id}`, id);
    show();
}

// Answers that the server goes on with while this tab is loaded again or shows another conversation: by conversation.
interface Pending {
    answer: string;
    turn: Turn;
}
const PENDING = "chimere.pending";
function pending(): Record<string, Pending> {
    try {
        return JSON.parse(sessionStorage.getItem(PENDING) ?? "{}");
    } catch {
        return {};
    }
}
function setPending(id: string, p: Pending | null): void {
    const all = pending();
    if (p) all[id] = p;
    else delete all[id];
    try {
        sessionStorage.setItem(PENDING, JSON.stringify(all));
    } catch {
        // the answer is lost if the page is loaded again
    }
}

const TRIES = 5; // to read on after the connection broke
async function run(turn: Turn, body: Record<string, unknown> | string, tries = 0): Promise<void> {
    const id = current.value?.id ?? "";
    const mine: Running = { control: new AbortController(), answer: "", leaves: false };
    const before = { ...turn };
    running = mine;
    writing.value = turn.id;
    announcement.value = t("status.answering");
    let scheduled = false;
    const grew = () => {
        if (scheduled) return;
        scheduled = true;
        requestAnimationFrame(() => {
            scheduled = false;
            revision.value++;
        });
    };
    const whole = await answer(turn, body, grew, mine.control.signal, (name) => {
        mine.answer = name;
        if (id && name) setPending(id, { answer: name, turn: before });
    });
    if (mine.leaves) return;
    if (running === mine) running = null;
    if (writing.value === turn.id) writing.value = null;
    if (!whole && id && tries < TRIES) {
        setTimeout(() => current.value?.id === id && void pickUp(id, tries + 1), 1000 * (tries + 1));
        tree.value.put({ ...turn });
        return show();
    }
    if (id) setPending(id, null);
    delete turn.waits;
    if ((current.value?.id ?? "") !== id) return;
    tree.value.put({ ...turn });
    show();
    announcement.value = turn.error ? turn.error : t("status.done", { n: turn.text.split(/\s+/).filter(Boolean).length });
    try {
        await store(turn);
    } catch (e) {
        failed(e);
    }
}

// The server goes on with an answer of this conversation that nobody has read to its end.
async function pickUp(id: string, tries = 0): Promise<void> {
    const p = pending()[id];
    if (!p || writing.value) return;
    if (p.turn.parent && !tree.value.turns.has(p.turn.parent)) return setPending(id, null);
    const turn = { ...p.turn };
    tree.value.put(turn);
    remember(turn.id);
    await run(turn, p.answer, tries);
    if (!turn.text && !turn.thinking && turn.error && current.value?.id === id) await drop(turn.id); // it is too late
}

interface Running {
    control: AbortController;
    answer: string; // its name at the server
    leaves: boolean; // another conversation is shown; the server goes on
}
let running: Running | null = null;
export function stop(): void {
    if (running?.answer) void remove(`/chimere/v1/answers/${encodeURIComponent(running.answer)}`).catch(() => {});
    running?.control.abort();
    running = null;
}
function detach(): void {
    if (!running) return;
    if (!running.answer || !current.value) return stop();
    running.leaves = true;
    running.control.abort();
    running = null;
    writing.value = null;
}

// A message of the user after `parent` ("": first), and the answer to it.
// begins: called with the id of the answer as soon as it begins.
export async function ask(text: string, files: Attachment[], parent: string, begins?: (id: string) => void): Promise<void> {
    if (writing.value) return;
    const user: Turn = { id: newId("msg_"), parent, role: "user", text, at: Date.now(), ...(files.length ? { files } : {}) };
    tree.value.put(user);
    remember(user.id);
    try {
        await store(user);
    } catch (e) {
        failed(e);
    }
    await reply(user.id, [], begins);
}

// confirm: tools that this one answer may use.
export async function reply(parent: string, confirm: string[] = [], begins?: (id: string) => void): Promise<void> {
    if (writing.value) return;
    const turn: Turn = { id: newId("msg_"), parent, role: "assistant", text: "", at: Date.now(), model: model.value, budget: budgetOf(chat.value) ?? undefined };
    tree.value.put(turn);
    remember(turn.id);
    begins?.(turn.id);
    await run(turn, requestOf(tree.value.to(parent), { ...chat.value, model: model.value }, confirm, false));
}

// The user's permission for a call that waits, or its refusal; the answer continues in the same stream.
export async function permit(turn: Turn, id: string, allow: boolean): Promise<void> {
    turn.waits = turn.waits?.filter((w) => w.id !== id);
    revision.value++;
    await post("/v1/confirm", { id, allow }).catch(failed);
}

// The user's word on the tools that an answer waits for; without it the answer stays as it is.
export async function allow(id: string, always: boolean): Promise<void> {
    const turn = tree.value.turns.get(id);
    if (!turn?.asks) return;
    const names = turn.asks;
    settle(id);
    if (always) setChat({ confirm: [...new Set([...chat.value.confirm, ...names])] });
    await reply(turn.parent, names);
}
export function settle(id: string): void {
    const turn = tree.value.turns.get(id);
    if (!turn?.asks) return;
    const next = { ...turn, asks: undefined };
    tree.value.put(next);
    show();
    void store(next).catch(failed);
}

export async function goOn(id: string): Promise<void> {
    const old = tree.value.turns.get(id);
    if (!old || writing.value) return;
    const turn: Turn = { ...old, error: undefined, finish: undefined };
    tree.value.put(turn);
    show();
    await run(turn, requestOf(tree.value.to(id), { ...chat.value, model: model.value }, [], true));
}

export async function edit(id: string, text: string): Promise<void> {
    const old = tree.value.turns.get(id);
    if (!old) return;
    if (old.role === "user") return ask(text, old.files ?? [], old.parent);
    const turn: Turn = { ...old, id: newId("msg_"), text, at: Date.now() };
    tree.value.put(turn);
    remember(turn.id);
    await store(turn).catch(failed);
}

export async function drop(id: string): Promise<void> {
    const gone = tree.value.drop(id);
    show();
    const c = current.value;
    if (!c || !saved.has(id)) return;
    for (const x of gone) saved.delete(x);
    try {
        const now = await remove<Conversation>(url(c.id, `/items/${encodeURIComponent(id)}?below=true`));
        if (current.value?.id === c.id && now.version === current.value.version + 1) current.value = now;
        changed();
    } catch (e) {
        failed(e);
    }
}

export function branch(id: string, step: number): void {
    const all = tree.value.siblings(id);
    const next = all[all.indexOf(id) + step];
    if (next) remember(tree.value.leaf(next));
}

export const goTo = (id: string) => remember(tree.value.leaf(id));

export async function rate(id: string, rating: "up" | "down", comment?: string): Promise<void> {
    const turn = tree.value.turns.get(id);
    if (!turn) return;
    const next = { ...turn, rating };
    const least = limits.value.min_learned_bytes;
    if (rating === "up" && new TextEncoder().encode(turn.text).length < least) say(t("turn.short", { n: least }));
    tree.value.put(next);
    show();
    try {
        if (turn.answer) await post("/v1/feedback", { answer: turn.answer, rating, ...(comment ? { comment } : {}) });
    } catch (e) {
        if (!(e instanceof ApiError && e.status === 404)) failed(e); // the pipeline keeps no answers
    }
    await store(next).catch(failed);
}

// Against the version that is shown; if another tab was faster, against the one that there is now.
const put = (id: string, part: Partial<Conversation>) => inOrder(() => putNow(id, part));
async function putNow(id: string, part: Partial<Conversation>): Promise<void> {
    const known = current.value?.id === id ? current.value : conversations.value.find((c) => c.id === id);
    let c: Conversation;
    try {
        c = await (await send("POST", url(id), part, undefined, known ? { "If-Match": `"${known.version}"` } : {})).json();
    } catch (e) {
        if (!(e instanceof ApiError && e.status === 412)) throw e;
        if (current.value?.id === id) await catchUp();
        c = await post<Conversation>(url(id), part);
    }
    if (current.value?.id === id) {
        current.value = c;
        chat.value = { ...plainChat, ...c.settings };
    }
    conversations.value = conversations.value.map((x) => (x.id === id ? { ...x, ...c } : x));
    changed();
}
export async function update(id: string, part: Partial<Conversation>): Promise<void> {
    try {
        await put(id, part);
        await loadConversations();
    } catch (e) {
        failed(e);
    }
}
export async function removeConversation(id: string): Promise<void> {
    try {
        await remove(url(id));
        keep(`chimere.leaf.${id}`, null);
        if (current.value?.id === id) startNew();
        changed(id);
        await loadConversations();
    } catch (e) {
        failed(e);
    }
}

export function setChat(part: Partial<ChatSettings>): void {
    chat.value = { ...chat.value, ...part };
    const c = current.value;
    if (c && keeps.value) void put(c.id, { settings: chat.value }).catch(failed);
    else change({ defaults: { ...settings.value.defaults, model: chat.value.model } });
}
