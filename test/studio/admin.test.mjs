// Administration and pipelines: keys are made, limited and revoked in the page and hold at once; pipelines are edited with
// the server's word on every line, tried, saved, deleted; a caller's data are exported and deleted.
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { accessible, closeAll, open, serve, shot } from "./browser.mjs";

const folder = mkdtempSync(join(tmpdir(), "chimere-pipelines-"));
let server;
before(async () => {
    cpSync(fileURLToPath(new URL("../../pipelines", import.meta.url)), folder, { recursive: true });
    server = await serve("--pipelines", folder);
});
after(async () => {
    await closeAll();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
});
const call = async (method, path, body, key) => {
    const res = await fetch(server.url + path, { method, headers: key ? { authorization: `Bearer ${key}` } : {}, body: body && JSON.stringify(body) });
    return { status: res.status, json: await res.json().catch(() => ({})), headers: res.headers };
};

test("pipelines: a wrong line is named and found, a right text is drawn, tried, saved and deleted", async () => {
    const { page, seen } = await open(`${server.url}/#/pipelines`);
    const text = page.getByRole("textbox", { name: /Text of/ });
    await page.getByRole("button", { name: "code", exact: true }).click();
    await page.getByRole("img", { name: /Steps of code: .*architect → coder/ }).waitFor();
    await page.getByText("The text is valid.").waitFor();
    await accessible(page, "pipelines");
    await shot(page, "pipelines");
    const good = await text.inputValue();
    await text.fill(good.replace("rounds: 8", "rounds: eight"));
    const line = good.split("\n").findIndex((l) => l.startsWith("rounds")) + 1;
    await page.getByText(new RegExp(`^Line ${line}: .*rounds`)).waitFor();
    await page.getByRole("button", { name: `Go to line ${line}` }).click();
    assert.equal(await text.evaluate((el) => el.value.slice(el.selectionStart, el.selectionEnd)), "rounds: eight");
    assert.ok(await page.getByRole("button", { name: "Save", exact: true }).isDisabled());
    await shot(page, "pipelines-error");
    await page.getByRole("button", { name: "Undo changes" }).click();
    await page.getByText("The text is valid.").waitFor();
    await page.getByRole("textbox", { name: "Name of the new pipeline" }).fill("garden");
    await page.getByRole("button", { name: "New pipeline" }).click();
    await text.fill("name: garden\nabout: plants\nprompt: Answer as a gardener.\nsteps:\n  - parallel:\n      - agent: sun\n        prompt: Sun?\n      - agent: rain\n        prompt: Rain?\n  - agent: writer\n    prompt: Write.\n");
    await page.getByText("The text is valid.").waitFor();
    await page.getByRole("img", { name: /sun → writer; rain → writer/ }).waitFor();
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("garden is in effect").waitFor();
    assert.match(readFileSync(join(folder, "garden.yaml"), "utf8"), /as a gardener/);
    await page.getByRole("textbox", { name: "Question" }).fill("When do tomatoes need water?");
    await page.getByRole("combobox", { name: "Pipeline" }).selectOption("garden");
    await page.getByRole("button", { name: "What would happen?" }).click();
    await page.getByRole("region", { name: "Decided" }).getByText("garden").first().waitFor();
    await shot(page, "pipelines-try");
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByRole("button", { name: "Yes, delete garden" }).click();
    await page.getByText("garden is deleted").waitFor();
    assert.equal(existsSync(join(folder, "garden.yaml")), false);
    assert.deepEqual(seen.errors, []);
});

test("pipelines: names that leave the folder, and texts that do not hold, change nothing", async () => {
    const before = readFileSync(join(folder, "default.yaml"), "utf8");
    for (const name of ["..", "%2e%2e%2fx", "a%2fb", "intent", "x".repeat(60), ".hidden", "%00", "skills%2fx", "a.yaml"])
        assert.ok([400, 404].includes((await call("POST", `/chimere/v1/pipelines/${name}`, { text: "name: x\n" })).status), name);
    for (const text of ["", "name: other\n", "name: default\nunknown: 1\n", "a: [", "name: default\npersona: nobody-of-this-name\n", "\u0000", "name: default\nsteps: 7\n", "&a [*a]", "x".repeat(2 << 20)])
        assert.ok((await call("POST", "/chimere/v1/pipelines/default", { text })).status >= 400, text.slice(0, 40));
    assert.equal(readFileSync(join(folder, "default.yaml"), "utf8"), before);
    assert.equal((await call("DELETE", "/chimere/v1/pipelines/default")).status, 400);
    assert.equal((await call("DELETE", "/chimere/v1/pipelines/none")).status, 404);
    const { json } = await call("POST", "/chimere/v1/pipelines/check", { name: "x", text: "name: x\nprompt: <script>window.pwned=1</script>\nwrong<img src=x onerror=window.pwned=2>: 1\n" });
    assert.equal(json.ok, false);
    assert.equal(json.line, 3);
    const { page } = await open(`${server.url}/#/pipelines`);
    await page.getByRole("textbox", { name: /Text of/ }).fill("name: default\nwrong<img src=x onerror=window.pwned=2>: 1\nsteps:\n  - agent: <svg onload=window.pwned=3>\n");
    await page.getByText(/^Line 2: /).waitFor();
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    for (const bad of [{}, { question: "" }, { question: 7 }, { question: "x", odo: [] }, { question: "x", odo: { nothing: 1 } }, { question: "x", more: 1 }])
        assert.equal((await call("POST", "/chimere/v1/explain", bad)).status, 400, JSON.stringify(bad));
});

test("quality: a rated answer is a point of the curve, and an example", async () => {
    assert.equal((await call("POST", "/chimere/v1/pipelines/judged", { text: "name: judged\nquality: {score: true, keep: true}\n" })).status, 200);
    const { page, seen } = await open(`${server.url}/#/insight`);
    await page.getByText("No rated answers yet").waitFor();
    let answer, question; // short answers are not written down
    for (question of ["Say hello.", "Who are you?", "What can you do?", "Tell me about the sea."]) {
        const asked = await call("POST", "/v1/chat/completions", { model: "odo:judged", messages: [{ role: "user", content: question }], temperature: 0, max_tokens: 200 });
        assert.equal(asked.status, 200, JSON.stringify(asked.json));
        answer = asked.headers.get("x-odo-answer");
        const { message, finish_reason } = asked.json.choices[0];
        if (finish_reason === "stop" && message.content.length > 24) break;
    }
    let rated = 404; // an answer is written down after it was sent
    for (let i = 0; i < 600 && rated === 404; i++) {
        if (i) await new Promise((done) => setTimeout(done, 100));
        rated = (await call("POST", "/v1/feedback", { answer, rating: "up" })).status;
    }
    assert.equal(rated, 200);
    const { json } = await call("GET", "/chimere/v1/quality");
    assert.ok(json.data.length >= 1); // two, around midnight
    assert.ok(json.data[0].rated >= 1 && json.data[0].rated <= json.data[0].answers && json.data[0].worth > 0 && json.data[0].worth <= 1);
    assert.ok(json.examples.some((x) => x.question === question && x.worth === 1), JSON.stringify(json.examples));
    await page.reload();
    await page.getByRole("img", { name: /^[1-4] rated answers? in 90 days/ }).waitFor();
    await page.getByRole("link", { name: "Knowledge", exact: true }).click();
    await page.getByRole("list", { name: "Examples" }).getByText(question).waitFor();
    await accessible(page, "examples");
    await page.getByRole("list", { name: "Examples" }).scrollIntoViewIfNeeded();
    await shot(page, "examples");
    assert.equal((await call("DELETE", "/chimere/v1/pipelines/judged")).status, 200);
    assert.deepEqual(seen.errors, []);
});

test("a caller's data are exported and deleted", async () => {
    for (const title of ["One", "Two"]) await call("POST", "/v1/conversations", { title, items: [{ role: "user", content: `text of ${title}` }] });
    await call("POST", "/v1/memory", { text: "I live in Oslo" });
    const { page } = await open(`${server.url}/#/admin`);
    const coming = page.waitForEvent("download");
    await page.getByRole("button", { name: "Export all" }).click();
    const data = JSON.parse(readFileSync(await (await coming).path(), "utf8"));
    assert.deepEqual(data.conversations.map((c) => c.title).sort(), ["One", "Two"]);
    assert.match(JSON.stringify(data), /text of Two/);
    assert.match(JSON.stringify(data.memory), /Oslo/);
    await page.getByRole("button", { name: "Delete all" }).click();
    await page.getByRole("button", { name: /^Yes, delete 2 conversations/ }).click();
    await page.getByText("Deleted", { exact: true }).waitFor();
    assert.equal((await call("GET", "/v1/conversations")).json.data.length, 0);
    assert.equal((await call("GET", "/v1/memory")).json.data.length, 0);
});

test("keys: the first is an administrator's; others are made, limited, revoked, and hold at once", async () => {
    assert.equal((await call("POST", "/chimere/v1/keys", { name: "guest" })).status, 400); // it would lock everybody out
    const { page, seen } = await open(`${server.url}/#/admin`);
    await page.getByText("There are no keys").waitFor();
    await page.getByRole("textbox", { name: "Name" }).fill("owner");
    await page.getByRole("button", { name: "Make the key" }).click();
    const secret = page.getByRole("dialog").locator("pre");
    await secret.waitFor();
    const admin = (await secret.innerText()).trim();
    assert.match(admin, /^sk-chimere-[0-9a-f]{64}$/);
    await page.keyboard.press("Escape");
    assert.equal((await call("GET", "/v1/models")).status, 401);
    await page.getByRole("rowheader", { name: "owner" }).waitFor(); // the page goes on with the new key
    await page.getByRole("textbox", { name: "Name" }).fill("<script>window.pwned=1");
    await page.getByRole("spinbutton", { name: "Requests per minute" }).fill("2");
    await page.getByRole("button", { name: "Make the key" }).click();
    const guest = (await secret.innerText()).trim();
    await accessible(page, "a new key");
    await page.keyboard.press("Escape");
    const ask = () => call("POST", "/v1/chat/completions", { messages: [{ role: "user", content: "What is 1 plus 1?" }], max_tokens: 8, model: "chimere-nano" }, guest);
    assert.deepEqual([(await ask()).status, (await ask()).status, (await ask()).status], [200, 200, 429]);
    const row = page.getByRole("row").filter({ has: page.getByRole("rowheader", { name: /script/ }) });
    await page.reload();
    await row.getByText(/2 requests, [1-9]/).first().waitFor();
    await accessible(page, "administration");
    await shot(page, "admin");
    await row.getByRole("button", { name: /^Limits/ }).click();
    await page.getByRole("dialog").getByRole("spinbutton", { name: "Requests per minute" }).fill("0");
    await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
    await page.getByRole("dialog").waitFor({ state: "hidden" });
    assert.equal((await ask()).status, 200);
    assert.equal((await call("GET", "/chimere/v1/keys", undefined, guest)).status, 403);
    assert.equal((await call("POST", "/chimere/v1/keys", { name: "mine", role: "admin" }, guest)).status, 403);
    await row.getByRole("button", { name: /^Revoke/ }).click();
    await row.getByRole("button", { name: /^Yes, revoke/ }).click();
    await row.getByText("revoked").waitFor();
    assert.equal((await ask()).status, 401);
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.deepEqual(seen.errors, []);
    const list = await call("GET", "/chimere/v1/keys", undefined, admin);
    assert.doesNotMatch(JSON.stringify(list.json), /sk-chimere/);
    assert.equal(list.headers.get("cache-control"), "no-store");
    for (const bad of [{}, { name: "a b" }, { name: "a/b" }, { name: "" }, { name: "x".repeat(65) }, { name: 7 }, { name: "owner" }, { name: "n", role: "root" }, { name: "n", active: -1 }, { name: "n", active: 1.5 }, { name: "n", per_minute: "1" }, { name: "n", more: 1 }, { name: "n", days: 1e9 }])
        assert.equal((await call("POST", "/chimere/v1/keys", bad, admin)).status, 400, JSON.stringify(bad));
    // whoever is in stays able to undo
    assert.equal((await call("DELETE", "/chimere/v1/keys/owner", undefined, admin)).status, 400);
    assert.equal((await call("POST", "/chimere/v1/keys/owner", { role: "user" }, admin)).status, 400);
    assert.equal((await call("POST", "/chimere/v1/keys/owner", { active: 9 }, admin)).status, 200);
    assert.equal((await call("DELETE", "/chimere/v1/keys/none", undefined, admin)).status, 404);
    const second = (await call("POST", "/chimere/v1/keys", { name: "second", role: "admin" }, admin)).json.key;
    assert.equal((await call("DELETE", "/chimere/v1/keys/owner", undefined, second)).status, 200);
    assert.equal((await call("GET", "/chimere/v1/keys", undefined, admin)).status, 401);
});

test("a user's page has no administration; small and dark, both screens fit", async () => {
    const keyed = await open(server.url, { colorScheme: "dark", locale: "fr-FR", viewport: { width: 360, height: 740 } });
    await keyed.page.getByRole("dialog").waitFor();
    await keyed.page.keyboard.press("Escape");
    const bare = await serve("--pipelines", folder);
    try {
        const { page } = await open(bare.url, { colorScheme: "dark", locale: "fr-FR", viewport: { width: 360, height: 740 } });
        for (const [hash, title] of [["pipelines", "Chaînes"], ["admin", "Administration"]]) {
            await page.evaluate((h) => (location.hash = `#/${h}`), hash);
            await page.getByRole("heading", { level: 1, name: title, exact: true }).waitFor();
            await page.locator(".screen form").first().waitFor();
            assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360), hash);
            await accessible(page, `${hash}, dark, phone`);
            await shot(page, `${hash}-phone-dark-fr`);
        }
    } finally {
        await bare.stop();
    }
});
