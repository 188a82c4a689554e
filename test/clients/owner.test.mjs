// owner.test.mjs: what the owner of a server manages through it: documents, facts, models on disk, nights; and what an
// administrator sees of requests and decisions.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { question, start } from "./serve.mjs";

const nano = join(dirname(process.env.CHIMERE), "chimere-nano.gguf");
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
let server, hub, night;

// Two nights, the second of which serves: as `chimere night` leaves them.
function makeNights(folder) {
    night = join(folder, "chimere", "night");
    for (const name of ["objects", "nights", "live"]) mkdirSync(join(night, name), { recursive: true });
    for (const n of [1, 2]) {
        const bytes = `table of night ${n}`;
        writeFileSync(join(night, "objects", sha256(bytes)), bytes);
        writeFileSync(join(night, "nights", `00000${n}.json`), JSON.stringify({ night: n, parent: n - 1, at: 1700000000 + n, model: "nano", promoted: true,
            steps: [{ name: "engram", about: "table", promoted: true, target: { n: 20, gain: 0.1 * n, low: 0.05, high: 0.2 } }], artefacts: { "night.engr": sha256(bytes) } }));
    }
    writeFileSync(join(night, "current"), "2\n");
}

before(async () => {
    let hubFolder;
    server = await start((folder) => {
        hubFolder = join(folder, "hub");
        mkdirSync(join(hubFolder, "tiny/model"), { recursive: true });
        copyFileSync(nano, join(hubFolder, "tiny/model/Tiny-Q8_0.gguf"));
        writeFileSync(join(folder, "keys"), "key-of-owner owner admin\nkey-of-guest guest\n");
        makeNights(folder);
        hub = spawn(process.execPath, [fileURLToPath(new URL("../net/standin.mjs", import.meta.url)), hubFolder], { stdio: ["pipe", "pipe", "inherit"] });
        return { args: ["-m", "nano", "--api-key", join(folder, "keys"), "--state-dir", join(folder, "state"), "--models-dir", join(folder, "models"),
            "--hf-endpoint", "http://127.0.0.1:1"], env: { XDG_DATA_HOME: folder } };
    });
});
after(async () => {
    hub.stdin.end();
    assert.equal(await server.stop(), 0);
});

async function call(method, path, body, key = "key-of-owner") {
    const res = await fetch(server.url + path, { method, headers: { authorization: `Bearer ${key}` },
        body: body === undefined || typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body) });
    const text = await res.text();
    return { status: res.status, ...(text.startsWith("{") ? JSON.parse(text) : { text }) };
}

// One page with one line, as PDF 1.4 says it (ISO 32000, 7.5).
function pdf(line) {
    const stream = `BT /F1 18 Tf 40 100 Td (${line}) Tj ET`;
    const objects = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 400 200] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"];
    let text = "%PDF-1.4\n";
    const at = objects.map((o, i) => {
        const from = text.length;
        text += `${i + 1} 0 obj\n${o}\nendobj\n`;
        return from;
    });
    const xref = text.length;
    text += `xref\n0 6\n0000000000 65535 f \n${at.map((n) => `${String(n).padStart(10, "0")} 00000 n \n`).join("")}trailer << /Size 6 /Root 1 0 R >>\nstartxref\n${xref}\n%%EOF\n`;
    return text;
}

test("documents are put, listed, found with their passage, replaced and removed", async () => {
    const first = await call("POST", "/chimere/v1/documents?name=harbour/notes.md", "# Lighthouse\n\nThe lighthouse keeper is called Ingrid Solberg.\n");
    assert.equal(first.status, 200, JSON.stringify(first));
    assert.ok(first.chunks >= 1);
    await call("POST", "/chimere/v1/documents?name=other.txt&collection=work", "Minutes of the meeting about budgets.");
    const list = await call("GET", "/chimere/v1/documents");
    assert.deepEqual(list.data.map((d) => [d.name, d.collection]), [["harbour/notes.md", "default"], ["other.txt", "work"]]);
    assert.equal((await call("GET", "/chimere/v1/documents?collection=work")).data.length, 1);
    const found = await call("GET", "/chimere/v1/documents/search?query=Who%20is%20the%20lighthouse%20keeper%3F");
    assert.equal(found.data[0].name, "harbour/notes.md");
    assert.match(found.data[0].text, /Ingrid Solberg/);
    assert.ok(found.data[0].score > 0);
    assert.match(found.ranking, /bm25/);
    await call("POST", "/chimere/v1/documents?name=harbour/notes.md", "# Lighthouse\n\nThe lighthouse keeper is called Astrid Berg.\n");
    const again = await call("GET", "/chimere/v1/documents/search?query=lighthouse%20keeper");
    assert.equal(again.data.length, 1);
    assert.match(again.data[0].text, /Astrid/);
    assert.equal((await call("DELETE", "/chimere/v1/documents?name=harbour/notes.md")).deleted, true);
    assert.equal((await call("DELETE", "/chimere/v1/documents?name=harbour/notes.md")).status, 404);
    assert.equal((await call("GET", "/chimere/v1/documents/search?query=lighthouse%20keeper")).data.length, 0);
});

test("documents are listed by pages, each once, also if the last one of a page is deleted", async () => {
    const names = Array.from({ length: 7 }, (_, i) => `part ${i}.txt`);
    for (const name of names) await call("POST", `/chimere/v1/documents?name=${encodeURIComponent(name)}&collection=pages`, `Text of ${name}.`);
    const page = (after) => call("GET", `/chimere/v1/documents?collection=pages&limit=3${after ? `&after=${encodeURIComponent(after)}` : ""}`);
    const first = await page();
    assert.deepEqual([first.data.map((d) => d.name), first.has_more], [names.slice(0, 3), true]);
    await call("DELETE", "/chimere/v1/documents?name=part%202.txt&collection=pages");
    const second = await page(first.last_id);
    assert.deepEqual([second.data.map((d) => d.name), second.has_more], [names.slice(3, 6), true]);
    const third = await page(second.last_id);
    assert.deepEqual([third.data.map((d) => d.name), third.has_more], [names.slice(6), false]);
    assert.deepEqual((await page(third.last_id)).data, []);
    assert.equal((await page(third.last_id)).last_id, null);
    for (const wrong of ["limit=0", "limit=1001", "limit=x", "after=part", "after=%09", `after=${"a".repeat(65)}%09b`])
        assert.equal((await call("GET", `/chimere/v1/documents?${wrong}`)).status, 400, wrong);
    for (const name of names) await call("DELETE", `/chimere/v1/documents?name=${encodeURIComponent(name)}&collection=pages`);
});

test("personas belong to their key, have one name each, and are deleted", async () => {
    const path = "/chimere/v1/personas", text = "You are a pirate.";
    const made = await call("POST", path, JSON.stringify({ name: "Pirate", text }));
    assert.deepEqual({ ...made, id: 0, status: 0 }, { id: 0, object: "persona", name: "Pirate", text, status: 0 });
    assert.deepEqual((await call("GET", path, undefined, "key-of-guest")).data, []);
    assert.equal((await call("POST", `${path}/${made.id}`, JSON.stringify({ name: "Mine", text }), "key-of-guest")).status, 404);
    assert.equal((await call("DELETE", `${path}/${made.id}`, undefined, "key-of-guest")).status, 404);
    await call("POST", path, JSON.stringify({ name: "Pirate", text: "Another key's." }), "key-of-guest");
    const clash = await call("POST", path, JSON.stringify({ name: "Pirate", text: "x" }));
    assert.equal(clash.status, 400);
    assert.match(clash.error.message, /another persona is called 'Pirate'/);
    await call("POST", `${path}/${made.id}`, JSON.stringify({ name: "Buccaneer", text: "Arr." }));
    assert.deepEqual((await call("GET", path)).data.map((p) => [p.id, p.name, p.text]), [[made.id, "Buccaneer", "Arr."]]);
    for (const wrong of [{}, { name: "a" }, { name: "", text }, { name: "a".repeat(65), text }, { name: "a\nb", text }, { name: "a", text: "x".repeat(16385) }, { name: "a", text, more: 1 }])
        assert.equal((await call("POST", path, JSON.stringify(wrong))).status, 400, JSON.stringify(wrong).slice(0, 80));
    for (let i = 1; i < 100; i++) await call("POST", path, JSON.stringify({ name: `p${i}`, text }));
    assert.notEqual((await call("POST", path, JSON.stringify({ name: "one too many", text }))).status, 200);
    for (const p of (await call("GET", path)).data) assert.equal((await call("DELETE", `${path}/${p.id}`)).deleted, true);
    assert.deepEqual((await call("GET", path)).data, []);
    assert.equal((await call("DELETE", `${path}/x`)).status, 404);
    assert.equal((await call("GET", path, undefined, "key-of-guest")).data.length, 1);
});

test("the text of a PDF and of a page; kinds that cannot be read are refused", async () => {
    const got = await call("POST", "/chimere/v1/extract?name=letter.pdf", pdf("Dear reader of this letter"));
    if (got.status === 400 && /sandbox/.test(got.error.message)) return console.log(`skip: ${got.error.message}`);
    assert.equal(got.status, 200, JSON.stringify(got));
    assert.match(got.text, /Dear reader of this letter/);
    assert.equal(got.pages, 1);
    const html = await call("POST", "/chimere/v1/extract?name=a.html", "<title>T</title><p>Hello <b>there</b><script>alert(1)</script>");
    assert.match(html.text, /Hello there/);
    assert.doesNotMatch(html.text, /alert/);
    for (const path of ["/chimere/v1/extract?name=a.exe", "/chimere/v1/extract", "/chimere/v1/documents?name=a.exe", "/chimere/v1/documents?name=", "/chimere/v1/documents?name=a%0a.txt",
        `/chimere/v1/documents?name=${"x".repeat(600)}.txt`, "/chimere/v1/documents?name=a.txt&collection=%01"])
        assert.equal((await call("POST", path, "x")).status, 400, path);
    for (const path of ["/chimere/v1/documents/search", "/chimere/v1/documents/search?query=a&limit=99", `/chimere/v1/documents/search?query=${"x".repeat(5000)}`])
        assert.equal((await call("GET", path)).status, 400, path);
    const bad = await call("POST", "/chimere/v1/extract?name=a.pdf", "%PDF-1.4 this is none");
    assert.ok(bad.status === 400 || bad.text === "", JSON.stringify(bad));
});

test("a fact is edited in its place; not by another, not to a text that there is", async () => {
    const { id } = await call("POST", "/v1/memory", { text: "I live in Oslo", pinned: true });
    await call("POST", "/v1/memory", { text: "I like trains" });
    assert.equal((await call("POST", `/v1/memory/${id}`, { text: "  I live in Bergen " })).status, 200);
    const { data } = await call("GET", "/v1/memory");
    assert.deepEqual(data.find((x) => x.id === id), { ...data.find((x) => x.id === id), text: "I live in Bergen", pinned: true });
    assert.equal(data.length, 2);
    for (const body of [{ text: "I like trains" }, { text: "" }, { text: 3 }, { text: "x".repeat(2000) }, {}, { text: "a", pinned: true }])
        assert.equal((await call("POST", `/v1/memory/${id}`, body)).status, 400, JSON.stringify(body));
    assert.equal((await call("POST", `/v1/memory/${id}`, { text: "stolen" }, "key-of-guest")).status, 404);
});

test("requests and decisions are listed for administrators alone", async () => {
    const ask = (model) => call("POST", "/v1/chat/completions", { model, messages: [{ role: "user", content: question }] });
    await ask("chimere-nano");
    const answer = await ask("odo");
    let list;
    for (let i = 0; i < 600 && !(list?.data.length >= 2); i++) {
        list = await call("GET", "/chimere/v1/requests?limit=10");
        await new Promise((ok) => setTimeout(ok, 100));
    }
    assert.equal(list.data[0].model, "odo");
    assert.equal(list.data[0].generated, answer.usage.completion_tokens);
    assert.equal(list.data[1].status, 200);
    assert.ok(list.data[0].id > list.data[1].id);
    assert.deepEqual((await call("GET", `/chimere/v1/requests?before=${list.data[0].id}`)).data[0].id, list.data[1].id);
    const decided = await call("GET", "/chimere/v1/decisions?limit=5");
    assert.equal(decided.data.length, 1);
    assert.equal(decided.data[0].record.decision.route, decided.data[0].route);
    assert.doesNotMatch(JSON.stringify(decided), /plus 30/); // never the question
    for (const path of ["/chimere/v1/requests?limit=0", "/chimere/v1/requests?before=x", "/chimere/v1/decisions?limit=5000"]) assert.equal((await call("GET", path)).status, 400, path);
    for (const [method, path, body] of [["GET", "/chimere/v1/requests"], ["GET", "/chimere/v1/decisions"], ["GET", "/chimere/v1/quality"], ["GET", "/chimere/v1/nights"], ["POST", "/chimere/v1/nights", { night: 1 }],
        ["GET", "/chimere/v1/models"], ["POST", "/chimere/v1/models/pull", { model: "hf:tiny/model" }], ["POST", "/chimere/v1/documents?name=a.txt", "x"], ["DELETE", "/chimere/v1/documents?name=a.txt"]])
        assert.equal((await call(method, path, body, "key-of-guest")).status, 403, path);
});

test("nights are listed and rolled back: the files of that night serve", async () => {
    const list = await call("GET", "/chimere/v1/nights");
    assert.equal(list.current, 2);
    assert.deepEqual(list.data.map((n) => n.night), [2, 1]);
    assert.equal((await call("POST", "/chimere/v1/nights", { night: 1 })).current, 1);
    assert.equal(readFileSync(join(night, "current"), "utf8"), "1\n");
    assert.equal(readFileSync(join(night, "live", "night.engr"), "utf8"), "table of night 1");
    assert.equal((await call("POST", "/chimere/v1/nights", { night: 0 })).current, 0);
    assert.equal(existsSync(join(night, "live", "night.engr")), false);
    assert.equal((await call("POST", "/chimere/v1/nights", { night: 7 })).status, 404);
    for (const body of [{}, { night: -1 }, { night: "1" }, { night: 1, more: 2 }]) assert.equal((await call("POST", "/chimere/v1/nights", body)).status, 400);
    writeFileSync(join(night, "objects", sha256("table of night 2")), "damaged");
    assert.equal((await call("POST", "/chimere/v1/nights", { night: 2 })).status, 400);
    assert.equal((await call("GET", "/chimere/v1/nights")).current, 0);
});

test("models are fetched from a hub with progress, and listed with the memory that they take", async () => {
    assert.deepEqual((await call("GET", "/chimere/v1/models")).data, []);
    assert.equal((await call("POST", "/chimere/v1/models/pull", { model: "../etc" })).status, 400);
    assert.equal((await call("POST", "/chimere/v1/models/pull", {})).status, 400);
    const failed = await call("POST", "/chimere/v1/models/pull", { model: "hf:tiny/model:Q8_0" });
    assert.match(failed.error.message, /./); // nobody listens on that port
    const port = await new Promise((ok) => hub.stdout.once("data", (d) => ok(String(d).split(" ")[0])));
    const other = await start((folder) => ({ args: ["-m", "nano", "--no-odo", "--models-dir", join(folder, "models"), "--hf-endpoint", `http://127.0.0.1:${port}`], env: { XDG_DATA_HOME: folder } }));
    try {
        const res = await fetch(`${other.url}/chimere/v1/models/pull`, { method: "POST", body: JSON.stringify({ model: "hf:tiny/model:Q8_0" }) });
        const lines = (await res.text()).trim().split("\n").map((l) => JSON.parse(l));
        assert.equal(lines[0].file, "Tiny-Q8_0.gguf");
        assert.equal(lines[0].total, readFileSync(nano).length);
        const { path } = lines.at(-1);
        assert.equal(sha256(readFileSync(path)), sha256(readFileSync(nano)));
        const { data } = await (await fetch(`${other.url}/chimere/v1/models`)).json();
        assert.equal(data.length, 1);
        assert.equal(data[0].name, "tiny/model/Tiny-Q8_0");
        const p = data[0].plan;
        assert.equal(p.total, p.weights + p.cache + p.state + p.scratch + p.program);
        writeFileSync(join(dirname(path), "broken.gguf"), "no model");
        const broken = (await (await fetch(`${other.url}/chimere/v1/models`)).json()).data.find((m) => m.name.endsWith("broken"));
        assert.match(broken.error, /broken\.gguf/);
        assert.equal((await (await fetch(`${other.url}/chimere/v1/documents`)).json()).error.code, "not_found");
    } finally {
        await other.stop();
    }
});
