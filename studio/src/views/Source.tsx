// Source.tsx: the passage that an answer cites.
import { signal } from "@preact/signals";
import { t } from "../i18n";
import type { Source } from "../lib/tree";
import { Dialog } from "./Dialog";

const shown = signal<Source | null>(null);
export function openSource(s: Source): void {
    shown.value = s;
}
export function SourceDialog() {
    const s = shown.value;
    if (!s) return null;
    return (
        <Dialog title={s.title || t("source")} close={() => (shown.value = null)}>
            <p class="quiet">
                {s.url ? <a href={/^https?:/.test(s.url) ? s.url : undefined} target="_blank" rel="noopener noreferrer nofollow">{s.url}</a> : s.path}
                {s.page ? ` · ${t("source.page", { n: s.page })}` : ""}
                {s.line ? ` · ${t("source.line", { n: s.line })}` : ""}
            </p>
            <blockquote class="passage">{s.text ?? t("source.none")}</blockquote>
        </Dialog>
    );
}
