// Admin.tsx: API keys with their limits and use, and what the server keeps of the caller.
import { useEffect, useState } from "preact/hooks";
import { number, t, when, type Word } from "../i18n";
import { ApiError, get, post, remove, useKey } from "../lib/api";
import { copy } from "../lib/decorate";
import { exported, save } from "../lib/exchange";
import { personas, removePersona } from "../lib/personas";
import { failed, loadConversations, say, startNew, type Conversation } from "../lib/state";
import { Dialog } from "./Dialog";
import { Screen } from "./Screen";

interface Usage {
    requests: number;
    prompt: number;
    generated: number;
}
interface Key {
    name: string;
    identity: string;
    state: "valid" | "expired" | "revoked";
    role: "user" | "admin";
    created_ms: number;
    expires_ms: number;
    active: number;
    per_minute: number;
    tokens_per_day: number;
    today: Usage;
    month: Usage;
}
const limits = ["active", "per_minute", "tokens_per_day"] as const;
const tops = { active: 1 << 20, per_minute: 1 << 30, tokens_per_day: 1e15, days: 36500 };

function Number_({ name, value }: { name: keyof typeof tops; value: number | "" }) {
    return (
        <label class="field">
            <span>{t(`admin.${name}` as Word)}</span>
            <input name={name} type="number" min={0} max={tops[name]} step={1} defaultValue={String(value)} placeholder={t("admin.zero")} />
        </label>
    );
}
function Role({ value, fixed }: { value: Key["role"]; fixed?: boolean }) {
    return (
        <label class="field">
            <span>{t("admin.role")}</span>
            <select name="role" defaultValue={value}>
                {(["user", "admin"] as const).filter((r) => !fixed || r === "admin").map((r) => <option key={r} value={r} selected={r === value}>{t(`admin.role.${r}`)}</option>)}
            </select>
        </label>
    );
}
// Fields that are empty are not said.
function said(form: HTMLFormElement): Record<string, string | number> {
    const out: Record<string, string | number> = {};
    for (const [name, value] of new FormData(form)) if (value !== "") out[name] = name in tops ? Number(value) : String(value).trim();
    return out;
}

const narrow = new Set<Word>(["admin.name", "admin.state"]); // columns that a phone shows
const usage = (u: Usage) => (u.requests ? t("admin.usage", { n: number(u.requests), tokens: number(u.prompt + u.generated) }) : "–");
function Row({ k, load, edit }: { k: Key; load: () => void; edit: () => void }) {
    const [asked, setAsked] = useState(false);
    const revoke = async () => {
        setAsked(false);
        try {
            await remove(`/chimere/v1/keys/${encodeURIComponent(k.name)}`);
            say(t("admin.revoked", { name: k.name }));
        } catch (e) {
            failed(e);
        }
        load();
    };
    const held = limits.filter((l) => k[l]).map((l) => t(`admin.${l}.of`, { n: number(k[l]) }));
    return (
        <tr>
            <th scope="row">{k.name}</th>
            <td class={k.state === "valid" ? "" : "bad"}>{t(`admin.state.${k.state}`)}</td>
            <td class="wide-only">{t(`admin.role.${k.role}`)}</td>
            <td class="wide-only">{held.length ? held.map((l) => <div key={l}>{l}</div>) : t("admin.none")}</td>
            <td class="wide-only">{k.expires_ms ? when(k.expires_ms) : t("admin.never")}</td>
            <td class="wide-only">{usage(k.today)}</td>
            <td class="wide-only">{usage(k.month)}</td>
            <td>
                {k.state === "revoked" ? null : asked ? (
                    <span class="row">
                        <button type="button" class="button" onClick={() => setAsked(false)}>{t("cancel")}</button>
                        <button type="button" class="button primary" onClick={() => void revoke()}>{t("admin.revoke.sure", { name: k.name })}</button>
                    </span>
                ) : (
                    <span class="row">
                        <button type="button" class="button" aria-label={t("admin.limits.of", { name: k.name })} onClick={edit}>{t("admin.limits")}</button>
                        <button type="button" class="button" aria-label={t("admin.revoke.of", { name: k.name })} onClick={() => setAsked(true)}>{t("admin.revoke")}</button>
                    </span>
                )}
            </td>
        </tr>
    );
}

function Limits({ k, done }: { k: Key; done: () => void }) {
    const submit = async (form: HTMLFormElement) => {
        try {
            await post(`/chimere/v1/keys/${encodeURIComponent(k.name)}`, said(form));
            say(t("admin.changed", { name: k.name }));
            done();
        } catch (e) {
            failed(e);
        }
    };
    return (
        <Dialog title={t("admin.limits.of", { name: k.name })} close={done}>
            <form onSubmit={(e) => { e.preventDefault(); void submit(e.currentTarget); }}>
                <div class="grid-2">
                    <Role value={k.role} />
                    {limits.map((l) => <Number_ key={l} name={l} value={k[l]} />)}
                    <Number_ name="days" value="" />
                </div>
                <div class="row end"><button type="submit" class="button primary">{t("save")}</button></div>
            </form>
        </Dialog>
    );
}

function New({ first, made }: { first: boolean; made: (name: string, key: string) => void }) {
    const submit = async (form: HTMLFormElement) => {
        try {
            const k = await post<Key & { key: string }>("/chimere/v1/keys", said(form));
            form.reset();
            if (first) useKey(k.key, false);
            made(k.name, k.key);
        } catch (e) {
            failed(e);
        }
    };
    return (
        <form class="card" aria-label={t("admin.new")} onSubmit={(e) => { e.preventDefault(); void submit(e.currentTarget); }}>
            <div class="row">
                <label class="field">
                    <span>{t("admin.name")}</span>
                    <input name="name" type="text" required maxLength={64} pattern="[^\s\/]+" autocomplete="off" />
                </label>
                <Role key={String(first)} value={first ? "admin" : "user"} fixed={first} />
                {limits.map((l) => <Number_ key={l} name={l} value="" />)}
                {first ? null : <Number_ name="days" value="" />}
            </div>
            {first ? <p class="quiet">{t("admin.first")}</p> : null}
            <div class="row end"><button type="submit" class="button primary">{t("admin.make")}</button></div>
        </form>
    );
}

function Keys() {
    const [list, setList] = useState<{ asks_keys: boolean; data: Key[] } | string | null>(null);
    const [edited, setEdited] = useState<Key | null>(null);
    const [made, setMade] = useState<{ name: string; key: string } | null>(null);
    const load = () => void get<{ asks_keys: boolean; data: Key[] }>("/chimere/v1/keys").then(setList, (e) => {
        if (e instanceof ApiError && [403, 404].includes(e.status)) setList(t("admin.only"));
        else if (e instanceof ApiError && e.status === 501) setList(t("admin.keys.off"));
        else if (e instanceof ApiError && e.status === 400) setList(e.message);
        else failed(e);
    });
    useEffect(load, []);
    if (!list || typeof list === "string") return <p class="quiet">{list ?? t("loading")}</p>;
    const heads: Word[] = ["admin.name", "admin.state", "admin.role", "admin.limits", "admin.expires", "admin.today", "admin.month"];
    return (
        <>
            {list.data.length ? (
                <div class="table-box" tabIndex={0} role="region" aria-label={t("admin.keys")}>
                    <table>
                        <thead>
                            <tr>{heads.map((w) => <th scope="col" key={w} class={narrow.has(w) ? "" : "wide-only"}>{t(w)}</th>)}<th scope="col"><span class="offscreen">{t("admin.change")}</span></th></tr>
                        </thead>
                        <tbody>{list.data.map((k) => <Row key={k.identity} k={k} load={load} edit={() => setEdited(k)} />)}</tbody>
                    </table>
                </div>
            ) : <p class="quiet">{t("admin.keys.none")}</p>}
            <h3>{t("admin.new")}</h3>
            <New first={!list.asks_keys} made={(name, key) => { setMade({ name, key }); load(); }} />
            {edited ? <Limits k={edited} done={() => { setEdited(null); load(); }} /> : null}
            {made ? (
                <Dialog title={t("admin.made", { name: made.name })} close={() => setMade(null)}>
                    <p class="quiet">{t("admin.made.about")}</p>
                    <pre class="plain" tabIndex={0}>{made.key}</pre>
                    <div class="row end"><button type="button" class="button primary" onClick={async () => say((await copy(made.key)) ? t("copied") : t("copy.failed"))}>{t("admin.copy")}</button></div>
                </Dialog>
            ) : null}
        </>
    );
}

async function allConversations(): Promise<Conversation[]> {
    const all: Conversation[] = [];
    for (let after = ""; ; ) {
        const page = await get<{ data: Conversation[]; has_more: boolean }>(`/v1/conversations?limit=100${after ? `&after=${after}` : ""}`);
        all.push(...page.data);
        if (!page.has_more || !page.data.length) return all;
        after = page.data[page.data.length - 1].id;
    }
}

function Mine() {
    const [asked, setAsked] = useState(-1);
    const [busy, setBusy] = useState(false);
    const run = (act: () => Promise<void>) => async () => {
        setBusy(true);
        await act().catch(failed);
        setBusy(false);
    };
    const all = run(async () => {
        const conversations = [];
        for (const c of await allConversations()) conversations.push(await exported(c));
        const memory = (await get<{ data: unknown[] }>("/v1/memory").catch(() => ({ data: [] }))).data;
        save("chimere-data.json", "application/json", JSON.stringify({ format: "chimere.data", version: 1, conversations, memory, personas: personas.value ?? [] }, null, 1));
    });
    const erase = run(async () => {
        setAsked(-1);
        for (const c of await allConversations()) await remove(`/v1/conversations/${c.id}`);
        const facts = (await get<{ data: { id: number | string }[] }>("/v1/memory").catch(() => ({ data: [] }))).data;
        for (const f of facts) await remove(`/v1/memory/${f.id}`);
        for (const p of personas.value ?? []) await removePersona(p.id);
        startNew();
        await loadConversations();
        location.hash = "#/admin";
        say(t("admin.erased"));
    });
    return (
        <>
            <p class="quiet">{t("admin.mine.about")}</p>
            <div class="row">
                <button type="button" class="button" disabled={busy} onClick={() => void all()}>{t("admin.export")}</button>
                {asked < 0 ? (
                    <button type="button" class="button" disabled={busy} onClick={() => void run(async () => setAsked((await allConversations()).length))()}>{t("admin.erase")}</button>
                ) : (
                    <>
                        <button type="button" class="button" onClick={() => setAsked(-1)}>{t("cancel")}</button>
                        <button type="button" class="button primary" onClick={() => void erase()}>{t("admin.erase.sure", { n: asked })}</button>
                    </>
                )}
            </div>
        </>
    );
}

export default function Admin() {
    return (
        <Screen title={t("screen.admin")}>
            <h2>{t("admin.keys")}</h2>
            <p class="quiet">{t("admin.keys.about")}</p>
            <Keys />
            <h2>{t("admin.mine")}</h2>
            <Mine />
        </Screen>
    );
}
