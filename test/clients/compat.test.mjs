// compat.test.mjs: fields, values and routes that clients of other servers send. Each does what its name says, is a
// hint that is counted, or is refused by name.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { after, before, test } from "node:test";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { key, question, serve } from "./serve.mjs";

let server, folder;
before(async () => {
    folder = mkdtempSync(join(tmpdir(), "chimere-compat-"));
    const vectors = join(folder, "vectors.gguf"); /* by another name */
    symlinkSync(join(dirname(process.env.CHIMERE), "chimere-nano.gguf"), vectors);
    server = await serve("--no-odo", "--ctx", "1024", "--embedding-model", vectors);
});
after(async () => {
    assert.equal(await server?.stop(), 0);
    rmSync(folder, { recursive: true });
});

const headers = { authorization: `Bearer ${key}` };
async function post(path, body) {
    const r = await fetch(server.url + path, { method: "POST", headers, body: JSON.stringify(body) });
    const json = await r.json();
    return Array.isArray(json) ? { list: json, http: r.status } : { ...json, http: r.status };
}
const messages = [{ role: "user", content: question }];
const chat = (more) => post("/v1/chat/completions", { messages, temperature: 0, max_tokens: 24, ...more });
async function say(more) {
    const r = await chat(more);
    assert.equal(r.http, 200, JSON.stringify(r));
    return r.choices[0];
}

test("hints are taken", async () => {
    await say({ keep_alive: "5m", ttl: 60, options: {}, usage: { include: true }, include_reasoning: true, provider: {}, transforms: [],
        skip_special_tokens: true, priority: 0, speed: "fast", parse_tool_calls: true, n_keep: 0, backend_sampling: false, verbosity: "low" });
    assert.equal((await chat({ no_such_field: 1 })).error.message, "no_such_field: unknown field");
});

test("values that mean off, none or the default", async () => {
    const plain = (await say({})).message.content;
    for (const more of [{ top_k: -1 }, { stop: [""] }, { stop: "" }, { model: "" }, { stop: null }])
        assert.equal((await say(more)).message.content, plain);
    const none = await chat({ max_tokens: 0 });
    assert.equal(none.choices[0].message.content, "");
    assert.equal(none.choices[0].finish_reason, "length");
    assert.equal(none.usage.completion_tokens, 0);
    assert.ok(none.usage.prompt_tokens > 5);
    await say({ messages: [...messages, { role: "assistant", content: null, tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: "{}" } }] },
        { role: "tool", tool_call_id: "a", content: null }] });
});

test("names of other servers for what there is", async () => {
    const five = { ignore_eos: true, messages: [{ role: "user", content: "Who are you?" }] };
    assert.equal((await chat({ ...five, max_tokens: undefined, max_new_tokens: 5 })).usage.completion_tokens, 5);
    const hot = { temperature: 2, max_tokens: 12, cache_prompt: false };
    assert.equal((await say({ ...hot, seed: 7 })).message.content, (await say({ ...hot, random_seed: 7 })).message.content);
    assert.equal((await say({ n_probs: 2 })).logprobs.content[0].top_logprobs.length, 2);
});

test("the answer's form, as vLLM names it", async () => {
    assert.ok(["red", 'gr"een'].includes((await say({ guided_choice: ["red", 'gr"een'] })).message.content));
    assert.ok(["a", "b"].includes((await say({ structured_outputs: { choice: ["a", "b"] } })).message.content));
    const schema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"], additionalProperties: false };
    assert.equal(typeof JSON.parse((await say({ guided_json: schema })).message.content).ok, "boolean");
    assert.equal(typeof JSON.parse((await say({ guided_json: JSON.stringify(schema) })).message.content).ok, "boolean");
    assert.equal((await say({ guided_grammar: 'root ::= "yes"' })).message.content, "yes");
    assert.match((await chat({ structured_outputs: { structural_tag: "{}" } })).error.message, /structured_outputs\.structural_tag/);
});

test("what ends an answer", async () => {
    const { tokens } = await post("/tokenize", { content: (await say({})).message.content });
    const [first, second] = tokens;
    const cut = await say({ stop_token_ids: [second] });
    assert.equal(cut.message.content, (await post("/detokenize", { tokens: [first] })).content);
    assert.equal(cut.finish_reason, "stop");
    const without = await say({ stop: "=" }), kept = await say({ stop: "=", include_stop_str_in_output: true });
    assert.equal(kept.message.content, `${without.message.content}=`);
    const late = await chat({ t_max_predict_ms: 1, max_tokens: 900, ignore_eos: true });
    assert.ok(late.usage.completion_tokens < 900);
    assert.equal(late.choices[0].finish_reason, "length");
});

test("samplers: those that are not named are off", async () => {
    const greedy = { temperature: 1, top_k: 1, max_tokens: 40, messages: [{ role: "user", content: "Who are you?" }], ignore_eos: true };
    const plain = (await say(greedy)).message.content, penalised = (await say({ ...greedy, repeat_penalty: 10 })).message.content;
    assert.notEqual(penalised, plain);
    assert.equal((await say({ ...greedy, repeat_penalty: 10, samplers: ["top_k", "temperature"] })).message.content, plain);
    assert.equal((await say({ ...greedy, repeat_penalty: 10, samplers: ["penalties", "top_k"] })).message.content, penalised);
    assert.match((await chat({ samplers: ["magic"] })).error.message, /samplers\[0\].*magic/);
});

test("functions as they were before tools", async () => {
    const f = { name: "calculator", description: "Calculator.", parameters: { type: "object", properties: { expression: { type: "string" } }, required: ["expression"] } };
    const r = await say({ functions: [f], function_call: { name: "calculator" }, max_tokens: 100 });
    assert.equal(r.finish_reason, "function_call");
    assert.equal(r.message.function_call.name, "calculator");
    assert.equal(typeof JSON.parse(r.message.function_call.arguments).expression, "string");
    await say({ functions: [f], messages: [...messages, { role: "assistant", content: null, function_call: r.message.function_call }, { role: "function", name: "calculator", content: "42" }] });
    const tools = [{ type: "function", function: f }];
    await say({ tools, tool_choice: { type: "allowed_tools", allowed_tools: { mode: "auto", tools: [{ type: "function", function: { name: "calculator" } }] } } });
    assert.match((await chat({ tools, tool_choice: { type: "allowed_tools", allowed_tools: { mode: "required", tools: [] } } })).error.message, /tool_choice/);
    assert.equal((await say({ tools, max_tokens: 100, tool_choice: "required", response_format: { type: "json_object" } })).finish_reason, "tool_calls");
});

test("documents and search results are read, images in results become a note", async () => {
    const m = (content) => post("/v1/messages", { max_tokens: 2, messages: [{ role: "user", content }] });
    for (const block of [{ type: "document", title: "T", source: { type: "text", media_type: "text/plain", data: "D" } },
        { type: "document", source: { type: "content", content: [{ type: "text", text: "D" }] } },
        { type: "document", source: { type: "base64", media_type: "text/plain", data: "aGk=" } },
        { type: "search_result", title: "T", source: "S", content: [{ type: "text", text: "x" }] }])
        assert.equal((await m([block])).http, 200, JSON.stringify(block));
    assert.equal((await m([{ type: "document", source: { type: "base64", media_type: "application/pdf", data: "aGk=" } }])).http, 400);
    assert.equal((await m([{ type: "image", source: { type: "base64", media_type: "image/png", data: "aGk=" } }])).http, 400);
    const call = [...messages, { role: "assistant", content: [{ type: "tool_use", id: "a", name: "f", input: {} }] }];
    const r = await post("/v1/messages", { max_tokens: 2, messages: [...call, { role: "user", content: [{ type: "tool_result", tool_use_id: "a",
        content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: "aGk=" } }] }] }] });
    assert.equal(r.http, 200, JSON.stringify(r));
    const { prompt } = await post("/apply-template", { messages: [...messages, { role: "assistant", content: "", tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: "{}" } }] },
        { role: "tool", tool_call_id: "a", content: [{ type: "image_url", image_url: { url: "data:image/png;base64,aGk=" } }] }] });
    assert.match(prompt, /\[image_url left out: this model reads text only\]/);
});

test("embeddings: token ids, dimensions, hints", async () => {
    const { tokens } = await post("/tokenize", { content: question });
    const vectors = async (more) => (await post("/v1/embeddings", { input: question, input_type: "query", ...more })).data.map((d) => d.embedding);
    const [whole] = await vectors({}), [ids] = await vectors({ input: tokens }), two = await vectors({ input: [tokens, tokens] });
    assert.deepEqual(ids, whole);
    assert.deepEqual(two[1], whole);
    const [short] = await vectors({ dimensions: 8 });
    const norm = Math.hypot(...whole.slice(0, 8));
    assert.equal(short.length, 8);
    short.forEach((x, i) => assert.ok(Math.abs(x - whole[i] / norm) < 1e-5));
    assert.equal((await post("/v1/embeddings", { input: "x", dimensions: 100000 })).http, 400);
    assert.equal((await post("/v1/embeddings", { input: [-1] })).http, 400);
    const { list } = await post("/rerank", { query: question, texts: ["The cat sleeps.", question], return_text: true });
    assert.equal(list[0].index, 1);
    assert.equal(list[0].text, question);
});

test("routes with and without /v1, errors in their API's form, all models", async () => {
    const get = async (path, more) => { const r = await fetch(server.url + path, { headers: { ...headers, ...more } }); return { http: r.status, ...await r.json() }; };
    assert.equal((await post("/chat/completions", { messages, max_tokens: 1 })).http, 200);
    assert.equal((await post("/completions", { prompt: "a", max_tokens: 1 })).http, 200);
    assert.equal((await post("/v1/tokenize", { content: "a" })).http, 200);
    for (const path of ["/", "/v1", "/v1/health", "/health"]) assert.equal((await get(path)).status, "ok");
    assert.equal((await get("/v1/messages/batches")).error.type, "not_found_error");
    assert.equal((await get("/v1/messages/batches")).type, "error");
    assert.equal((await get("/v1/nothing")).error.code, "not_found");
    const ids = (await get("/v1/models")).data.map((m) => m.id);
    assert.equal(ids.length, 2);
    const list = await get("/v1/models", { "anthropic-version": "2023-06-01" });
    assert.deepEqual(list.data.map((m) => m.type), ["model", "model"]);
    assert.equal(list.first_id, ids[0]);
    assert.match((await chat({ model: "gpt-5" })).error.message, /--alias/);
});
