// Evidence.tsx: what a table of n-grams knows of an answer, token by token.
import "../style/screens.css";
import { useEffect, useState } from "preact/hooks";
import { number, t } from "../i18n";
import { maybe, post } from "../lib/api";
import { failed, models } from "../lib/state";
import type { Turn } from "../lib/tree";
import { Dialog } from "./Dialog";
import { Heat, type Evidence as Seen } from "./Engram";

const MOST = 12_000; // characters; the server reads 4,096 tokens
export default function Evidence({ turn, close }: { turn: Turn; close: () => void }) {
    const [tables, setTables] = useState<string[] | null | undefined>(undefined);
    const [table, setTable] = useState("");
    const [seen, setSeen] = useState<Seen | null>(null);
    const own = models.value.filter((m) => !/^odo(:|$)/.test(m.id));
    const model = own.find((m) => m.id === turn.model)?.id ?? own[0]?.id ?? "";
    useEffect(() => {
        maybe<{ data: { name: string; error?: string }[] }>("/chimere/v1/engram").then((x) => {
            const names = x?.data.filter((y) => !y.error).map((y) => y.name) ?? null;
            setTables(names);
            setTable(names?.[0] ?? "");
        }, failed);
    }, []);
    useEffect(() => {
        let wanted = true;
        if (table) post<Seen>("/chimere/v1/engram/look", { model, table, text: turn.text.slice(0, MOST) }).then((x) => wanted && setSeen(x), failed);
        return () => void (wanted = false);
    }, [table]);
    const known = seen?.tokens.filter((x) => x.order && x.share > 0).length ?? 0;
    return (
        <Dialog title={t("evidence")} close={close} kind="wide">
            {!tables?.length ? <p class="quiet">{tables === undefined ? t("loading") : t(tables ? "evidence.none" : "admin.only")}</p> : (
                <>
                    <label class="field">
                        <span>{t("engram.table")}</span>
                        <select value={table} onChange={(e) => setTable(e.currentTarget.value)}>{tables.map((n) => <option key={n} value={n}>{n}</option>)}</select>
                    </label>
                    {seen ? (
                        <>
                            <p class="quiet">{t("evidence.share", { n: number((known / Math.max(1, seen.tokens.length)) * 100), model })}</p>
                            <Heat of={seen.tokens} />
                        </>
                    ) : <p class="quiet">{t("loading")}</p>}
                </>
            )}
        </Dialog>
    );
}
