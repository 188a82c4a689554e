// endpoints.test.mjs: what a server offers beside answers: texts to tokens and back, documents by relevance, its state
// and figures, TLS, and that it fetches nothing and ends streams properly when it is stopped.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { Agent, request } from "node:https";
import { after, before, test } from "node:test";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { key, question, serve } from "./serve.mjs";

const nano = join(dirname(process.env.CHIMERE), "chimere-nano.gguf");
const headers = { authorization: `Bearer ${key}` };
let server;
before(async () => { server = await serve("--no-odo", "--ctx", "1024", "--embedding-model", nano); });
after(async () => assert.equal(await server.stop(), 0));

const get = async (path) => (await fetch(server.url + path, { headers })).text();
const post = async (path, body) => {
    const r = await fetch(server.url + path, { method: "POST", headers, body: JSON.stringify(body) });
    return { status: r.status, ...await r.json() };
};
const messages = [{ role: "user", content: question }];

test("texts become tokens and texts again; the template is shown as it is read", async () => {
    const text = "Hello wörld, 12 + 30 = 42. \u{1f600}";
    const { tokens } = await post("/tokenize", { content: text });
    assert.ok(tokens.length > 5 && tokens.every(Number.isInteger));
    assert.equal((await post("/detokenize", { tokens })).content, text);
    const { tokens: pieces, count } = await post("/tokenize", { content: text, with_pieces: true });
    assert.deepEqual(pieces.map((p) => p.id), tokens);
    assert.equal(count, tokens.length);
    const { prompt, n_tokens } = await post("/apply-template", { messages });
    assert.ok(prompt.includes(question));
    const asked = await post("/v1/chat/completions", { messages, max_tokens: 1 });
    assert.equal(asked.usage.prompt_tokens, n_tokens);
    assert.equal((await post("/v1/messages/count_tokens", { messages })).input_tokens, n_tokens);
});

test("documents are ordered by what they have to do with the question", async () => {
    const documents = ["What is 12 plus 31?", "The cat sleeps on the roof.", question];
    const r = await post("/v1/rerank", { query: question, documents, return_documents: true });
    assert.equal(r.results.length, 3);
    assert.equal(r.results[0].index, 2);
    assert.ok(r.results.every((x, i) => !i || x.relevance_score <= r.results[i - 1].relevance_score));
    assert.equal((await post("/v1/rerank", { query: question, documents, top_n: 1 })).results.length, 1);
    assert.equal((await post("/v1/rerank", { query: question })).status, 400);
});

test("state and figures are those of what was asked", async () => {
    const figures = async () => Object.fromEntries((await get("/metrics")).split("\n").filter((l) => l && l[0] !== "#")
        .map((l) => [l.slice(0, l.lastIndexOf(" ")), Number(l.slice(l.lastIndexOf(" ") + 1))]));
    const before = await figures();
    const { usage } = await post("/v1/chat/completions", { messages, max_tokens: 5, ignore_eos: true });
    assert.equal((await post("/v1/chat/completions", { messages, temperature: -1 })).status, 400);
    const now = await figures(), grown = (name) => now[name] - before[name];
    assert.equal(grown("chimere_generated_tokens_total"), 5);
    assert.equal(grown("chimere_prompt_tokens_total"), usage.prompt_tokens);
    assert.equal(grown('chimere_requests_total{outcome="refused"}'), 1);
    assert.equal(grown("chimere_ttft_seconds_count"), 1);
    assert.equal(grown('chimere_answer_seconds_bucket{le="+Inf"}'), 1);
    assert.equal(JSON.parse(await get("/ready")).status, "ready");
    const props = JSON.parse(await get("/props")), slots = JSON.parse(await get("/slots")), status = JSON.parse(await get("/v1/status"));
    assert.equal(props.total_slots, slots.length);
    assert.equal(props.n_ctx, 1024);
    assert.equal(status.models[0].running, 0);
    assert.equal(status.tokens.generated, now.chimere_generated_tokens_total);
});

test("addresses in a request are not fetched", async () => {
    let n_call = 0;
    const trap = createServer((_, r) => (n_call++, r.end())).listen(0, "127.0.0.1");
    await new Promise((r) => trap.on("listening", r));
    const url = `http://127.0.0.1:${trap.address().port}/a.png`;
    const says = (content) => ({ max_tokens: 3, messages: [{ role: "user", content: [content] }] });
    for (const [path, body] of [["/v1/chat/completions", says({ type: "image_url", image_url: { url } })],
        ["/v1/messages", says({ type: "image", source: { type: "url", url } })],
        ["/v1/messages", says({ type: "document", source: { type: "url", url } })],
        ["/v1/responses", { input: [{ role: "user", content: [{ type: "input_image", image_url: url }] }] }]]) {
        const r = await post(path, body);
        assert.equal(r.status, 400, JSON.stringify(r));
        assert.match(r.error.message, /content\[0\]\.(type|source)/);
    }
    trap.close();
    assert.equal(n_call, 0);
});

test("a server that is stopped ends its streams properly", async () => {
    const own = await serve("--no-odo", "--ctx", "1024", "--grace", "0");
    const r = await fetch(`${own.url}/v1/chat/completions`, { method: "POST", headers,
        body: JSON.stringify({ messages, stream: true, ignore_eos: true, max_tokens: 900 }) });
    let text = "", stopped;
    for await (const piece of r.body.pipeThrough(new TextDecoderStream())) {
        text += piece;
        stopped ??= own.stop();
    }
    assert.match(text, /"content":/);
    assert.ok(text.endsWith("data: [DONE]\n\n"), text.slice(-200));
    assert.equal(await stopped, 0);
});

test("TLS: a client that knows the certificate is answered, others are not", async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "chimere-tls-")), cert = join(folder, "cert.pem"), pem = join(folder, "key.pem");
    try {
        execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", pem, "-out", cert, "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], { stdio: "ignore" });
    } catch {
        return t.skip("openssl does not run");
    }
    const own = await serve("--no-odo", "--ctx", "512", "--tls-cert", cert, "--tls-key", pem);
    try {
        assert.match(own.url, /^https:/);
        const ask = (options) => new Promise((resolve, reject) => {
            const r = request(`${own.url}/v1/chat/completions`, { method: "POST", headers, agent: new Agent(options) }, async (res) => {
                let text = "";
                for await (const piece of res) text += piece;
                resolve(text);
            });
            r.on("error", reject);
            r.end(JSON.stringify({ messages, temperature: 0, stream: true }));
        });
        const text = await ask({ ca: readFileSync(cert) });
        assert.match(text, /"content":" ?4".*"content":"2"/s);
        assert.ok(text.endsWith("data: [DONE]\n\n"));
        await assert.rejects(ask({}), /self-signed/);
        await assert.rejects(fetch(own.url.replace("https", "http")));
    } finally {
        assert.equal(await own.stop(), 0);
        rmSync(folder, { recursive: true });
    }
});
