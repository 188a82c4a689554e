// browser.mjs: a running `chimere serve`, and Chromium on its page, for the tests beside it.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { start } from "../clients/serve.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const artefacts = process.env.ARTEFACTS ?? mkdtempSync(join(tmpdir(), "chimere-studio-"));
mkdirSync(artefacts, { recursive: true });

export const serve = (...args) => start((folder) => ({
    args: ["-m", "nano", "--state-dir", join(folder, "state"), ...args], env: { XDG_DATA_HOME: folder },
}));

const TIMEOUT_MS = 120_000; // tells a page that hangs from one on a busy machine
let browser;
export async function open(url, options = {}) {
    browser ??= await chromium.launch({
        timeout: TIMEOUT_MS,
        executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
        args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"],
    });
    const context = await browser.newContext({ viewport: { width: 1280, height: 820 }, locale: "en-GB", ...options });
    const page = await context.newPage();
    const seen = { requests: [], errors: [] };
    page.on("request", (r) => seen.requests.push(r.url()));
    page.on("pageerror", (e) => seen.errors.push(String(e)));
    page.on("console", (m) => {
        if (m.type() === "error" && /Content Security Policy|TrustedHTML/i.test(m.text())) seen.errors.push(m.text());
    });
    page.setDefaultTimeout(TIMEOUT_MS);
    await page.goto(url);
    return { page, context, seen };
}
// Another page of the same browser profile.
export async function tab(context, url) {
    const page = await context.newPage();
    page.setDefaultTimeout(TIMEOUT_MS);
    await page.goto(url);
    return page;
}
export async function ask(page, text) {
    await page.getByRole("textbox", { name: "Message", exact: true }).fill(text);
    const answer = page.waitForResponse((r) => r.url().endsWith("/v1/chat/completions"));
    await page.keyboard.press("Enter");
    await (await answer).finished();
    await page.getByRole("button", { name: "Stop the answer" }).waitFor({ state: "hidden" });
    await page.locator(".turn").last().getByRole("button", { name: "Answer again", disabled: false }).waitFor();
}
// Tasks of the page's main thread while act runs: wall and processor time of each, in ms. On a machine that others use,
// the first says how busy it is, the second what the page does.
export async function tasksOf(page, act) {
    await browser.startTracing(page, { categories: ["__metadata", "toplevel", "blink.user_timing", "disabled-by-default-devtools.timeline"] });
    await page.evaluate(() => performance.mark("tasks")); // tracing's own beginning is a long task
    await act();
    const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
    const main = new Set(traceEvents.filter((e) => e.name === "thread_name" && e.args.name === "CrRendererMain").map((e) => `${e.pid}.${e.tid}`));
    const tasks = traceEvents.filter((e) => e.name === "RunTask" && e.ph === "X" && main.has(`${e.pid}.${e.tid}`));
    const from = traceEvents.find((e) => e.name === "tasks").ts;
    return tasks.filter((e) => e.ts > from).map((e) => ({ wall: e.dur / 1000, cpu: (e.tdur ?? e.dur) / 1000 }));
}
export async function closeAll() {
    await browser?.close();
    browser = undefined;
}

// Buttons of a screen beside the chat that nobody sees: those of a message show when the pointer is over it.
const invisible = () => [...document.querySelectorAll(".screen button, dialog[open] button")].filter((b) => b.getClientRects().length && !b.checkVisibility({ opacityProperty: true, visibilityProperty: true })).map((b) => b.textContent || b.ariaLabel);

// No serious or critical fault. The rules run in a world of their own: the page's policy allows no script of others.
export async function accessible(page, where) {
    await page.evaluate(() => Promise.allSettled(document.getAnimations().filter((a) => a.effect.getComputedTiming().endTime !== Infinity).map((a) => a.finished))); // colours at rest
    assert.deepEqual(await page.evaluate(invisible), [], `${where}: buttons that cannot be seen`);
    const session = await page.context().newCDPSession(page);
    const { frameTree } = await session.send("Page.getFrameTree");
    const { executionContextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
    await session.send("Runtime.evaluate", { contextId: executionContextId, expression: axe });
    const { result } = await session.send("Runtime.evaluate", {
        contextId: executionContextId, awaitPromise: true, returnByValue: true,
        expression: "axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) => ({ id: v.id, " +
            "impact: v.impact, nodes: v.nodes.map((n) => n.target.join(' ') + ' ' + n.failureSummary).slice(0, 4) })))",
    });
    await session.detach();
    const serious = result.value.filter((v) => v.impact === "serious" || v.impact === "critical");
    assert.deepEqual(serious, [], `${where}: ${JSON.stringify(serious, null, 1)}`);
}
export const shot = (page, name) => page.screenshot({ path: join(artefacts, `${name}.png`) });
