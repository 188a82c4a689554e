// Tables of n-grams: made of a dropped text, looked into, deleted; counts are those of the text.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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
const text = "alpha beta gamma delta\n".repeat(3) + "alpha beta gamma omega\n";
const call = async (method, path, body) => {
    const res = await fetch(server.url + path, { method, body: body && (typeof body === "string" ? body : JSON.stringify(body)) });
    return { status: res.status, json: await res.json() };
};

test("a text becomes a table, which says what followed and knows its own words", async () => {
    const { page, seen } = await open(`${server.url}/#/knowledge`);
    await page.getByText("No tables yet").waitFor();
    await page.getByRole("textbox", { name: "Name of the table" }).fill("greek");
    await page.getByLabel("A text file").setInputFiles({ name: "greek.txt", mimeType: "text/plain", buffer: Buffer.from(text) });
    await page.getByRole("button", { name: "Make a table" }).click();
    await page.getByRole("rowheader", { name: "greek" }).waitFor();
    await page.getByRole("textbox", { name: "Text", exact: true }).fill("alpha beta gamma");
    await page.getByRole("button", { name: "Look", exact: true }).click();
    await page.getByRole("list", { name: "What it says next" }).getByText("75 %").first().waitFor();
    await page.getByRole("list", { name: "What it says next" }).getByText("25 %").first().waitFor();
    assert.ok(await page.locator(".heat .heat-4").count() > 0);
    await accessible(page, "engram");
    await page.locator(".heat").scrollIntoViewIfNeeded();
    await shot(page, "engram");
    const seenText = await page.locator(".heat").innerText();
    assert.equal(seenText.trim(), "alpha beta gamma");
    const look = (t) => call("POST", "/chimere/v1/engram/look", { model: "chimere-nano", table: "greek", text: t });
    const { json } = await look("alpha beta gamma");
    assert.deepEqual(json.next[0].next.map((x) => x.share), [0.75, 0.25]);
    assert.equal(json.next[0].count, 4);
    assert.equal(json.next[0].source, "greek");
    assert.ok((await look("zebras quietly vanish")).json.tokens.every((x) => x.share === 0));
    await page.getByRole("link", { name: "Chat", exact: true }).click();
    await ask(page, "What is 12 plus 30?");
    await page.getByRole("button", { name: "What the tables know of it" }).click();
    await page.getByRole("dialog").getByText(/The table knows [0-9]+ % of the tokens/).waitFor();
    await page.getByRole("dialog").locator(".heat span").first().waitFor();
    await accessible(page, "evidence");
    await shot(page, "evidence");
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "Knowledge", exact: true }).click();
    await page.getByRole("button", { name: "Delete table greek" }).click();
    await page.getByText("No tables yet").waitFor();
    assert.deepEqual(seen.errors, []);
});

test("names, texts and files that are wrong are refused or named", async () => {
    const make = (name, body = text, model = "chimere-nano") => call("POST", `/chimere/v1/engram?name=${name}&model=${model}`, body);
    for (const name of ["", "..", "a%2fb", ".x", "%00", "x".repeat(65), "a%20b"]) assert.equal((await make(name)).status, 400, name);
    assert.equal((await make("a", "")).status, 400);
    assert.equal((await make("a", text, "nothing")).status, 404);
    for (const bad of [{}, { model: "chimere-nano", table: "../x", text: "x" }, { model: "chimere-nano", table: "a", text: 7 }, { model: "chimere-nano", table: "a", text: "x", more: 1 }])
        assert.equal((await call("POST", "/chimere/v1/engram/look", bad)).status, 400, JSON.stringify(bad));
    assert.equal((await call("POST", "/chimere/v1/engram/look", { model: "chimere-nano", table: "none", text: "x" })).status, 404);
    assert.equal((await call("DELETE", "/chimere/v1/engram/none")).status, 404);
    const folder = join(server.folder, "chimere", "engram");
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "broken.engram"), "<script>window.pwned=1</script>");
    assert.equal((await make("hostile", "<img src=x onerror=window.pwned=2> <img src=x onerror=window.pwned=2>")).status, 200);
    assert.equal((await call("POST", "/chimere/v1/engram/look", { model: "chimere-nano", table: "hostile", text: "x ".repeat(9000) })).status, 400);
    const { page } = await open(`${server.url}/#/knowledge`);
    await page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: "broken" }) }).locator(".bad").waitFor();
    await page.getByRole("textbox", { name: "Text", exact: true }).fill("<img src=x onerror=window.pwned=2>");
    await page.getByRole("button", { name: "Look", exact: true }).click();
    await page.locator(".heat").waitFor();
    assert.equal(await page.evaluate(() => window.pwned), undefined);
});
