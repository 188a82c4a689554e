// Models.tsx: models that answer, those on disk with the memory that each would take, and where to get others.
import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { bytes, number, t } from "../i18n";
import { ApiError, lines, maybe, post, send } from "../lib/api";
import { failed, loadModels, models, say } from "../lib/state";
import { IconButton } from "./icons";
import { Screen, Stack } from "./Screen";

interface OnDemand {
    id: string;
    state: string;
    running: number;
    bytes?: number;
    n_ctx?: number;
    error?: string;
}
interface Status {
    models: { name: string; running: number; slots: number; context_free: number }[];
    on_demand: OnDemand[];
}
interface OnDisk {
    name: string;
    error?: string;
    plan?: Plan;
}
// device: the first six are in graphics memory, and host is what the processor's memory holds besides.
interface Plan {
    weights: number;
    cache: number;
    state: number;
    scratch: number;
    program: number;
    total: number;
    n_ctx: number;
    slots: number;
    fits: boolean;
    device: boolean;
    budget: number;
    host: number;
    host_budget: number;
    experts: { device: number; memory: number; disk: number; slots: boolean };
}
interface Recommended {
    name: string;
    hub: string | null;
    type: string;
    bytes: number;
    licence: string;
    kind: string;
    good_at: string;
    fits: boolean;
    n_ctx: number;
    decode_tok_s: number | null;
    prefill_tok_s: number | null;
}

interface Measured {
    model: string;
    View: ComponentType<{ model: string; vocab: number; ctx: number; slots: number; close: () => void }>;
}
function Serving({ status, load }: { status: Status | null; load: () => void }) {
    const [busy, setBusy] = useState("");
    const [measured, setMeasured] = useState<Measured | null>(null);
    const measure = (model: string) =>
        void import("./Bench").then(
            (m) => setMeasured({ model, View: m.default }),
            () => failed(new ApiError("offline", 0, "offline", 0)),
        );
    const change = async (what: "load" | "unload", model: string) => {
        setBusy(model);
        try {
            await post(`/models/${what}`, { model });
            await loadModels();
        } catch (e) {
            failed(e);
        }
        setBusy("");
        load();
    };
    const rows = new Map(status?.on_demand.map((m) => [m.id, m]));
    const of = models.value.find((m) => m.id === measured?.model);
    return (
        <>
            <div class="table-box" tabIndex={0} role="region" aria-label={t("models.serving")}>
                <table>
                    <thead>
                        <tr><th scope="col">{t("model")}</th><th scope="col">{t("models.state")}</th><th scope="col" class="number wide-only">{t("models.context")}</th><th scope="col" class="number wide-only">{t("models.memory")}</th><th scope="col"><span class="offscreen">{t("models.change")}</span></th></tr>
                    </thead>
                    <tbody>
                        {models.value.filter((m) => !m.id.startsWith("odo:")).map((m) => {
                            const row = rows.get(m.id);
                            const ctx = row?.n_ctx ?? m.meta?.n_ctx;
                            return (
                                <tr key={m.id}>
                                    <th scope="row">{m.id}{row?.error ? <p class="error">{row.error}</p> : null}</th>
                                    <td>{busy === m.id ? t("loading") : row ? t(row.state === "ready" ? "models.ready" : row.state === "failed" ? "models.failed" : row.state === "loading" ? "loading" : "models.listed") : t("models.ready")}</td>
                                    <td class="number wide-only">{ctx ? number(ctx) : "–"}</td>
                                    <td class="number wide-only">{row?.bytes ? bytes(row.bytes) : "–"}</td>
                                    <td class="number">
                                        {m.meta?.n_vocab && (!row || row.state === "ready") ? (
                                            <button type="button" class="button" aria-label={t("bench.this", { name: m.id })} onClick={() => measure(m.id)}>{t("bench.start")}</button>
                                        ) : null}
                                        {!row ? null : row.state === "ready" ? (
                                            <button type="button" class="button" disabled={!!busy || row.running > 0} onClick={() => void change("unload", m.id)}>{t("models.unload")}</button>
                                        ) : (
                                            <button type="button" class="button" disabled={!!busy} onClick={() => void change("load", m.id)}>{t("models.load")}</button>
                                        )}
                                    </td>
                                </tr>
                            );
                        })}
                    </tbody>
                </table>
            </div>
            {measured && of?.meta?.n_vocab ? (
                <measured.View
                    model={measured.model}
                    vocab={of.meta.n_vocab}
                    ctx={rows.get(of.id)?.n_ctx ?? of.meta.n_ctx ?? 2048}
                    slots={status?.models.find((m) => m.name === of.id)?.slots ?? 1}
                    close={() => setMeasured(null)}
                />
            ) : null}
        </>
    );
}

interface Smaller {
    model: string;
    View: ComponentType<{ model: string; close: () => void; done: () => void }>;
}
// What the memory will hold, and for a mixture on which tier its experts will be.
function PlanBars({ plan }: { plan: Plan }) {
    const { device, memory, disk, slots } = plan.experts;
    const near = plan.device ? device : memory; // experts that are part of the weights of the first bar
    const tiers: [string, number][] = [
        [t(slots ? "models.tier.slots" : "models.tier.device"), device],
        [t("models.tier.memory"), memory],
        [t("models.tier.disk"), disk],
    ];
    return (
        <>
            {plan.device ? <p class="quiet bar-name">{t("models.bar.device")}</p> : null}
            <Stack
                name={t(plan.device ? "models.plan.device" : "models.plan")}
                most={plan.budget}
                show={bytes}
                parts={[
                    [t("models.weights"), plan.weights - near],
                    [t("models.experts"), near],
                    [t("models.cache"), plan.cache],
                    [t("models.states"), plan.state],
                    [t("models.scratch"), plan.scratch + (plan.device ? 0 : plan.program)],
                ]}
            />
            {plan.device ? (
                <>
                    <p class="quiet bar-name">{t("models.bar.memory")}</p>
                    <Stack name={t("models.plan")} most={plan.host_budget} show={bytes} parts={[[t("models.weights"), 0], [t("models.experts"), memory], [t("models.cache"), 0], [t("models.states"), 0], [t("models.scratch"), plan.host - memory]]} />
                </>
            ) : null}
            {device || memory || disk ? (
                <div class="tiers">
                    <p class="quiet">{t(disk ? "models.tiers.disk" : slots ? "models.tiers.slots" : "models.tiers")}</p>
                    <Stack name={t("models.tiers.name")} show={bytes} parts={tiers} />
                </div>
            ) : null}
        </>
    );
}
function Disk({ disk, load }: { disk: { folder: string; memory: number; data: OnDisk[] }; load: () => void }) {
    const [smaller, setSmaller] = useState<Smaller | null>(null);
    const open = (model: string) =>
        void import("./Ramp").then(
            (m) => setSmaller({ model, View: m.default }),
            () => failed(new ApiError("offline", 0, "offline", 0)),
        );
    return (
        <>
            <p class="quiet">{t("models.disk.about", { folder: disk.folder, n: bytes(disk.memory) })}</p>
            <ul class="cards" aria-label={t("models.disk")}>
                {disk.data.map((m) => (
                    <li class="card" key={m.name}>
                        <div class="card-head">
                            <strong>{m.name}</strong>
                            {m.plan ? <span class={m.plan.fits ? "good" : "bad"}>{t(m.plan.fits ? "models.fits" : "models.too.large")}</span> : null}
                            {m.plan ? <button type="button" class="button" aria-label={t("ramp.make.this", { name: m.name })} onClick={() => open(m.name)}>{t("ramp.make")}</button> : null}
                        </div>
                        {m.plan ? (
                            <>
                                <PlanBars plan={m.plan} />
                                <p class="quiet">{t("models.plan.about", { total: bytes(m.plan.total), n: number(m.plan.n_ctx), slots: m.plan.slots })}</p>
                            </>
                        ) : (
                            <p class="error">{m.error}</p>
                        )}
                    </li>
                ))}
            </ul>
            {disk.data.length ? null : <p class="quiet">{t("models.disk.empty")}</p>}
            {smaller ? <smaller.View model={smaller.model} close={() => setSmaller(null)} done={load} /> : null}
        </>
    );
}


function Pull({ done, name, setName }: { done: () => void; name: string; setName: (name: string) => void }) {
    const [at, setAt] = useState<{ file: string; index: number; files: number; step: string; done: number; total: number } | null>(null);
    const [error, setError] = useState("");
    const abort = useRef<AbortController | null>(null);
    useEffect(() => () => abort.current?.abort(), []);
    const pull = async () => {
        abort.current = new AbortController();
        setError("");
        try {
            const res = await send("POST", "/chimere/v1/models/pull", { model: name.trim() }, abort.current.signal);
            for await (const line of lines(res)) {
                const l = line as any;
                if (l.error) setError(l.error.message);
                else if (l.path) say(t("models.pulled", { path: l.path }));
                else setAt(l);
            }
        } catch (e) {
            if ((e as Error).name === "AbortError") setError(t("models.resume"));
            else setError(String((e as Error).message));
        }
        abort.current = null;
        setAt(null);
        done();
    };
    return (
        <>
            <form class="row" onSubmit={(e) => { e.preventDefault(); if (name.trim()) void pull(); }}>
                <label class="field">
                    <span>{t("models.pull.name")}</span>
                    <input type="text" value={name} placeholder="hf:OWNER/REPO:Q4_K_M" onInput={(e) => setName(e.currentTarget.value)} />
                </label>
                {abort.current ? (
                    <button type="button" class="button" onClick={() => abort.current?.abort()}>{t("models.pull.stop")}</button>
                ) : (
                    <button type="submit" class="button primary">{t("models.pull")}</button>
                )}
            </form>
            {at ? (
                <>
                    <progress value={at.done} max={at.total || 1} aria-label={at.file} />
                    <p class="quiet" role="status">{at.step === "checking" ? t("models.checking") : ""} {at.file} · {bytes(at.done)} / {bytes(at.total)}{at.files > 1 ? ` · ${at.index}/${at.files}` : ""}</p>
                </>
            ) : null}
            {error ? <p class="error" role="alert">{error}</p> : null}
        </>
    );
}

function Recommend({ pick }: { pick: (name: string) => void }) {
    const [list, setList] = useState<{ models: Recommended[]; best: string | null } | null>(null);
    const [busy, setBusy] = useState(false);
    const load = async () => {
        setBusy(true);
        setList(await maybe<{ models: Recommended[]; best: string | null }>("/chimere/v1/recommend").catch(() => null));
        setBusy(false);
    };
    if (!list) return <button type="button" class="button" disabled={busy} onClick={() => void load()}>{busy ? t("loading") : t("models.measure")}</button>;
    const rate = (n: number | null) => (n === null ? "–" : number(n, n < 10 ? 1 : 0));
    return (
        <div class="table-box" tabIndex={0} role="region" aria-label={t("models.recommend")}>
            <table>
                <thead>
                    <tr><th scope="col">{t("model")}</th><th scope="col" class="number">{t("docs.size")}</th><th scope="col">{t("models.fit")}</th><th scope="col" class="number wide-only">{t("models.context")}</th><th scope="col" class="number">{t("models.decode")}</th><th scope="col" class="wide-only">{t("models.good")}</th><th scope="col" class="wide-only">{t("models.licence")}</th><th scope="col"><span class="offscreen">{t("models.pull")}</span></th></tr>
                </thead>
                <tbody>
                    {list.models.map((m) => (
                        <tr key={m.name}>
                            <th scope="row">{m.name}{m.name === list.best ? <span class="good"> {t("models.best")}</span> : null}</th>
                            <td class="number">{bytes(m.bytes)}</td>
                            <td class={m.fits ? "good" : "bad"}>{m.fits ? t("models.fits") : t("models.too.large")}</td>
                            <td class="number wide-only">{m.fits ? number(m.n_ctx) : "–"}</td>
                            <td class="number">{rate(m.decode_tok_s)}</td>
                            <td class="wide-only">{m.good_at}</td>
                            <td class="wide-only">{m.licence}</td>
                            <td>{m.hub ? <IconButton icon="download" name={t("models.pull.this", { name: m.name })} act={() => pick(m.name)} /> : null}</td>
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

export default function Models() {
    const [status, setStatus] = useState<Status | null>(null);
    const [disk, setDisk] = useState<{ folder: string; memory: number; data: OnDisk[] } | null | undefined>(undefined);
    const [name, setName] = useState("");
    const load = () => {
        void maybe<Status>("/v1/status").then(setStatus).catch(failed);
        void maybe<{ folder: string; memory: number; data: OnDisk[] }>("/chimere/v1/models").then(setDisk).catch(failed);
    };
    useEffect(load, []);
    return (
        <Screen title={t("screen.models")}>
            <h2>{t("models.serving")}</h2>
            <Serving status={status} load={load} />
            {status && !status.on_demand.length ? <p class="quiet">{t("models.also")}</p> : null}
            {disk === null ? (
                <p class="quiet">{t("admin.only")}</p>
            ) : (
                <>
                    <h2>{t("models.disk")}</h2>
                    {disk ? <Disk disk={disk} load={load} /> : <p class="quiet">{t("loading")}</p>}
                    <h2>{t("models.get")}</h2>
                    <Pull done={load} name={name} setName={setName} />
                </>
            )}
            <h2>{t("models.recommend")}</h2>
            <p class="quiet">{t("models.recommend.about")}</p>
            <Recommend pick={setName} />
        </Screen>
    );
}
