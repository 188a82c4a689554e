// Conversations that the server keeps: after a reload, in another browser, in two tabs; found, pinned, renamed, exported,
// imported, deleted.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { accessible, ask, closeAll, open, serve, shot, tab } from "./browser.mjs";

let server;
before(async () => {
    server = await serve();
});
after(async () => {
    await closeAll();
    await server.stop();
});
const get = async (path) => (await fetch(server.url + path)).json();
const entry = (page, name) => page.locator(".entry").filter({ has: page.getByRole("link", { name }) });
async function menu(page, name, item) {
    await entry(page, name).locator("summary").click();
    await entry(page, name).getByRole("button", { name: item, exact: true }).click();
}
async function nano(page) {
    await page.getByLabel("Model", { exact: true }).selectOption("chimere-nano");
}

test("a conversation is there after a reload, in another browser, and with its branch", async () => {
    const { page } = await open(server.url);
    await nano(page);
    await ask(page, "What is 12 plus 30?");
    await ask(page, "What is 40 plus 2?");
    await entry(page, "What is 12 plus 30?").waitFor();
    assert.match(page.url(), /#\/c\/conv_[0-9a-f]{32}$/);
    const { data } = await get("/v1/conversations");
    let items = []; // the page writes an answer after it was shown
    for (let i = 0; i < 600 && items.length < 4; i++) {
        if (i) await new Promise((done) => setTimeout(done, 100));
        items = (await get(`/v1/conversations/${data[0].id}/items?order=asc`)).data;
    }
    assert.deepEqual(items.map((x) => x.role), ["user", "assistant", "user", "assistant"]);
    assert.deepEqual(items.map((x) => x.parent), [null, ...items.slice(0, 3).map((x) => x.id)]);
    assert.match(items[1].content[0].text, /42/);
    await page.reload();
    await page.locator(".turn.assistant").nth(1).waitFor();
    const { page: elsewhere, context } = await open(server.url);
    await entry(elsewhere, "What is 12 plus 30?").getByRole("link").click();
    await elsewhere.locator(".turn.assistant").nth(1).waitFor();
    await elsewhere.getByRole("button", { name: "Good answer" }).last().click();
    await elsewhere.getByRole("button", { name: "Good answer", pressed: true }).waitFor();
    await elsewhere.waitForFunction(async ([id, item]) => (await (await fetch(`/v1/conversations/${id}/items/${item}`)).json()).chimere.rating === "up",
        [data[0].id, items[3].id]);
    await elsewhere.getByRole("button", { name: "Delete from here on" }).nth(2).click();
    await elsewhere.waitForFunction(async (id) => (await (await fetch(`/v1/conversations/${id}`)).json()).n_items === 2, data[0].id);
    await context.close();
});

test("search, pin, rename, delete", async () => {
    for (const [title, text] of [["Old plans", "we plant tomatoes in May"], ["Second", "nothing of note"]])
        await fetch(`${server.url}/v1/conversations`, { method: "POST", body: JSON.stringify({ title, items: [{ role: "user", content: text }] }) });
    const { page } = await open(server.url);
    await entry(page, "Old plans").waitFor();
    await page.keyboard.press("Control+Shift+F");
    await page.keyboard.type("tomato");
    await entry(page, "Second").waitFor({ state: "hidden" });
    await page.locator(".entry-match").filter({ hasText: "tomatoes in May" }).waitFor();
    await accessible(page, "search of conversations");
    await shot(page, "conversations-search");
    await page.getByRole("searchbox", { name: "Search" }).fill("");
    await entry(page, "Second").waitFor();
    await menu(page, "Second", "Pin");
    await page.getByRole("heading", { name: "Pinned" }).waitFor();
    assert.equal((await get("/v1/conversations")).data[0].title, "Second");
    await ask(page, "What is 2 plus 2?"); // a new conversation comes below those that are pinned
    await entry(page, "What is 2 plus 2?").waitFor();
    assert.match((await page.locator(".entries .group").allInnerTexts()).slice(0, 2).join(), /^Pinned,(Today|Yesterday)$/); // the latter around midnight
    await menu(page, "Second", "Rename");
    await page.getByRole("textbox", { name: "Rename" }).fill("Best of all");
    await page.keyboard.press("Enter");
    await entry(page, "Best of all").waitFor();
    assert.equal((await get("/v1/conversations")).data[0].title, "Best of all");
    await entry(page, "Best of all").locator("summary").click();
    await accessible(page, "menu of a conversation");
    await shot(page, "conversations-menu");
    await entry(page, "Best of all").getByRole("button", { name: "Delete" }).click();
    await entry(page, "Best of all").waitFor({ state: "hidden" });
    assert.equal((await get("/v1/conversations")).data.some((c) => c.title === "Best of all"), false);
});

const inFile = (name, value) => ({ name, mimeType: "text/plain", buffer: Buffer.from(typeof value === "string" ? value : JSON.stringify(value)) });
async function take(page, file, n) {
    await page.getByRole("button", { name: "Settings", exact: true }).click();
    if (n === null) await page.locator(".notice.shown").waitFor({ state: "hidden" }); // that of the file before
    const stored = n && page.waitForResponse((r) => r.request().method() === "POST" && r.url().endsWith("/v1/conversations"));
    await page.locator("dialog input[type=file]").setInputFiles(file);
    await stored;
    await page.getByText(n === null ? /No conversations found/ : new RegExp(`^${n} conversations? imported`)).waitFor();
    await page.keyboard.press("Escape");
}
async function itemsOf(title) {
    const c = (await get("/v1/conversations?limit=1000")).data.filter((x) => x.title === title);
    return { n: c.length, items: (await get(`/v1/conversations/${c[0].id}/items?order=asc&limit=1000`)).data };
}
const texts = (list) => list.map((x) => x.content[0].text);

test("export and import: JSON, Markdown, ChatGPT's, Open WebUI's and llama.cpp's files", async () => {
    const body = "a text\n## user\n\\## assistant\nwith headings";
    await fetch(`${server.url}/v1/conversations`, { method: "POST", body: JSON.stringify({ title: "To export", items: [
        { id: "q", role: "user", content: body }, { id: "a1", role: "assistant", content: "first" }, { id: "a2", parent: "q", role: "assistant", content: "second" }] }) });
    const { page } = await open(server.url);
    const files = {};
    for (const [name, kind] of [["Export as JSON", "json"], ["Export as Markdown", "md"]]) {
        const coming = page.waitForEvent("download");
        await menu(page, "To export", name);
        const file = await coming;
        assert.equal(file.suggestedFilename(), `To-export.${kind}`);
        files[kind] = readFileSync(await file.path(), "utf8");
    }
    await fetch(`${server.url}/v1/conversations/${(await get("/v1/conversations?search=export")).data[0].id}`, { method: "DELETE" });
    await take(page, inFile("x.json", files.json), 1);
    let got = await itemsOf("To export");
    assert.deepEqual(texts(got.items), [body, "first", "second"]);
    assert.equal(got.items[2].parent, got.items[0].id);
    await take(page, inFile("x.md", files.md), 1);
    got = await itemsOf("To export");
    assert.equal(got.n, 2);
    assert.deepEqual(texts(got.items), [body, "second"]); // the newest branch

    const node = (id, parent, role, text, more) => [id, { id, parent, children: [], message: role && { id, author: { role }, create_time: 1700000000.5,
        content: { content_type: "text", parts: [text] }, metadata: {}, ...more } }];
    await take(page, inFile("conversations.json", [{ title: "From ChatGPT", create_time: 1, current_node: "d", mapping: Object.fromEntries([
        node("d", "c", "assistant", "Paris."), node("root", null, null), node("s", "root", "system", ""), node("c", "t", "user", "Capital of France?"),
        node("t", "s", "tool", "noise"), node("e", "c", "assistant", "It is Paris."), node("loop", "loop2", "user", "lost"), node("loop2", "loop", "user", "lost")]) }]), 1);
    got = await itemsOf("From ChatGPT");
    assert.deepEqual(texts(got.items), ["Capital of France?", "Paris.", "It is Paris."]);
    assert.deepEqual(got.items.map((x) => x.parent), [null, got.items[0].id, got.items[0].id]);
    assert.equal(got.items[0].created_at, 1700000000);

    const m = (id, parentId, role, content, timestamp) => [id, { id, parentId, childrenIds: [], role, content, timestamp, ...(role === "assistant" ? { model: "m7" } : {}) }];
    await take(page, inFile("owui.json", [{ id: "1", title: "From Open WebUI", chat: { title: "t", history: { currentId: "b", messages: Object.fromEntries([
        m("b", "a", "assistant", "Hello!", 1700000001), m("a", null, "user", "Hi", 1700000002)]) } } }]), 1);
    got = await itemsOf("From Open WebUI");
    assert.deepEqual(texts(got.items), ["Hi", "Hello!"]); // parents first, whatever the times say
    assert.equal(got.items[1].chimere.model, "m7");

    await take(page, inFile("llama.json", { conv: { id: "c", name: "From llama" }, messages: [{ id: 1, parent: null, role: "root", content: "" },
        { id: 2, parent: 1, role: "user", content: "One" }, { id: 3, parent: 2, role: "assistant", content: "Two" }] }), 1);
    assert.deepEqual(texts((await itemsOf("From llama")).items), ["One", "Two"]);
    await take(page, inFile("x.json", { anything: 1 }), null);
    await take(page, inFile("x.md", "no headings"), null);
});

test("two tabs: what one writes, renames and deletes the other shows; both may write", async () => {
    const { page, context } = await open(server.url);
    await nano(page);
    await ask(page, "What is 5 plus 6?");
    const other = await tab(context, page.url());
    await other.locator(".turn.assistant").waitFor();
    await ask(page, "What is 7 plus 8?");
    await other.locator(".turn.assistant").nth(1).waitFor();
    await ask(other, "What is 9 plus 2?");
    await page.locator(".turn.assistant").nth(2).waitFor();
    // the other device is no tab of this browser: the version that this page knows is old
    const id = page.url().split("/c/")[1];
    await fetch(`${server.url}/v1/conversations/${id}`, { method: "POST", body: JSON.stringify({ project: "elsewhere" }) });
    await menu(page, "What is 5 plus 6?", "Rename");
    await page.getByRole("textbox", { name: "Rename" }).fill("Sums");
    await page.keyboard.press("Enter");
    await entry(other, "Sums").waitFor();
    const c = await get(`/v1/conversations/${id}`);
    assert.equal(c.title, "Sums");
    assert.equal(c.project, "elsewhere");
    await menu(page, "Sums", "Delete");
    await other.getByRole("heading", { name: "What shall we work on?" }).waitFor();
});

test("without a store the page chats all the same, and says that it forgets", async () => {
    const { page, context } = await open("about:blank");
    await context.route("**/v1/conversations**", (r) => r.fulfill({ status: 404, json: { error: { message: "this server keeps no conversations", code: "not_found" } } }));
    await page.goto(server.url);
    await page.getByText("This server keeps no conversations.").waitFor();
    await nano(page);
    await ask(page, "What is 12 plus 30?");
    await page.locator(".turn.assistant .markdown").filter({ hasText: "42" }).waitFor();
    assert.equal(await page.locator(".notice.shown").count(), 0);
});
