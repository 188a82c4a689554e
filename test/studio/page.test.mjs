// The page as a whole: it opens, answers, stays within its origin, is accessible, and can be left out.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessible, ask, closeAll, open, serve, shot } from "./browser.mjs";

let server;
before(async () => {
    server = await serve();
});
after(async () => {
    await closeAll();
    await server.stop();
});

test("the page answers with a strict policy; other clients get the server's health", async () => {
    const page = await fetch(`${server.url}/`, { headers: { Accept: "text/html" } });
    assert.equal(page.status, 200);
    assert.match(page.headers.get("content-type"), /text\/html/);
    const policy = page.headers.get("content-security-policy");
    assert.match(policy, /default-src 'none'/);
    assert.doesNotMatch(policy, /unsafe/);
    const html = await page.text();
    assert.doesNotMatch(html, /<script(?![^>]*src=)|<style|style=|https?:/);
    const again = await fetch(`${server.url}/`, { headers: { Accept: "text/html", "If-None-Match": page.headers.get("etag") } });
    assert.equal(again.status, 304);
    const first = [...html.matchAll(/(?:src|href)="(\/studio\/[^"]+)"/g)].map((m) => m[1]);
    let bytes = 0;
    for (const path of first) {
        const res = await fetch(server.url + path);
        assert.equal(res.status, 200, path);
        bytes += Number(res.headers.get("content-length"));
    }
    console.log(`first load: ${bytes} bytes compressed`);
    assert.ok(bytes <= 250_000, `${bytes}`);
    assert.equal((await (await fetch(`${server.url}/`)).json()).status, "ok");
    assert.equal((await fetch(`${server.url}/studio/none.js`)).status, 404);
    assert.equal((await fetch(`${server.url}/studio/../studio/%2e%2e/x`)).status, 404);
});

test("a question is answered as it streams, edited into a branch, and answered again", async () => {
    const { page, seen } = await open(server.url);
    await page.getByRole("heading", { name: "What shall we work on?" }).waitFor();
    const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
    const { largest, shift, long } = await page.evaluate(async () => {
        const seen = (type) => new Promise((done) => {
            const o = new PerformanceObserver((l) => done(l.getEntries()));
            o.observe({ type, buffered: true });
            setTimeout(() => done([]), 500); // there is none
        });
        const sum = (list) => list.reduce((n, x) => n + x, 0);
        const [paints, shifts, tasks] = await Promise.all(["largest-contentful-paint", "layout-shift", "longtask"].map(seen));
        return { largest: paints.at(-1)?.startTime ?? 0, shift: sum(shifts.map((x) => x.value)), long: sum(tasks.map((x) => x.duration - 50)) };
    });
    console.log(`first paint: ${Math.round(paint)} ms; largest paint: ${Math.round(largest)} ms; blocked: ${Math.round(long)} ms; layout shift: ${shift.toFixed(3)}`);
    assert.ok(shift < 0.1, `the page jumps while it loads: ${shift}`);
    await accessible(page, "empty chat");
    await shot(page, "chat-empty");
    await page.getByLabel("Model", { exact: true }).selectOption("chimere-nano");
    await ask(page, "What is 12 plus 30?");
    const answer = page.locator(".turn.assistant .markdown").last();
    await answer.filter({ hasText: "42" }).waitFor();
    await page.locator(".figures").filter({ hasText: "tokens/s" }).waitFor();
    await page.getByRole("button", { name: "Edit the message" }).first().click();
    await page.getByRole("textbox", { name: "Edit the message" }).fill("What is 20 plus 3?");
    await page.getByRole("button", { name: "Send again" }).click();
    await page.getByLabel("Version 2 of 2").waitFor();
    await answer.filter({ hasText: "23" }).waitFor();
    await page.getByRole("button", { name: "Version before" }).click();
    await answer.filter({ hasText: "42" }).waitFor();
    await accessible(page, "chat");
    await shot(page, "chat");
    await page.getByRole("button", { name: "All versions" }).click();
    const versions = page.getByRole("dialog", { name: "All versions" });
    await versions.getByRole("listitem").nth(3).waitFor();
    assert.deepEqual((await versions.getByRole("listitem").allInnerTexts()).map((x) => x.split(":")[0]), ["You", "chimere-nano", "You", "chimere-nano"]);
    assert.equal(await versions.locator("[aria-current=true]").count(), 2);
    await accessible(page, "all versions");
    await shot(page, "versions");
    await versions.getByRole("button", { name: "What is 20 plus 3?" }).click();
    await versions.waitFor({ state: "hidden" });
    await answer.filter({ hasText: "23" }).waitFor();
    assert.deepEqual(seen.errors, []);
    assert.deepEqual(seen.requests.filter((u) => !u.startsWith(server.url) && !u.startsWith("data:")), []);
});

test("a tool of the orchestrator is shown; a draft survives a reload", async () => {
    const { page } = await open(server.url);
    await page.getByLabel("Model", { exact: true }).selectOption("odo");
    await ask(page, "Please evaluate 6157 - 7343.");
    await page.locator("summary").filter({ hasText: "calculator" }).click();
    await page.locator("pre").filter({ hasText: "6157" }).first().waitFor();
    const field = page.getByRole("textbox", { name: "Message", exact: true });
    await page.getByRole("button", { name: "New chat" }).click();
    await field.fill("not sent yet");
    await page.waitForFunction(() => localStorage.getItem("chimere.draft.new") === "not sent yet");
    await page.reload();
    await page.waitForFunction(() => document.querySelector("#composer")?.value === "not sent yet");
});

test("private documents: a collection of the user's own, and the documents of a chat, which its answers read", async () => {
    const { page, seen } = await open(`${server.url}/#/knowledge`);
    const text = (river) => Buffer.from(`Kala Pometh is a town. Kala Pometh lies on the river ${river}.`);
    await page.getByText("No documents yet").waitFor();
    await page.getByRole("textbox", { name: "New private collection" }).fill("notes");
    await page.getByRole("button", { name: "Create" }).click();
    const collection = page.getByRole("combobox", { name: "Collection", exact: true });
    assert.equal(await collection.inputValue(), "my:notes");
    await page.locator("input[type=file]").first().setInputFiles([{ name: "mine.md", mimeType: "text/markdown", buffer: text("Mesak") }]);
    await page.getByRole("cell", { name: "my:notes" }).waitFor();
    const find = async (hit) => {
        await page.getByRole("searchbox", { name: "Search in the documents" }).fill("The river of Kala Pometh");
        await page.keyboard.press("Enter");
        await page.locator(".passage").filter({ hasText: hit }).waitFor();
    };
    await find("Mesak");
    await accessible(page, "a private collection");
    await page.getByRole("button", { name: "New chat" }).click();
    await page.getByLabel("Model", { exact: true }).selectOption("odo");
    const dialog = page.getByRole("dialog", { name: "Documents of this chat" });
    const show = () => page.getByRole("button", { name: "Documents of this chat" }).click();
    await show();
    await dialog.getByText("No documents yet").waitFor();
    await dialog.locator("input[type=file]").first().setInputFiles([{ name: "here.md", mimeType: "text/markdown", buffer: text("Goza") }]);
    await dialog.getByRole("cell", { name: /^chat:conv_/ }).waitFor();
    const read = dialog.getByRole("combobox", { name: "Documents that answers read" });
    const own = await read.inputValue();
    assert.match(own, /^chat:conv_/);
    assert.ok((await read.locator("option").allInnerTexts()).includes("my:notes"));
    await accessible(page, "documents of a chat");
    await shot(page, "chat-documents");
    await page.keyboard.press("Escape");
    await ask(page, "On which river does Kala Pometh lie?");
    await page.locator(".turn.assistant .markdown").last().filter({ hasText: "Goza" }).waitFor();
    await page.getByRole("link", { name: "Knowledge", exact: true }).click();
    await page.getByRole("cell", { name: "my:notes" }).waitFor();
    assert.equal(await page.getByRole("rowheader").count(), 1); // those of a chat are not among all
    await collection.selectOption(own);
    await page.getByRole("cell", { name: own }).waitFor();
    await find("Goza");
    await page.getByRole("link", { name: "Chat", exact: true }).click();
    await show();
    await dialog.getByRole("button", { name: /^Delete/ }).click();
    await dialog.getByText("No documents yet").waitFor();
    assert.equal(await read.inputValue(), "");
    assert.equal((await (await fetch(`${server.url}/chimere/v1/documents?collection=${own}`)).json()).data.length, 0);
    assert.deepEqual(seen.errors, []);
});

test("the palette changes theme and language from the keyboard; a phone has a drawer", async () => {
    const { page } = await open(server.url);
    await page.getByRole("heading", { name: "What shall we work on?" }).waitFor();
    await page.keyboard.press("Control+k");
    await page.keyboard.type("dark");
    await accessible(page, "palette");
    await shot(page, "palette");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    await page.keyboard.press("Control+k");
    await page.keyboard.type("français");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Sur quoi travaillons-nous ?" }).waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.lang), "fr");
    await accessible(page, "dark");
    await shot(page, "chat-dark-fr");
    await page.setViewportSize({ width: 360, height: 740 });
    await page.getByRole("button", { name: "Ouvrir le menu" }).click();
    await page.getByRole("button", { name: "Réglages", exact: true }).click();
    await page.getByRole("dialog", { name: "Réglages" }).waitFor();
    await accessible(page, "settings on a phone");
    await shot(page, "settings-phone");
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= 360), true);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog", { name: "Réglages" }).waitFor({ state: "hidden" });
    await page.getByRole("navigation").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("navigation").waitFor({ state: "hidden" });
    await page.keyboard.press("Control+k");
    await page.keyboard.type("zzz");
    await page.keyboard.press("Enter");
    await page.locator("#search:focus").waitFor();
    assert.equal(await page.locator("#search").inputValue(), "zzz");
    await page.setViewportSize({ width: 1280, height: 820 });
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+b");
    await page.getByRole("navigation").waitFor({ state: "hidden" });
    await page.keyboard.press("Control+Shift+F");
    await page.locator("#search:focus").waitFor();
});

test("--no-studio leaves the page out", async () => {
    const bare = await serve("--no-studio");
    try {
        const res = await fetch(`${bare.url}/`, { headers: { Accept: "text/html" } });
        assert.equal((await res.json()).status, "ok");
        assert.equal((await fetch(`${bare.url}/studio/icon.svg`)).status, 404);
    } finally {
        await bare.stop();
    }
});
