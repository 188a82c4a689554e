// fresh.ts: the server may be upgraded while the page is open; it then has other scripts than these. The page looks after
// every pause of the connection and now and then, and loads itself again when nothing would be lost.
import { signal } from "@preact/signals";
import { writing } from "./state";

const own = document.querySelector<HTMLScriptElement>("script[type=module][src]")?.getAttribute("src") ?? "";
const NAME = "chimere.loaded";
const PAUSE_MS = 60_000;
export const outdated = signal(""); // the script that the server has instead

let looked = -PAUSE_MS;
export async function look(now = false): Promise<void> {
    if (!own || outdated.value || (!now && performance.now() - looked < PAUSE_MS)) return;
    looked = performance.now();
    try {
        const res = await fetch("/", { headers: { Accept: "text/html" }, cache: "no-cache", credentials: "omit" });
        const there = res.ok ? /<script[^>]* src="(\/studio\/[^"]+)"/.exec(await res.text())?.[1] : undefined;
        if (there && there !== own) outdated.value = there;
    } catch {
        looked = -PAUSE_MS; // gone again
    }
}

export function renew(): void {
    try {
        sessionStorage.setItem(NAME, outdated.value);
    } catch {
        // then a page that does not change is loaded by hand alone
    }
    location.reload();
}

// Once for each script: a server that goes on sending this one would have it loaded for ever.
export function renewIfIdle(): void {
    if (!outdated.value || writing.value) return;
    let before: string | null = outdated.value;
    try {
        before = sessionStorage.getItem(NAME);
    } catch {
        return;
    }
    if (before === outdated.value || document.querySelector("dialog[open], form.edit, .editor, .composer .chip")) return;
    renew();
}
