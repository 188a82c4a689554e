// Documents.tsx: documents that the server keeps, of one collection or of all that the key reads: added, searched, deleted.
import { useEffect, useRef, useState } from "preact/hooks";
import { bytes, named, number, t } from "../i18n";
import { ApiError, get, maybe, remove, upload } from "../lib/api";
import { failed, say } from "../lib/state";
import { filesOf } from "../lib/files";
import { Icon, IconButton } from "./icons";

export interface Doc {
    name: string;
    title: string;
    collection: string;
    bytes: number;
    chunks: number;
    has_vectors: boolean;
}
interface Docs {
    data: Doc[];
    has_more: boolean;
    last_id: string | null;
    has_vectors: boolean;
    has_reranker: boolean;
}
interface Hit {
    name: string;
    title: string;
    heading: string;
    text: string;
    page: number;
    line: number;
    score: number;
}
const DOCS = 200; // on one page
const MOST_COLLECTIONS = 100; // to choose from
const query = (values: Record<string, string>) => new URLSearchParams(values).toString();

// Names of all collections that the key reads: one document of each, then on to the first of the next one.
export async function collections(): Promise<string[]> {
    const names: string[] = [];
    while (names.length < MOST_COLLECTIONS) {
        const from: Record<string, string> = names.length ? { after: `${names[names.length - 1]}\t\u{10ffff}` } : {};
        const next = (await maybe<Docs>(`/chimere/v1/documents?${query({ limit: "1", ...from })}`))?.data[0];
        if (!next) break;
        names.push(next.collection);
    }
    return names;
}

function Add({ target, done }: { target: () => Promise<string>; done: () => void }) {
    const picker = useRef<HTMLInputElement>(null);
    const folder = useRef<HTMLInputElement>(null);
    const [over, setOver] = useState(false);
    const [busy, setBusy] = useState<{ at: number; all: number; name: string } | null>(null);
    const [wrong, setWrong] = useState<string[]>([]);
    const add = async (list: { name: string; file: File }[]) => {
        const errors: string[] = [];
        for (let i = 0; i < list.length; i++) {
            setBusy({ at: i, all: list.length, name: list[i].name });
            try {
                const collection = await target();
                await upload(`/chimere/v1/documents?${query({ name: list[i].name, ...(collection ? { collection } : {}) })}`, list[i].file);
            } catch (e) {
                errors.push(`${list[i].name}: ${(e as Error).message}`);
                if (e instanceof ApiError && (e.status === 401 || e.status === 403)) break;
            }
        }
        setBusy(null);
        setWrong(errors);
        if (list.length > errors.length) say(t("docs.added", { n: list.length - errors.length }));
        done();
    };
    const picked = (e: { currentTarget: HTMLInputElement }) => {
        const list = [...(e.currentTarget.files ?? [])].map((file) => ({ name: file.webkitRelativePath || file.name, file }));
        e.currentTarget.value = "";
        void add(list);
    };
    return (
        <div
            class={`drop ${over ? "over" : ""}`}
            onDragOver={(e) => {
                e.preventDefault();
                setOver(true);
            }}
            onDragLeave={() => setOver(false)}
            onDrop={async (e) => {
                e.preventDefault();
                setOver(false);
                if (e.dataTransfer) void add(await filesOf(e.dataTransfer));
            }}
        >
            <p>{t("docs.drop")}</p>
            <div class="row">
                <button type="button" class="button" disabled={!!busy} onClick={() => picker.current?.click()}><Icon name="plus" />{t("docs.files")}</button>
                <button type="button" class="button" disabled={!!busy} onClick={() => folder.current?.click()}><Icon name="plus" />{t("docs.folder")}</button>
            </div>
            <input ref={picker} type="file" multiple class="offscreen" tabIndex={-1} aria-label={t("docs.files")} onChange={picked} />
            <input ref={(el) => { folder.current = el; el?.setAttribute("webkitdirectory", ""); }} type="file" multiple class="offscreen" tabIndex={-1} aria-label={t("docs.folder")} onChange={picked} />
            {busy ? (
                <>
                    <progress value={busy.at} max={busy.all} aria-label={t("docs.reading", { name: busy.name })} />
                    <p class="quiet" role="status">{t("docs.reading", { name: busy.name })} · {busy.at + 1}/{busy.all}</p>
                </>
            ) : null}
            {wrong.length ? (
                <ul class="error" role="alert">
                    {wrong.slice(0, 20).map((w) => <li key={w}>{w}</li>)}
                </ul>
            ) : null}
        </div>
    );
}

function Search({ collection }: { collection: string }) {
    const [text, setText] = useState("");
    const [found, setFound] = useState<{ data: Hit[]; ranking: string; coverage: number } | null>(null);
    const search = async () => {
        if (!text.trim()) return;
        try {
            setFound(await get(`/chimere/v1/documents/search?${query({ query: text, limit: "8", collection })}`));
        } catch (e) {
            failed(e);
        }
    };
    return (
        <>
            <form class="row" onSubmit={(e) => { e.preventDefault(); void search(); }}>
                <label class="field">
                    <span>{t("docs.search")}</span>
                    <input type="search" value={text} onInput={(e) => setText(e.currentTarget.value)} />
                </label>
                <button type="submit" class="button primary">{t("side.search")}</button>
            </form>
            {found ? (
                <div aria-live="polite">
                    <p class="quiet">{found.data.length ? t("docs.found", { n: found.data.length, how: named("is", found.ranking), c: number(found.coverage * 100) }) : t("side.none")}</p>
                    <ol class="cards" aria-label={t("docs.results")}>
                        {found.data.map((h, i) => (
                            <li class="card" key={i}>
                                <div class="card-head">
                                    <strong>{h.title || h.name}</strong>
                                    <span class="quiet">{t("docs.score", { n: number(h.score, 3) })}</span>
                                </div>
                                <p class="quiet">
                                    {h.name}
                                    {h.page ? ` · ${t("source.page", { n: h.page })}` : ""}
                                    {h.line ? ` · ${t("source.line", { n: h.line })}` : ""}
                                    {h.heading ? ` · ${h.heading}` : ""}
                                </p>
                                <blockquote class="passage" tabIndex={0}>{h.text}</blockquote>
                            </li>
                        ))}
                    </ol>
                </div>
            ) : null}
        </>
    );
}

// collection: "": all that the key reads; null: there is none yet. target: which one a file is added to. changed: after
// each reading. emptied: after the last document was deleted.
export function Documents({ collection, target, changed, emptied }: { collection: string | null; target: () => Promise<string>; changed?: () => void; emptied?: () => void }) {
    const [docs, setDocs] = useState<Docs | null | undefined>(undefined);
    const wanted = useRef(collection);
    wanted.current = collection;
    const read = (more: Record<string, string> = {}) => maybe<Docs>(`/chimere/v1/documents?${query({ limit: String(DOCS), collection: wanted.current ?? "", ...more })}`);
    const load = async () => {
        const of = wanted.current;
        if (of === null) {
            setDocs({ data: [], has_more: false, last_id: null, has_vectors: true, has_reranker: false });
            return null;
        }
        try {
            const list = await read();
            if (of !== wanted.current) return null;
            setDocs(list);
            if (list) changed?.();
            return list;
        } catch (e) {
            failed(e);
            return null;
        }
    };
    useEffect(() => void load(), [collection]);
    const further = async () => {
        try {
            const next = await read({ after: docs!.last_id! });
            if (next) setDocs({ ...next, data: [...docs!.data, ...next.data] });
        } catch (e) {
            failed(e);
        }
    };
    const drop = async (d: Doc) => {
        try {
            await remove(`/chimere/v1/documents?${query({ name: d.name, collection: d.collection })}`);
        } catch (e) {
            failed(e);
        }
        if ((await load())?.data.length === 0) emptied?.();
    };
    if (docs === null) return <p class="quiet">{t("docs.none.here")}</p>;
    return (
        <>
            <Add target={target} done={() => void load()} />
            {collection === null ? null : <Search key={collection} collection={collection} />}
            <h3>{t("docs.list", { n: `${number(docs?.data.length ?? 0)}${docs?.has_more ? "+" : ""}` })}</h3>
            {docs?.data.length ? (
                <div class="table-box" tabIndex={0} role="region" aria-label={t("docs")}>
                    <table>
                        <thead>
                            <tr><th scope="col">{t("docs.name")}</th><th scope="col" class="number">{t("docs.size")}</th><th scope="col" class="number wide-only">{t("docs.chunks")}</th><th scope="col" class="wide-only">{t("docs.collection")}</th><th scope="col"><span class="offscreen">{t("side.delete")}</span></th></tr>
                        </thead>
                        <tbody>
                            {docs.data.map((d) => (
                                <tr key={`${d.collection}/${d.name}`}>
                                    <th scope="row">{d.title}{d.title === d.name ? null : <span class="quiet"> {d.name}</span>}</th>
                                    <td class="number">{bytes(d.bytes)}</td>
                                    <td class="number wide-only">{number(d.chunks)}</td>
                                    <td class="wide-only">{d.collection}</td>
                                    <td class="number"><IconButton icon="trash" name={t("docs.delete", { name: d.title })} act={() => void drop(d)} /></td>
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </div>
            ) : (
                <p class="quiet">{docs ? t("docs.empty") : t("loading")}</p>
            )}
            {docs?.has_more ? <p><button type="button" class="button" onClick={() => void further()}>{t("side.further")}</button></p> : null}
            {docs && !docs.has_vectors ? <p class="quiet">{t("docs.words")}</p> : null}
        </>
    );
}
