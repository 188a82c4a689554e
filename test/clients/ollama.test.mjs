// ollama.test.mjs: Ollama's API as its clients call it: names with tags, lines of JSON, options, tools, thinking, format.
import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { after, before, test } from "node:test";
import { dirname, join } from "node:path";
import { calculator, key, person, question, serve, toolQuestion } from "./serve.mjs";

const nano = join(dirname(process.env.CHIMERE), "chimere-nano.gguf");
let server;
before(async () => { server = await serve("--no-odo", "--ctx", "1024", "--embedding-model", nano, "--seed", "1"); });
after(async () => assert.equal(await server.stop(), 0));

const headers = { authorization: `Bearer ${key}` };
const model = "chimere-nano:latest", messages = [{ role: "user", content: question }], options = { temperature: 0, num_predict: 24, num_ctx: 4096 };
async function call(method, path, body) {
    const r = await fetch(server.url + path, { method, headers, body: body && JSON.stringify(body) });
    const lines = (await r.text()).split("\n").filter(Boolean).map((l) => JSON.parse(l));
    return { http: r.status, type: r.headers.get("content-type"), lines, ...lines[0] };
}
const post = (path, body) => call("POST", path, { model, ...body });

test("version, models, what they can do", async () => {
    assert.match((await call("GET", "/api/version")).version, /^\d+\.\d+\.\d+$/);
    const { models } = await call("GET", "/api/tags");
    assert.equal(models[0].name, model);
    assert.equal(models[0].digest.length, 64);
    assert.equal(models[0].size, statSync(nano).size);
    assert.match(models[0].details.parameter_size, /^\d+M$/);
    assert.equal((await call("GET", "/api/ps")).models[0].context_length, 1024);
    const show = await post("/api/show", {});
    const arch = show.model_info["general.architecture"];
    assert.equal(show.model_info[`${arch}.context_length`], 1024);
    assert.ok(["completion", "tools", "thinking"].every((c) => show.capabilities.includes(c)));
    assert.equal((await post("/api/pull", {})).status, "success");
    const missing = await post("/api/show", { model: "other:7b" });
    assert.equal(missing.http, 404);
    assert.equal(typeof missing.error, "string");
    assert.equal((await call("DELETE", "/api/delete", { model })).http, 400);
    assert.equal(typeof (await call("GET", "/api/nothing")).error, "string");
});

test("chat: whole and as lines", async () => {
    const r = await post("/api/chat", { messages, options, stream: false });
    assert.equal(r.http, 200, JSON.stringify(r));
    assert.match(r.message.content, /42/);
    assert.equal(r.done, true);
    assert.equal(r.done_reason, "stop");
    assert.ok(r.eval_count > 0 && r.prompt_eval_count > 0 && r.total_duration > 0);
    const s = await post("/api/chat", { messages, options, keep_alive: "5m" });
    assert.equal(s.type, "application/x-ndjson");
    assert.equal(s.lines.map((l) => l.message.content).join(""), r.message.content);
    assert.deepEqual(s.lines.map((l) => l.done), s.lines.map((_, i) => i === s.lines.length - 1));
    assert.equal((await post("/api/chat", { messages, options: { num_predict: 2 }, stream: false })).done_reason, "length");
    const written = JSON.stringify({ model, messages, stream: false, options }).replace('"num_predict":24', '"num_predict":-1.0,"seed":7.0');
    const points = await fetch(`${server.url}/api/chat`, { method: "POST", headers, body: written }); // every number with a point
    assert.equal(points.status, 200);
    assert.equal((await points.json()).message.content, r.message.content);
    assert.equal((await post("/api/chat", { messages: [] })).done_reason, "load");
    assert.equal((await post("/api/chat", { messages: [], keep_alive: 0 })).done_reason, "unload");
    assert.equal((await post("/api/chat", { model: "other:7b", messages: [] })).http, 404);
    assert.match((await post("/api/chat", { messages, options: { magic: 1 } })).error, /options\.magic/);
    const see = (images, content = "x") => post("/api/chat", { messages: [{ role: "user", content, images }] });
    assert.match((await see(["iVBORw0KGgo="])).error, /^messages\[0\]\.content\[1\]\.type: .* an image;.*--mmproj/);
    assert.match((await see(["iVBORw0KGgo="], "")).error, /^messages\[0\]\.content\[0\]\.type: .* an image;/);
    assert.match((await see([5])).error, /^messages\[0\]\.images: expected/);
});

test("generate: a prompt, a system text, raw", async () => {
    const r = await post("/api/generate", { prompt: question, system: "You are a helpful assistant.", options, stream: false });
    assert.match(r.response, /42/);
    const s = await post("/api/generate", { prompt: question, options });
    assert.match(s.lines.map((l) => l.response).join(""), /42/);
    assert.equal((await post("/api/generate", { prompt: "a b c", raw: true, options, stream: false })).http, 200);
    assert.match((await post("/api/generate", { prompt: question, images: ["iVBORw0KGgo="] })).error, /an image;.*--mmproj/);
    assert.match((await post("/api/generate", { prompt: question, images: ["aGk="], raw: true })).error, /^images: not with raw/);
    const unset = { suffix: "", template: "", system: "", images: [], context: [] }; // as some clients send what is not set
    assert.match((await post("/api/generate", { prompt: question, ...unset, options, stream: false })).response, /42/);
    assert.match((await post("/api/generate", { prompt: question, suffix: "x" })).error, /^suffix: unknown/);
    assert.equal((await post("/api/generate", {})).done_reason, "load");
    assert.equal((await post("/api/generate", { keep_alive: "5m" })).done_reason, "load");
    assert.equal((await post("/api/generate", { keep_alive: "0s" })).done_reason, "unload");
    assert.equal((await post("/api/generate", { model: "other:7b" })).http, 404);
    assert.equal((await call("POST", "/api/generate", {})).http, 400);
});

test("tools, their results, a format, thinking", async () => {
    const tools = [{ type: "function", function: calculator }];
    const first = await post("/api/chat", { messages: [{ role: "user", content: toolQuestion }], tools, options: { temperature: 0 }, stream: false });
    assert.equal(first.message.tool_calls?.[0].function.name, "calculator", JSON.stringify(first));
    assert.equal(typeof first.message.tool_calls[0].function.arguments.expression, "string");
    const s = await post("/api/chat", { messages: [{ role: "user", content: toolQuestion }], tools, options: { temperature: 0 } });
    assert.deepEqual(s.lines.flatMap((l) => l.message.tool_calls ?? []), first.message.tool_calls);
    const next = await post("/api/chat", { messages: [{ role: "user", content: toolQuestion }, first.message,
        { role: "tool", tool_name: "calculator", content: "6157 - 7343 = -1186" }], tools, options: { temperature: 0, num_predict: 40 }, stream: false });
    assert.match(next.message.content, /-1186/);
    const shaped = await post("/api/chat", { messages, format: person, options: { temperature: 0 }, stream: false });
    assert.equal(typeof JSON.parse(shaped.message.content).adult, "boolean");
    assert.match((await post("/api/chat", { messages, format: "json", options, stream: false })).message.content, /^\{/);
    const thought = await post("/api/chat", { messages, think: true, options: { temperature: 0, num_predict: 200 }, stream: false });
    assert.equal(thought.http, 200, JSON.stringify(thought));
    assert.ok(thought.message.thinking?.length > 0);
});

test("embeddings, new and old", async () => {
    const two = await post("/api/embed", { input: [question, "The cat sleeps."] });
    assert.equal(two.embeddings.length, 2);
    assert.deepEqual((await post("/api/embeddings", { prompt: question })).embedding, two.embeddings[0]);
    assert.equal((await post("/api/embed", { input: question, dimensions: 8 })).embeddings[0].length, 8);
});
