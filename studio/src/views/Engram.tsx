// Engram.tsx: tables of n-grams: what they hold, what they know of a text token by token, what they would say next.
import { useEffect, useState } from "preact/hooks";
import { bytes, number, t } from "../i18n";
import { maybe, post, remove, upload } from "../lib/api";
import { failed, models, say } from "../lib/state";

interface Table {
    name: string;
    error?: string;
    bytes?: number;
    contexts?: number;
    documents?: number;
    sources?: string[];
}
export interface Evidence {
    tokens: { text: string; order: number; share: number }[];
    next: { order: number; count: number; documents: number; source: string; next: { text: string; share: number }[] }[];
}
const heat = (x: { order: number; share: number }) => (x.order ? Math.min(4, Math.floor(x.share * 4) + (x.share > 0 ? 1 : 0)) : 0);

// A text, each token underlined by what the table knows of it.
export function Heat({ of }: { of: Evidence["tokens"] }) {
    return (
        <p class="heat" tabIndex={0} role="region" aria-label={t("engram.known")}>
            {of.map((x, i) => <span key={i} class={`heat-${heat(x)}`} title={t("engram.token", { order: x.order, share: number(x.share * 100) })}>{x.text}</span>)}
        </p>
    );
}

function ModelChoice() {
    return (
        <label class="field">
            <span>{t("model")}</span>
            <select name="model">{models.value.filter((m) => !/^odo(:|$)/.test(m.id)).map((m) => <option key={m.id} value={m.id}>{m.id}</option>)}</select>
        </label>
    );
}

function Make({ load }: { load: () => void }) {
    const submit = async (form: HTMLFormElement) => {
        const data = new FormData(form);
        const name = String(data.get("name"));
        try {
            const made = await upload<Table>(`/chimere/v1/engram?name=${encodeURIComponent(name)}&model=${encodeURIComponent(String(data.get("model")))}`, data.get("file") as File);
            say(t("engram.made", { name, n: number(made.contexts ?? 0) }));
            form.reset();
            load();
        } catch (e) {
            failed(e);
        }
    };
    return (
        <form class="row" onSubmit={(e) => { e.preventDefault(); void submit(e.currentTarget); }}>
            <label class="field"><span>{t("engram.make.name")}</span><input name="name" type="text" required maxLength={64} pattern="[A-Za-z0-9_\-][A-Za-z0-9_.\-]*" /></label>
            <label class="field"><span>{t("engram.make.file")}</span><input name="file" type="file" required /></label>
            <ModelChoice />
            <button type="submit" class="button">{t("engram.make")}</button>
        </form>
    );
}

function Look({ tables }: { tables: string[] }) {
    const [seen, setSeen] = useState<Evidence | null>(null);
    const submit = async (form: HTMLFormElement) => {
        try {
            setSeen(await post("/chimere/v1/engram/look", Object.fromEntries(new FormData(form))));
        } catch (e) {
            setSeen(null);
            failed(e);
        }
    };
    return (
        <>
            <form onSubmit={(e) => { e.preventDefault(); void submit(e.currentTarget); }}>
                <div class="row">
                    <label class="field"><span>{t("engram.table")}</span><select name="table">{tables.map((n) => <option key={n} value={n}>{n}</option>)}</select></label>
                    <ModelChoice />
                </div>
                <label class="field"><span>{t("engram.text")}</span><textarea name="text" rows={3} required maxLength={20000} /></label>
                <div class="row end"><button type="submit" class="button primary">{t("engram.see")}</button></div>
            </form>
            {seen ? (
                <div class="card">
                    <p class="quiet">{t("engram.known")}</p>
                    <Heat of={seen.tokens} />
                    <h3>{t("engram.next")}</h3>
                    {seen.next.length ? null : <p class="quiet">{t("engram.next.none")}</p>}
                    <ol class="steps" aria-label={t("engram.next")}>
                        {seen.next.map((h, i) => (
                            <li key={i}>
                                <span class="quiet">{t("engram.hit", { order: h.order, n: number(h.count, 1), source: h.source })}</span>
                                <dl>{h.next.map((x, k) => <div key={k}><dt>{number(x.share * 100)} %</dt><dd><code>{x.text}</code></dd></div>)}</dl>
                            </li>
                        ))}
                    </ol>
                </div>
            ) : null}
        </>
    );
}

export function Engram() {
    const [tables, setTables] = useState<Table[] | null | undefined>(undefined);
    const load = () => void maybe<{ data: Table[] }>("/chimere/v1/engram").then((x) => setTables(x ? x.data : null)).catch(failed);
    useEffect(load, []);
    const drop = async (name: string) => {
        await remove(`/chimere/v1/engram/${encodeURIComponent(name)}`).catch(failed);
        load();
    };
    if (!tables) return <p class="quiet">{tables === null ? t("admin.only") : t("loading")}</p>;
    return (
        <>
            {tables.length ? (
                <div class="table-box" tabIndex={0} role="region" aria-label={t("engram")}>
                    <table>
                        <thead><tr><th scope="col">{t("engram.table")}</th><th scope="col" class="number">{t("engram.size")}</th><th scope="col" class="number wide-only">{t("engram.contexts")}</th><th scope="col" class="number wide-only">{t("engram.documents")}</th><th scope="col" class="wide-only">{t("engram.sources")}</th><th scope="col"><span class="offscreen">{t("engram.change")}</span></th></tr></thead>
                        <tbody>
                            {tables.map((x) => (
                                <tr key={x.name}>
                                    <th scope="row">{x.name}</th>
                                    <td class="number">{bytes(x.bytes ?? 0)}</td>
                                    <td class="number wide-only">{number(x.contexts ?? 0)}</td>
                                    <td class="number wide-only">{number(x.documents ?? 0)}</td>
                                    <td class={x.error ? "bad" : "wide-only"}>{x.error ?? x.sources?.join(", ")}</td>
                                    <td class="number"><button type="button" class="button" aria-label={t("engram.delete", { name: x.name })} onClick={() => void drop(x.name)}>{t("engram.change")}</button></td>
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </div>
            ) : <p class="quiet">{t("engram.none")}</p>}
            <h3>{t("engram.make")}</h3>
            <Make load={load} />
            {tables.some((x) => !x.error) ? <><h3>{t("engram.look")}</h3><Look tables={tables.filter((x) => !x.error).map((x) => x.name)} /></> : null}
        </>
    );
}
