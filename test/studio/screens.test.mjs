// The screens beside the chat: knowledge, models, insight; each used once, accessible, in both themes, on a phone.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { accessible, closeAll, open, serve, shot } from "./browser.mjs";

const nano = join(dirname(process.env.CHIMERE), "chimere-nano.gguf");
let server, hub, night;
before(async () => {
    const root = process.env.ARTEFACTS ?? "/tmp";
    const folder = join(root, `screens-${process.pid}`);
    mkdirSync(join(folder, "tiny/model"), { recursive: true });
    copyFileSync(nano, join(folder, "tiny/model/Tiny-Q8_0.gguf"));
    hub = spawn(process.execPath, [fileURLToPath(new URL("../net/standin.mjs", import.meta.url)), folder], { stdio: ["pipe", "pipe", "inherit"] });
    const port = await new Promise((ok) => hub.stdout.once("data", (d) => ok(String(d).split(" ")[0])));
    server = await serve("--hf-endpoint", `http://127.0.0.1:${port}`, "--also", `second=${nano}`);
    night = join(server.folder, "chimere", "night");
    for (const name of ["objects", "nights", "live"]) mkdirSync(join(night, name), { recursive: true });
    for (const n of [1, 2]) {
        const bytes = `table of night ${n}`;
        const hash = createHash("sha256").update(bytes).digest("hex");
        writeFileSync(join(night, "objects", hash), bytes);
        writeFileSync(join(night, "nights", `00000${n}.json`), JSON.stringify({ night: n, parent: n - 1, at: 1700000000 + n, model: "nano", promoted: true,
            steps: [{ name: "engram", promoted: true, target: { n: 20, gain: 0.1, low: 0.05, high: 0.2 } }, { name: "lora", promoted: false, why: "no gain" }], artefacts: { "night.engr": hash } }));
    }
    writeFileSync(join(night, "current"), "2\n");
});
after(async () => {
    await closeAll();
    hub.stdin.end();
    await server.stop();
});

test("knowledge: files are dropped, read, found and deleted; facts are kept, pinned, edited, forgotten", async () => {
    const { page, seen } = await open(`${server.url}/#/knowledge`);
    await page.getByRole("heading", { name: "Documents", exact: true }).waitFor();
    await page.getByText("No documents yet").waitFor();
    await page.locator("input[type=file]").first().setInputFiles([
        { name: "notes.md", mimeType: "text/markdown", buffer: Buffer.from("# Lighthouse\n\nThe lighthouse keeper is called Ingrid Solberg.\n") },
        { name: "bad.exe", mimeType: "application/octet-stream", buffer: Buffer.from("MZ") },
    ]);
    await page.getByRole("alert").filter({ hasText: "bad.exe" }).waitFor();
    await page.getByRole("rowheader", { name: /Lighthouse|notes\.md/ }).waitFor();
    const data = await page.evaluateHandle(() => {
        const t = new DataTransfer();
        t.items.add(new File(["The ferry leaves at nine."], "ferry.txt"));
        return t;
    });
    await page.locator(".drop").dispatchEvent("drop", { dataTransfer: data });
    await page.getByRole("rowheader", { name: /ferry/ }).waitFor();
    await page.getByRole("searchbox", { name: "Search in the documents" }).fill("Who is the lighthouse keeper?");
    await page.keyboard.press("Enter");
    await page.locator(".passage").filter({ hasText: "Ingrid Solberg" }).waitFor();
    await page.getByText(/^score [0-9.]+/).first().waitFor();
    await page.getByRole("textbox", { name: "A fact to remember" }).fill("I live in Oslo");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Pin: I live in Oslo" }).click();
    await page.getByRole("button", { name: "Unpin: I live in Oslo" }).waitFor();
    await page.getByRole("button", { name: "Edit: I live in Oslo" }).click();
    await page.getByRole("textbox", { name: "Text of the fact" }).fill("I live in Bergen");
    await page.keyboard.press("Enter");
    await page.getByText("I live in Bergen").waitFor();
    await accessible(page, "knowledge");
    await shot(page, "knowledge");
    assert.equal((await (await fetch(`${server.url}/v1/memory`)).json()).data[0].text, "I live in Bergen");
    await page.getByRole("button", { name: "Forget: I live in Bergen" }).click();
    await page.getByText("Nothing is remembered yet").waitFor();
    await page.getByRole("button", { name: /Delete .*(ferry|The ferry)/ }).click();
    await page.getByRole("rowheader", { name: /ferry/ }).waitFor({ state: "hidden" });
    assert.equal((await (await fetch(`${server.url}/chimere/v1/documents`)).json()).data.length, 1);
    assert.deepEqual(seen.errors, []);
    assert.deepEqual(seen.requests.filter((u) => !u.startsWith(server.url) && !u.startsWith("data:") && !u.startsWith("blob:")), []);
});

test("models: load, unload, fetch with progress, plan of memory, recommended", async () => {
    const { page, seen } = await open(`${server.url}/#/models`);
    const row = page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: "second" }) });
    await row.getByText("not loaded").waitFor();
    await row.getByRole("button", { name: "Load" }).click();
    await row.getByText("ready").waitFor();
    await row.getByRole("button", { name: "Unload" }).click();
    await row.getByText("not loaded").waitFor();
    await page.getByText("No models in this folder yet").waitFor();
    await page.getByRole("textbox", { name: /Model of the hub/ }).fill("hf:tiny/model:Q8_0");
    await page.keyboard.press("Enter");
    await page.locator(".card").filter({ hasText: "tiny/model/Tiny-Q8_0" }).getByRole("img", { name: /Memory against what is free/ }).waitFor();
    await page.getByRole("textbox", { name: /Model of the hub/ }).fill("hf:none/none");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    await page.getByRole("button", { name: "Measure this machine" }).click();
    const wanted = page.getByRole("textbox", { name: /Model of the hub/ });
    const qwen = page.getByRole("button", { name: /^Fetch qwen/ }).first();
    for (const edited of ["hf:none/none", ""]) { // the second pick of one name counts too
        await wanted.fill(edited);
        await qwen.click({ timeout: 60_000 });
        assert.match(await wanted.inputValue(), /^qwen/);
    }
    await accessible(page, "models");
    await shot(page, "models");
    assert.deepEqual(seen.errors, []);
});

test("models: the speed of a model as a chart, compared with the run before, stopped", async () => {
    const { page, seen } = await open(`${server.url}/#/models`);
    const long = { timeout: 120_000 };
    await page.getByRole("button", { name: "Measure speed: chimere-nano" }).click();
    const dialog = page.getByRole("dialog", { name: "Speed of chimere-nano" });
    await dialog.getByRole("progressbar", { name: "Speed of chimere-nano" }).waitFor();
    await dialog.getByRole("button", { name: "Measure again" }).waitFor(long);
    const speeds = async (name) => {
        const rows = await dialog.getByRole("table", { name }).locator("tbody tr").all();
        return Promise.all(rows.map(async (r) => Number((await r.locator("td").first().innerText()).replaceAll(",", ""))));
    };
    for (const name of ["Reading a prompt", "Writing answers, all together"]) {
        const list = await speeds(name);
        assert.ok(list.length >= 2 && list.every((n) => n > 0), `${name}: ${list}`);
        assert.equal(await dialog.getByRole("table", { name }).locator("rect").count(), list.length);
    }
    await accessible(page, "speed");
    await shot(page, "speed");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "hidden" });
    await page.reload();
    await page.getByRole("button", { name: "Measure speed: chimere-nano" }).click();
    await dialog.getByText("Change since the measurement before").waitFor(long);
    await dialog.getByRole("button", { name: "Stop" }).or(dialog.getByRole("button", { name: "Measure again" })).click();
    await dialog.getByRole("button", { name: /^(Stop|Measure again)$/ }).waitFor();
    assert.deepEqual(seen.errors, []);
});

test("insight: figures of now, requests, a decision step by step, a night rolled back", async () => {
    for (const model of ["chimere-nano", "odo"])
        await fetch(`${server.url}/v1/chat/completions`, { method: "POST", body: JSON.stringify({ model, messages: [{ role: "user", content: "What is 12 plus 30?" }] }) });
    const { page, seen } = await open(`${server.url}/#/insight`);
    await page.locator(".tile").filter({ hasText: "Answers under way" }).waitFor();
    await page.locator(".line").waitFor(); // two looks at the figures
    for (const name of ["Drafts accepted", "Energy"]) await page.locator(".tile").filter({ hasText: name }).waitFor();
    await page.getByRole("cell", { name: "odo", exact: true }).first().waitFor();
    await page.getByRole("img", { name: /^Queue [0-9,]+ ms, prompt/ }).first().waitFor();
    await page.locator("summary").filter({ hasText: "default" }).first().click();
    await page.locator(".steps").filter({ hasText: "Decided" }).waitFor();
    await page.locator(".steps").filter({ hasText: "calculator" }).waitFor();
    await page.locator(".card").filter({ hasText: "Night 2" }).getByText("serves now").waitFor();
    await accessible(page, "insight");
    await shot(page, "insight");
    await page.getByRole("button", { name: "Report of night 2" }).click();
    await page.frameLocator("iframe.artifact").getByRole("heading", { name: /[Nn]ight/ }).first().waitFor();
    await page.frameLocator("iframe.artifact").locator("svg").first().waitFor();
    await shot(page, "night-report");
    await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "Return to night 1" }).click();
    await page.getByRole("button", { name: "Yes, return" }).click();
    await page.locator(".card").filter({ hasText: "Night 1" }).getByText("serves now").waitFor();
    assert.equal(readFileSync(join(night, "current"), "utf8"), "1\n");
    assert.deepEqual(seen.errors, []);
});

test("dark, French, and on a phone without sideways scrolling", async () => {
    const { page } = await open(`${server.url}/#/knowledge`, { colorScheme: "dark", locale: "fr-FR", viewport: { width: 360, height: 740 } });
    for (const [hash, title] of [["knowledge", "Connaissances"], ["models", "Modèles"], ["insight", "Observation"]]) {
        await page.evaluate((h) => (location.hash = `#/${h}`), hash);
        await page.getByRole("heading", { level: 1, name: title, exact: true }).waitFor();
        await page.locator(".screen h2").first().waitFor();
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360), title);
        await accessible(page, `${hash}, dark, phone`);
        await shot(page, `${hash}-phone-dark-fr`);
    }
});
