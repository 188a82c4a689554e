// What code of an answer makes: a page in a frame that reaches nothing, drawings, diagrams, output of programs.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { accessible, ask, closeAll, open, serve, shot } from "./browser.mjs";
import { begin, frame, last, proxy } from "./proxy.mjs";

let server, front, outside, text = "";
const reached = []; // of the machine that nothing may reach
before(async () => {
    outside = createServer((req, res) => {
        reached.push(req.url);
        res.writeHead(200, { "access-control-allow-origin": "*" }).end("x");
    });
    await new Promise((ok) => outside.listen(0, "127.0.0.1", ok));
    outside.url = `http://127.0.0.1:${outside.address().port}`;
    server = await serve();
    front = await proxy(server.url, (req, res) => {
        if (req.url !== "/v1/chat/completions") return false;
        req.resume();
        begin(res);
        res.end(frame({ content: text }) + last);
        return true;
    });
});
after(async () => {
    await closeAll();
    await front.stop();
    await server.stop();
    outside.closeAllConnections();
    await new Promise((ok) => outside.close(ok));
});
const fence = (language, code) => `\`\`\`${language}\n${code}\n\`\`\`\n`;
let n_shown = 0;
async function show(page, language, code, action = "Preview") {
    const words = `Answer ${++n_shown}.`; // the list may still hold an earlier answer only
    text = `${words}\n\n${fence(language, code)}`;
    await ask(page, "show me");
    await page.locator(".turn.assistant").filter({ hasText: words }).getByRole("button", { name: `${action}: ${language}` }).click();
    await page.getByRole("dialog").waitFor();
}
const inFrame = (page) => page.frameLocator("iframe.artifact");
const close = async (page) => {
    await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
    await page.getByRole("dialog").waitFor({ state: "hidden" });
};

test("the frame's document has a policy of its own; no other page may hold the server's", async () => {
    const res = await fetch(`${server.url}/studio/artifact.html`);
    const policy = res.headers.get("content-security-policy");
    assert.match(policy, /sandbox allow-scripts;/);
    assert.match(policy, /default-src 'none'/);
    assert.doesNotMatch(policy, /https?:|connect-src|allow-same-origin|\*/);
    const page = await fetch(`${server.url}/`, { headers: { Accept: "text/html" } });
    assert.match(page.headers.get("content-security-policy"), /frame-ancestors 'none'/);
    assert.doesNotMatch(page.headers.get("content-security-policy"), /unsafe/);
});

test("a page with a script is shown, started again and ended; its errors are told", async () => {
    const { page } = await open(front.url);
    await show(page, "html", `<!doctype html><html><body><h1>Counter</h1><button id=b>0</button><script>
        let n = 0; document.getElementById("b").onclick = (e) => { e.target.textContent = ++n; if (n === 2) throw new Error("two is too many"); };</script></body></html>`);
    const button = inFrame(page).getByRole("button");
    await button.click();
    await button.filter({ hasText: "1" }).waitFor();
    await accessible(page, "artifact");
    await shot(page, "artifact-html");
    await button.click();
    await page.getByRole("region", { name: "Errors of the code" }).filter({ hasText: "two is too many" }).waitFor();
    await page.getByRole("button", { name: "Start again" }).click();
    await button.filter({ hasText: "0" }).waitFor();
    await page.getByRole("button", { name: "Code", exact: true }).click();
    await page.getByRole("region", { name: "Code" }).filter({ hasText: "<h1>Counter</h1>" }).waitFor();
    await page.getByRole("button", { name: "Preview", exact: true }).click();
    await page.getByRole("button", { name: "End it" }).click();
    await page.getByText("Ended.").waitFor();
    assert.equal(await page.locator("iframe").count(), 0);
    const coming = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    assert.equal((await coming).suggestedFilename(), "page.html");
});

// Each way out reports in the frame's own document what it got.
const ways = `<p id=r></p><script>
const out = {};
const put = (k, v) => { out[k] = String(v); document.getElementById("r").textContent = JSON.stringify(out); };
for (const [k, f] of Object.entries({
    parent: () => parent.document.title, top: () => top.location.href, cookie: () => document.cookie, local: () => localStorage.length,
    session: () => sessionStorage.length, opener: () => open("OUTSIDE/popup") === null ? "closed" : "OPEN", origin: () => origin,
})) { try { put(k, f()); } catch (e) { put(k, "refused " + e.name); } }
for (const [k, u] of [["own", "FRONT/v1/models"], ["other", "OUTSIDE/leak"]]) fetch(u).then(() => put(k, "OPEN"), () => put(k, "refused"));
try { const s = new WebSocket("WS/x"); s.onopen = () => put("ws", "OPEN"); s.onerror = () => put("ws", "refused"); } catch (e) { put("ws", "refused"); }
const i = new Image(); i.onload = () => put("image", "OPEN"); i.onerror = () => put("image", "refused"); i.src = "OUTSIDE/leak.png?x";
const j = new Image(); j.onload = () => put("icon", "OPEN"); j.onerror = () => put("icon", "refused"); j.src = "FRONT/studio/icon.svg?inside";
const s = document.createElement("script"); s.src = "FRONT/studio/sw.js"; s.onload = () => put("script", "OPEN"); s.onerror = () => put("script", "refused"); document.head.append(s);
try { new Function("1")(); put("eval", "OPEN"); } catch (e) { put("eval", "refused"); }
try { new Worker(URL.createObjectURL(new Blob(["1"]))); put("worker", "made"); } catch (e) { put("worker", "refused"); }
try { navigator.sendBeacon("OUTSIDE/beacon", "x"); } catch (e) {}
const f = document.createElement("form"); f.action = "OUTSIDE/form"; f.method = "post"; document.body.append(f); f.submit();
const n = document.createElement("iframe"); n.src = "OUTSIDE/nested"; document.body.append(n);
const l = document.createElement("link"); l.rel = "prefetch"; l.href = "OUTSIDE/prefetch"; document.head.append(l);
for (const m of [{ kind: "ready" }, { kind: "error", text: "<img src=x onerror=window.pwned=1>" + "x".repeat(1e6) }, { kind: "error", text: { toString: 1 } }, null, "x", 7, { html: "<script>window.pwned=2<\\/script>" }])
    parent.postMessage(m, "*");
for (let k = 0; k < 500; k++) parent.postMessage({ kind: "error", text: "flood " + k }, "*");
</script>`;

test("what runs in the frame reaches neither page, server, storage nor network", async () => {
    const { page } = await open(front.url);
    await show(page, "html", ways.replaceAll("FRONT", front.url).replaceAll("OUTSIDE", outside.url).replaceAll("WS", front.url.replace("http", "ws")));
    const result = inFrame(page).locator("#r");
    await page.waitForFunction(() => document.querySelectorAll("dialog pre").length > 0);
    await result.filter({ hasText: /"script"/ }).waitFor();
    await result.filter({ hasText: /"icon"/ }).waitFor();
    await result.filter({ hasText: /"other"/ }).waitFor();
    const got = JSON.parse(await result.textContent());
    assert.equal(got.origin, "null");
    assert.equal(got.opener, "closed");
    for (const way of ["parent", "top", "cookie", "local", "session", "own", "other", "image", "icon", "script", "eval"]) assert.match(got[way], /^refused/, `${way}: ${got[way]}`);
    for (const [way, what] of Object.entries(got)) assert.doesNotMatch(what, /OPEN/, way);
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.ok((await page.getByRole("region", { name: "Errors of the code" }).innerText()).length < 20 * 301);
    await page.waitForTimeout(500);
    assert.deepEqual(reached, []);
    assert.deepEqual(front.foreign, []); // whatever the page itself asks for meanwhile
    await close(page);
});

test("a frame that leaves for another address, and the page's own window, go nowhere", async () => {
    const { page } = await open(front.url);
    for (const [n, code] of ["location = 'OUTSIDE/?secret=1'", "top.location = 'OUTSIDE/?top'", "document.body.innerHTML = '<meta http-equiv=refresh content=\"0;url=OUTSIDE/meta\">'",
        "const a = document.createElement('a'); a.href = 'OUTSIDE/link'; a.target = '_top'; document.body.append(a); a.click()", "location = 'data:text/html,<script>parent.postMessage({kind:\"error\",text:\"escaped\"},\"*\")</script>'"].entries()) {
        await show(page, "html", `<body><script>setTimeout(() => { ${code.replaceAll("OUTSIDE", outside.url)} }, 50)</script>`);
        await page.waitForTimeout(400);
        assert.equal(new URL(page.url()).origin, front.url, String(n));
        assert.equal(await page.getByRole("dialog").getByText("escaped").count(), 0);
        await close(page);
    }
    assert.deepEqual(reached, []);
    assert.deepEqual(front.foreign, []);
    await page.goto(outside.url); // it can be reached, and what asks the server from there is counted
    assert.ok(reached.length >= 1);
    await page.evaluate((url) => fetch(url, { mode: "no-cors" }).catch(() => {}), `${front.url}/v1/models`);
    assert.deepEqual(front.foreign, ["GET /v1/models (same-site)"]);
});

test("a loop without end is ended, and the page answers meanwhile", async () => {
    const { page } = await open(front.url);
    await show(page, "html", "<h1>busy</h1><script>setTimeout(() => { for (;;); }, 100)</script>");
    await page.getByRole("button", { name: "Code", exact: true }).click();
    await page.getByRole("region", { name: "Code" }).waitFor();
    await page.getByRole("button", { name: "Preview", exact: true }).click();
    await page.getByText("did not answer for ten seconds").waitFor();
    assert.equal(await page.locator("iframe").count(), 0);
});

test("drawings and diagrams; a broken diagram says where", async () => {
    const { page } = await open(front.url);
    await show(page, "svg", `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10" onload="parent.pwned=1"><script>try { top.pwned = 2 } catch (e) {}</script><circle cx="5" cy="5" r="4" fill="teal"/></svg>`);
    await inFrame(page).locator("circle").waitFor();
    await shot(page, "artifact-svg");
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    await close(page);
    const diagrams = [
        [`flowchart LR\n%% a comment\nA["Ask <b>"] --> B{Is it known?}\nB -->|yes| C(Answer)\nB -- no --> D[(Documents)] & E((Web))\nF --> A`, "Is it known?", ".node", 6],
        ["sequenceDiagram\nparticipant A as Alice\nA->>Bob: Hello\nBob-->>A: Good day", "Good day", ".messageText", 2],
        [`pie title Pets\n"Dogs" : 386\n"Cats" : 85`, "Pets", ".pieCircle", 2],
        ["stateDiagram-v2\n[*] --> Still\nStill --> Moving", "Moving", ".node", 3],
    ];
    for (const [code, label, part, n] of diagrams) {
        await show(page, "mermaid", code);
        await inFrame(page).getByText(label).first().waitFor();
        assert.equal(await inFrame(page).locator(`svg ${part}`).count(), n, label);
        if (n === 6) await accessible(page, "diagram");
        await shot(page, `artifact-diagram-${part.slice(1)}-${n}`);
        await close(page);
    }
    for (const [bad, said] of [["graph TD\nA --> B\nB -->", /error on line \d/], ["no diagram", /No diagram type/]]) {
        await show(page, "mermaid", bad);
        await page.getByRole("region", { name: "Errors of the code" }).filter({ hasText: said }).waitFor();
        await close(page);
    }
    await show(page, "mermaid", `graph TD\nA["<img src=x onerror='parent.pwned=3'>"] --> B["</script><script>parent.pwned=4</script>"]\nclick A "javascript:parent.pwned=5"\nB --> C[end of it]`);
    await inFrame(page).getByText("end of it").waitFor();
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.equal(await inFrame(page).locator("body script").count(), 0);
});

test("programs run in the server's sandbox; pictures come back; what fails is told", async () => {
    const { page } = await open(front.url);
    await show(page, "python", `print(6 * 7)\nprint("data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")\nprint("<img src=x onerror=window.pwned=1>")`, "Run");
    const output = page.getByRole("region", { name: "Output" });
    const refused = page.getByRole("dialog").getByRole("alert");
    await output.or(refused).waitFor();
    if (await refused.count()) return console.log(`skip: ${await refused.innerText()}`);
    await output.filter({ hasText: "42" }).waitFor();
    await page.getByRole("img", { name: "Picture 1" }).waitFor();
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    await accessible(page, "output of a program");
    await shot(page, "artifact-program");
    await close(page);
    await show(page, "python", "import socket\nsocket.create_connection(('192.0.2.1', 80), 2)", "Run");
    await output.filter({ hasText: /Error|status/ }).waitFor();
    await close(page);
    const run = (body) => fetch(`${server.url}/chimere/v1/run`, { method: "POST", body: JSON.stringify(body) });
    for (const bad of [{}, { language: "python" }, { language: "cobol", code: "x" }, { language: "python", code: 7 }, { language: "python", code: "1", more: 1 }, { language: "shell", code: "x".repeat(300_000) }])
        assert.equal((await run(bad)).status, 400, JSON.stringify(bad).slice(0, 60));
    const many = await Promise.all(Array.from({ length: 5 }, () => run({ language: "shell", code: "sleep 1; echo done" }).then(async (r) => [r.status, (await r.json()).output])));
    assert.deepEqual([...new Set(many.map((m) => m[0]))].sort(), [200, 429].filter((s) => many.some((m) => m[0] === s)));
    assert.ok(many.filter((m) => m[0] === 200).every((m) => /done/.test(m[1])));
    assert.ok(many.some((m) => m[0] === 200) && many.some((m) => m[0] !== 200));
});
