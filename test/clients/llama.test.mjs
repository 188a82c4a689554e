// llama.test.mjs: llama-server's own routes as its clients call them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { key, question, serve } from "./serve.mjs";

let server;
before(async () => { server = await serve("--no-odo", "--ctx", "1024", "--temp", "0.25", "--cors", "localhost"); });
after(async () => assert.equal(await server.stop(), 0));

const headers = { authorization: `Bearer ${key}` };
async function call(path, body) {
    const r = await fetch(server.url + path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
    const text = await r.text();
    if (r.headers.get("content-type") === "text/event-stream")
        return { http: r.status, events: text.split("\n").filter((l) => l.startsWith("data: ")).map((l) => JSON.parse(l.slice(6))) };
    const json = JSON.parse(text);
    return Array.isArray(json) ? { http: r.status, list: json } : { http: r.status, ...json };
}
const prompt = "one two three", plain = { prompt, n_predict: 6, temperature: 0, ignore_eos: true };

test("completion: whole, as a stream, several", async () => {
    const r = await call("/completion", plain);
    assert.equal(r.http, 200, JSON.stringify(r));
    assert.equal(r.stop, true);
    assert.equal(r.stop_type, "limit");
    assert.equal(r.tokens_predicted, 6);
    assert.equal(r.timings.predicted_n, 6);
    const { events } = await call("/completion", { ...plain, stream: true });
    assert.equal(events.map((e) => e.content).join(""), r.content);
    assert.deepEqual(events.map((e) => e.stop), events.map((_, i) => i === events.length - 1));
    const { list } = await call("/completion", { ...plain, prompt: [prompt, "x"] });
    assert.equal(list.length, 2);
    assert.equal(list[0].content, r.content);
    const word = r.content.trim().slice(0, 2), cut = await call("/completion", { ...plain, stop: [word] });
    assert.equal(cut.stop_type, "word");
    assert.equal(cut.stopping_word, word);
    assert.equal((await call("/completion", { ...plain, n_predict: 0 })).tokens_predicted, 0);
});

test("completion: tokens, probabilities, chosen fields", async () => {
    const r = await call("/completion", { ...plain, return_tokens: true });
    assert.equal(r.tokens.length, 6);
    assert.equal((await call("/detokenize", { tokens: r.tokens })).content, r.content);
    assert.deepEqual((await call("/completion", plain)).tokens, []);
    const p = await call("/completion", { ...plain, n_probs: 2 });
    assert.equal(p.completion_probabilities.length, 6);
    assert.deepEqual(p.completion_probabilities.map((x) => x.id), r.tokens);
    for (const x of p.completion_probabilities) assert.equal(x.top_logprobs[0].id, x.id);
    for (let i = 0; i < 20; i++) // a drawn seed survives a parser of doubles
        assert.ok(Number.isSafeInteger((await call("/completion", { ...plain, n_predict: 1 })).generation_settings.seed));
    const few = await call("/completion", { ...plain, response_fields: ["content", "timings/predicted_n"] });
    assert.deepEqual(Object.keys(few).sort(), ["content", "http", "timings/predicted_n"]);
});

test("a model without tokens to fill in the middle is named", async () => {
    for (const [path, body] of [["/infill", { input_prefix: "a", input_suffix: "b" }], ["/v1/completions", { prompt: "a", suffix: "b" }]]) {
        const r = await call(path, body);
        assert.equal(r.http, 400);
        assert.match(r.error.message, /fill in the middle/);
    }
    assert.equal((await call("/v1/completions", { prompt: "a", suffix: "", max_tokens: 1 })).http, 200);
});

test("counts, adapters, reranking's other name", async () => {
    const messages = [{ role: "user", content: question }];
    const { n_tokens } = await call("/apply-template", { messages });
    assert.equal((await call("/v1/responses/input_tokens", { input: question })).input_tokens, n_tokens);
    assert.equal((await call("/v1/chat/completions/input_tokens", { messages })).input_tokens, n_tokens);
    assert.deepEqual((await call("/lora-adapters")).list, []);
    assert.match((await call("/reranking", { query: "a", documents: ["b"] })).error.message, /embedding model/);
});

test("props: the file, the context and the samplers of a request that names none", async () => {
    const props = await call("/props");
    assert.equal(props.model_path, "chimere-nano.gguf");
    assert.equal(props.default_generation_settings.n_ctx, 1024);
    assert.equal(props.default_generation_settings.params.temperature, 0.25);
    assert.equal(props.default_generation_settings.params.seed, -1);
});

test("--cors localhost lets pages of this machine call, whatever their port", async () => {
    const ask = (origin) => fetch(server.url + "/completion", { method: "OPTIONS", headers: { origin, "access-control-request-method": "POST" } });
    for (const origin of ["http://localhost", "https://localhost:8080", "http://127.0.0.1:3000", "http://[::1]:1"]) {
        const r = await ask(origin);
        assert.equal(r.status, 204, origin);
        assert.equal(r.headers.get("access-control-allow-origin"), origin);
    }
    for (const origin of ["http://localhost.evil.com", "http://notlocalhost", "http://evil.com:80", "null"])
        assert.equal((await ask(origin)).status, 403, origin);
});
