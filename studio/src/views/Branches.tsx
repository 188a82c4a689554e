// Branches.tsx: all versions of a conversation as a tree; what is picked is shown.
import { t } from "../i18n";
import { goTo, path, tree } from "../lib/state";
import { Dialog } from "./Dialog";

const MOST = 500; // messages
interface Row {
    id: string;
    depth: number;
    text: string;
}
// In the order of reading. The messages after one with a single answer stay at its depth.
function rows(): Row[] {
    const out: Row[] = [];
    const next = tree.value.below("").map((id) => ({ id, depth: 0 })).reverse();
    for (let x = next.pop(); x && out.length < MOST; x = next.pop()) {
        const turn = tree.value.turns.get(x.id)!;
        const who = turn.role === "user" ? t("you") : turn.model || t("assistant");
        out.push({ ...x, text: t("pair", { name: who, value: (turn.text || turn.error || "…").replace(/\s+/g, " ").slice(0, 120) }) });
        const below = tree.value.below(x.id);
        const depth = x.depth + (below.length > 1 ? 1 : 0);
        next.push(...below.map((id) => ({ id, depth })).reverse());
    }
    return out;
}

export default function Branches({ close }: { close: () => void }) {
    const here = new Set(path.value.map((x) => x.id));
    return (
        <Dialog title={t("branches")} close={close} kind="wide">
            <p class="quiet">{t("branches.about")}</p>
            <ol class="tree">
                {rows().map((r) => (
                    <li key={r.id} style={{ "--depth": Math.min(r.depth, 12) }}>
                        <button type="button" aria-current={here.has(r.id) ? "true" : undefined} onClick={() => { goTo(r.id); close(); }}>{r.text}</button>
                    </li>
                ))}
            </ol>
        </Dialog>
    );
}
