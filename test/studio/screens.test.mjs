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
    const target = { unit: "nats per token", n: 20, before: 2.1, after: 2.0, gain: 0.1, low: 0.05, high: 0.2 };
    const why = "no gain that 23 held-out answers show: +0.0012 nats per token, 95 % interval -0.0100 to +0.0120, p 0.410 where less than 0.0250 is needed";
    const skills = (b) => [{ skill: "maths", n: 40, a: 0.5, b, p: 0.4 }, { skill: "code", n: 40, a: 0.7, b: 0.6, p: 0.05 }];
    for (const n of [1, 2, 3]) {
        const bytes = `table of night ${n}`;
        const hash = createHash("sha256").update(bytes).digest("hex");
        writeFileSync(join(night, "objects", hash), bytes);
        writeFileSync(join(night, "nights", `00000${n}.json`), JSON.stringify({ night: n, parent: n - 1, at: 1700000000 + n, model: "nano", promoted: n < 3, joules: 3600 * n, price: { per_kwh: 250, currency: "EUR" },
            read: { answers: 40, learned: 20, held_out: 12, below_worth: 5, duplicates: 2, secrets_masked: 1 },
            steps: [{ name: "engram", about: "accepted answers, as an n-gram table", promoted: n < 3, target }, { name: "lora", about: "style", promoted: false, why, target: { ...target, gain: 0.001, low: -0.01, high: 0.012 } }],
            gate: { total: { n: 80, a: 0.55 + n / 100, b: 0.6 + n / 100, p: 0.2 }, skills: skills(0.5 + n / 50) }, artefacts: { "night.engr": hash } }));
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
    await page.getByRole("textbox", { name: /Hub model/ }).fill("hf:tiny/model:Q8_0");
    await page.keyboard.press("Enter");
    await page.locator(".card").filter({ hasText: "tiny/model/Tiny-Q8_0" }).getByRole("img", { name: /Memory against what is free/ }).waitFor();
    await page.getByRole("textbox", { name: /Hub model/ }).fill("hf:none/none");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    await page.getByRole("button", { name: "Measure this machine" }).click();
    const wanted = page.getByRole("textbox", { name: /Hub model/ });
    const qwen = page.getByRole("button", { name: /^Fetch qwen/ }).first();
    for (const edited of ["hf:none/none", ""]) { // the second pick of one name counts too
        await wanted.fill(edited);
        await qwen.click();
        assert.match(await wanted.inputValue(), /^qwen/);
    }
    await accessible(page, "models");
    await shot(page, "models");
    assert.deepEqual(seen.errors, []);
});

test("models: the speed of a model as a chart, compared with the run before, stopped", async () => {
    const { page, seen } = await open(`${server.url}/#/models`);
    await page.getByRole("button", { name: "Measure speed: chimere-nano" }).click();
    const dialog = page.getByRole("dialog", { name: "Speed of chimere-nano" });
    await dialog.getByRole("progressbar", { name: "Speed of chimere-nano" }).waitFor();
    await dialog.getByRole("button", { name: "Measure again" }).waitFor();
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
    await dialog.getByText("Change since the measurement before").waitFor();
    await dialog.getByRole("button", { name: "Stop" }).or(dialog.getByRole("button", { name: "Measure again" })).click();
    await dialog.getByRole("button", { name: /^(Stop|Measure again)$/ }).waitFor();
    assert.deepEqual(seen.errors, []);
});

test("insight: figures of now, requests, a decision step by step, a night rolled back", async () => {
    for (const model of ["chimere-nano", "odo"])
        await fetch(`${server.url}/v1/chat/completions`, { method: "POST", body: JSON.stringify({ model, messages: [{ role: "user", content: "What is 12 plus 30?" }] }) });
    const { page, seen } = await open(`${server.url}/#/insight`);
    await page.locator(".tile").filter({ hasText: "Answers in progress" }).waitFor();
    await page.getByRole("img", { name: /^Tokens per second over/ }).waitFor(); // two looks at the figures
    for (const name of ["Drafts accepted", "Energy"]) await page.locator(".tile").filter({ hasText: name }).waitFor();
    await page.getByRole("cell", { name: "odo", exact: true }).first().waitFor();
    await page.getByRole("img", { name: /^Queue [0-9,]+ ms, prompt/ }).first().waitFor();
    await page.locator("summary").filter({ hasText: "default" }).first().click();
    await page.locator(".steps").filter({ hasText: "Decided" }).waitFor();
    await page.locator(".steps").filter({ hasText: "calculator" }).waitFor();
    await page.locator(".card").filter({ hasText: "Night 2" }).getByText("serves now").waitFor();
    await accessible(page, "insight");
    await shot(page, "insight");
    // of the last night, which promoted nothing, the figure is that of what served before
    await page.getByRole("img", { name: "Right answers in the general suites: 61 % at first, 58 % after Night 3" }).waitFor();
    await page.getByRole("img", { name: "2 steps promoted, 4 refused" }).waitFor();
    await page.getByRole("img", { name: "Energy of each night: 1 Wh at first, 3 Wh after Night 3" }).waitFor();
    await page.getByRole("button", { name: "Report of night 2" }).click();
    const report = page.getByRole("dialog", { name: "Night 2" });
    await report.getByRole("img", { name: "engram: 4.76 % (2.38 to 9.52)" }).waitFor();
    await report.getByText("0.002 kWh · 0.5 EUR").waitFor();
    await report.getByText("40 answers were read: 20 to learn from, 12 held out").waitFor();
    await report.getByText("Why not: no gain that 23 held-out answers show").waitFor();
    assert.deepEqual(await report.getByRole("row", { name: /code/ }).getByRole("cell").allInnerTexts(), ["70 %", "60 %"]);
    await accessible(page, "night report");
    await shot(page, "night-report");
    await report.getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "Return to night 1" }).click();
    await page.getByRole("button", { name: "Yes, return" }).click();
    await page.locator(".card").filter({ hasText: "Night 1" }).getByText("serves now").waitFor();
    assert.equal(readFileSync(join(night, "current"), "utf8"), "1\n");
    assert.deepEqual(seen.errors, []);
});

test("the report of a night in French, with its reasons", async () => {
    const { page, seen } = await open(`${server.url}/#/insight`, { locale: "fr-FR" });
    await page.getByRole("button", { name: "Rapport de la nuit 1" }).click();
    const report = page.getByRole("dialog", { name: "Nuit 1" });
    await report.getByText("aucun gain visible sur 23 réponses réservées : 0,0012 nats par jeton").waitFor();
    await report.getByText("0,001 kWh · 0,25 EUR").waitFor();
    await report.getByText("les réponses acceptées, en table de n-grammes").waitFor();
    const words = await report.innerText();
    assert.doesNotMatch(words, /held|answers|promoted|refused|per token|interval of/);
    await shot(page, "night-report-fr");
    assert.deepEqual(seen.errors, []);
});

test("models: where the experts of a mixture will be, before it is loaded", async () => {
    const { page, seen } = await open("about:blank");
    const { data: [first], ...rest } = await (await fetch(`${server.url}/chimere/v1/models`)).json();
    const { experts } = first.plan; // chimere-nano is a mixture, and fits
    assert.ok(experts.memory > 1e6 && experts.memory < first.plan.weights && !experts.device && !experts.disk, JSON.stringify(experts));
    const big = { ...first.plan, weights: 12e9, total: 12e9, budget: 24e9, host: 2e10, host_budget: 6e10 };
    await page.route("**/chimere/v1/models", (r) => r.fulfill({ json: { ...rest, data: [first,
        { name: "with-slots", plan: { ...big, device: true, experts: { device: 6e9, memory: 18e9, disk: 0, slots: true } } },
        { name: "on-disk", plan: { ...big, fits: false, experts: { device: 0, memory: 5e9, disk: 13e9, slots: false } } }] } }));
    await page.goto(`${server.url}/#/models`);
    const card = (name) => page.locator(".card").filter({ hasText: name });
    await card(first.name).getByRole("img", { name: /^Experts by tier: memory [0-9.]+ MB$/ }).waitFor();
    await card("with-slots").getByRole("img", { name: "Experts by tier: slots on the graphics card 6 GB, memory 18 GB" }).waitFor();
    await card("with-slots").getByRole("img", { name: "Graphics memory against what is free: 12 GB / 24 GB" }).waitFor();
    await card("on-disk").getByRole("img", { name: "Experts by tier: memory 5 GB, disk 13 GB" }).waitFor();
    await card("on-disk").getByText("does not fit").waitFor();
    await accessible(page, "tiers");
    await page.locator(".card").last().scrollIntoViewIfNeeded();
    await shot(page, "tiers");
    assert.deepEqual(seen.errors, []);
});

test("documents are listed by pages", async () => {
    for (let i = 0; i < 205; i++) await fetch(`${server.url}/chimere/v1/documents?name=page-${String(i).padStart(3, "0")}.txt&collection=many`, { method: "POST", body: `Text number ${i}.` });
    await fetch(`${server.url}/chimere/v1/documents?name=z.txt&collection=of-the-last-page`, { method: "POST", body: "The end." });
    const { page } = await open(`${server.url}/#/knowledge`);
    await page.getByRole("heading", { name: "Documents kept: 200+" }).waitFor();
    await page.getByRole("option", { name: "of-the-last-page" }).waitFor({ state: "attached" });
    assert.equal(await page.getByRole("option", { name: "many", exact: true }).count(), 1);
    await page.getByRole("button", { name: "Show more" }).click();
    const all = (await (await fetch(`${server.url}/chimere/v1/documents`)).json()).data.length;
    await page.getByRole("heading", { name: `Documents kept: ${all}`, exact: true }).waitFor();
    await page.getByRole("rowheader", { name: /page-204/ }).waitFor();
    assert.equal(await page.getByRole("rowheader", { name: /page-000/ }).count(), 1);
    await page.getByRole("button", { name: "Show more" }).waitFor({ state: "hidden" });
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
