// agents.test.mjs: requests that coding agents really sent, trimmed (recorded/*.json), and what they must find in the
// answers. live.sh runs the programs themselves.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { key, serve } from "./serve.mjs";

let server;
before(async () => { server = await serve("--no-odo", "--alias", "*", "--seed", "1"); });
after(async () => assert.equal(await server.stop(), 0));

const recorded = (name) => JSON.parse(readFileSync(new URL(`recorded/${name}.json`, import.meta.url)));
async function post(path, body) {
    const r = await fetch(server.url + path, { method: "POST", body: JSON.stringify(body), headers: { authorization: `Bearer ${key}` } });
    const text = await r.text();
    if (r.headers.get("content-type")?.startsWith("text/event-stream"))
        return { http: r.status, events: text.split("\n").filter((l) => l.startsWith("data: {")).map((l) => JSON.parse(l.slice(6))) };
    return { ...JSON.parse(text), http: r.status };
}
const hi = [{ role: "user", content: "hi" }];

for (const name of ["claude-code", "claude-code-second"])
    test(`${name}: context_management, thinking, a system turn after the user's`, async () => {
        const r = await post("/v1/messages?beta=true", recorded(name));
        assert.equal(r.http, 200, JSON.stringify(r));
        assert.equal(r.events.at(0).type, "message_start");
        assert.equal(r.events.at(-1).type, "message_stop");
        const { prompt } = await post("/apply-template", { messages: [...hi, { role: "system", content: "Agents: none." }] });
        assert.match(prompt, /hi\n\nAgents: none\./);
    });

for (const name of ["opencode", "qwen-code"])
    test(`${name}: chat completions with tools, streamed, with usage`, async () => {
        const r = await post("/v1/chat/completions", recorded(name));
        assert.equal(r.http, 200, JSON.stringify(r));
        assert.ok(r.events.at(-1).usage.completion_tokens > 0);
    });

test("codex: developer messages, a namespace of tools, a tool that cannot be run, client_metadata", async () => {
    const r = await post("/v1/responses", recorded("codex"));
    assert.equal(r.http, 200, JSON.stringify(r));
    assert.match(r.events.at(-1).type, /^response\.(completed|incomplete)$/);
    const all = recorded("codex");
    const forced = await post("/v1/responses", { ...all, stream: false, max_output_tokens: 200, tool_choice:
        { type: "function", namespace: "multi_agent_v1", name: "close_agent" } });
    const call = forced.output.find((x) => x.type === "function_call");
    assert.equal(call.name, "close_agent");
    assert.equal(call.namespace, "multi_agent_v1");
    const next = await post("/v1/responses", { ...all, stream: false, input: [...all.input, call,
        { type: "function_call_output", call_id: call.call_id, output: "closed" }] });
    assert.equal(next.http, 200, JSON.stringify(next));
    const search = await post("/v1/responses", { ...all, tool_choice: { type: "web_search" } });
    assert.equal(search.http, 400);
    assert.match(search.error.message, /tool_choice: this server cannot run web_search/);
});

test("a tool of a type that nobody knows is refused by name", async () => {
    const r = await post("/v1/responses", { input: "hi", tools: [{ type: "teleport", name: "x" }] });
    assert.equal(r.http, 400);
    assert.match(r.error.message, /tools\[0\]\.type.*teleport/);
});

test("custom tools: text by a grammar, streamed and whole, and its history", async () => {
    const tool = (syntax, definition) => ({ type: "custom", name: "apply_patch", description: "x", format: { type: "grammar", syntax, definition } });
    const patch = 'start: "*** Begin" LF line+ "*** End"\nline: ("+" | "-") /[a-z]{1,4}/ LF -> change\n%import common.LF\n';
    const body = { input: "hi", max_output_tokens: 300, temperature: 0, tool_choice: { type: "custom", name: "apply_patch" }, tools: [tool("lark", patch)] };
    const r = await post("/v1/responses", body);
    assert.equal(r.http, 200, JSON.stringify(r));
    const call = r.output.find((x) => x.type === "custom_tool_call");
    assert.equal(typeof call?.input, "string", JSON.stringify(r.output));
    const { events } = await post("/v1/responses", { ...body, stream: true });
    const done = events.find((x) => x.type === "response.custom_tool_call_input.done");
    assert.equal(done?.input ?? "", call.status === "completed" ? call.input : "");
    const two = await post("/v1/responses", { input: [...[{ role: "user", content: "hi" }], { type: "custom_tool_call", call_id: "a", name: "apply_patch", input: "x" },
        { type: "custom_tool_call_output", call_id: "a", output: "ok" }], max_output_tokens: 3 });
    assert.equal(two.http, 200, JSON.stringify(two));
    const chat = await post("/v1/chat/completions", { messages: hi, max_tokens: 100, temperature: 0, tool_choice: { type: "custom", custom: { name: "n" } },
        tools: [{ type: "custom", custom: { name: "n", format: { type: "grammar", grammar: { syntax: "regex", definition: "[0-9]{3}" } } } }] });
    assert.equal(typeof chat.choices[0].message.tool_calls[0].custom.input, "string");
    assert.equal(chat.choices[0].finish_reason, "tool_calls");
    for (const [syntax, definition, why] of [["lark", "start: start", /contains itself/], ["lark", "start: a", /not defined/],
        ["lark", "%ignore \" \"\nstart: \"a\"", /%ignore is not supported/], ["bnf", "x", /lark or regex/]]) {
        const bad = await post("/v1/responses", { ...body, tools: [tool(syntax, definition)] });
        assert.equal(bad.http, 400);
        assert.match(bad.error.message, why);
    }
});

test("a prompt that is too long is refused in the sentence that clients look for", async () => {
    const text = "word ".repeat(9000), sentence = /^prompt is too long: (\d+) tokens > (\d+) maximum \(exceeds the available context size\)$/;
    for (const [path, body] of [["/v1/chat/completions", {}], ["/v1/messages", { max_tokens: 3 }]]) {
        const { http, error } = await post(path, { ...body, messages: [{ role: "user", content: text }] });
        assert.equal(http, 400);
        const [, n, max] = sentence.exec(error.message);
        assert.ok(Number(n) > Number(max));
        assert.equal(error.n_prompt_tokens, Number(n));
        assert.equal(error.n_ctx, Number(max) + 1);
        if (path === "/v1/chat/completions") assert.equal(error.code, "context_length_exceeded");
        assert.equal(error.type, "invalid_request_error");
    }
    const { http, error } = await post("/v1/responses", { input: text });
    assert.equal(http, 400);
    assert.equal(error.code, "context_length_exceeded");
});

test("message threads are refused as the SDKs expect; null fields count as absent", async () => {
    const r = await post("/v1/messages", { max_tokens: 5, messages: hi, thread: { type: "create" } });
    assert.equal(r.http, 400);
    assert.equal(r.error.details.error_code, "thread_unsupported_request");
    assert.equal((await post("/v1/chat/completions", { messages: hi, max_tokens: 2, guided_json: null, no_such_field: null })).http, 200);
});

test("thinking is cleared when asked, unknown edits are refused", async () => {
    const messages = [...hi, { role: "assistant", content: [{ type: "thinking", thinking: "T1", signature: "" }, { type: "text", text: "a" }] },
        ...hi, { role: "assistant", content: [{ type: "thinking", thinking: "T2", signature: "" }, { type: "text", text: "b" }] }, ...hi];
    for (const keep of ["all", { type: "thinking_turns", value: 1 }, undefined])
        assert.equal((await post("/v1/messages", { max_tokens: 2, messages, context_management: { edits: [{ type: "clear_thinking_20251015", keep }] } })).http, 200);
    const r = await post("/v1/messages", { max_tokens: 2, messages, context_management: { edits: [{ type: "shuffle" }] } });
    assert.match(r.error.message, /context_management\.edits\[0\]\.type.*shuffle/);
});

test("ignored fields are counted", async () => {
    await post("/v1/chat/completions", { messages: hi, max_tokens: 2, keep_alive: "5m" });
    const text = await (await fetch(server.url + "/metrics", { headers: { authorization: `Bearer ${key}` } })).text();
    assert.match(text, /chimere_ignored_fields_total\{field="keep_alive"\} 1/);
});

// The programs below cannot run here; the requests are put together from their public source.

const lines = async (path, body) => (await (await fetch(server.url + path, { method: "POST", body: JSON.stringify(body),
    headers: { authorization: `Bearer ${key}` } })).text()).trim().split("\n").map((l) => JSON.parse(l));
const get = async (path) => (await fetch(server.url + path, { headers: { authorization: `Bearer ${key}` } })).json();
const light = { type: "function", function: { name: "HassTurnOn", description: "Turns on a device",
    parameters: { type: "object", properties: { name: { type: "string" }, domain: { type: "array", items: { type: "string" } } }, required: [] } } };

test("Home Assistant's Ollama conversation: tools, keep_alive, num_ctx, think", async () => {
    const [{ model }] = (await get("/api/tags")).models;
    const ask = { model, tools: [light], stream: true, keep_alive: "-1s", options: { num_ctx: 8192 }, think: false, format: null };
    const messages = [{ role: "system", content: "You are a voice assistant." }, { role: "user", content: "Turn on the light." }];
    const first = await lines("/api/chat", { ...ask, messages, options: { num_ctx: 8192, num_predict: 40 } });
    assert.equal(first.at(-1).done, true, JSON.stringify(first.at(-1)));
    const called = { role: "assistant", content: "", tool_calls: [{ function: { name: "HassTurnOn", arguments: { name: "light" } } }] };
    const next = await lines("/api/chat", { ...ask, messages: [...messages, called, { role: "tool", content: "{\"speech\": {}}" }],
        options: { num_ctx: 8192, num_predict: 8 } });
    assert.ok(next.at(-1).eval_count > 0);
});

test("VS Code's Ollama provider: version, tags, show, then a chat with tools", async () => {
    const [major, minor, patch] = (await get("/api/version")).version.split(".").map(Number);
    assert.ok(major * 1e6 + minor * 1e3 + patch >= 6004); // it refuses servers before 0.6.4
    const [{ model }] = (await get("/api/tags")).models;
    const show = await post("/api/show", { model });
    assert.ok(show.capabilities.includes("tools"));
    assert.ok(show.model_info[show.model_info["general.architecture"] + ".context_length"] > 0);
    assert.equal(show.model_info["general.basename"], "chimere-nano");
    const r = await post("/v1/chat/completions", { model, messages: hi, stream: true, n: 1, top_p: 1, temperature: 0.1, max_tokens: 8,
        stream_options: { include_usage: true }, tools: [light], tool_choice: "auto", parallel_tool_calls: true });
    assert.equal(r.http, 200, JSON.stringify(r));
    assert.ok(r.events.at(-1).usage.total_tokens > 0);
});

test("LibreChat's custom endpoint: a chat of its user, then a title", async () => {
    const { data: [{ id }] } = await get("/v1/models");
    const r = await post("/v1/chat/completions", { model: id, user: "6650a0c2f1", stream: true, stream_options: { include_usage: true },
        messages: [...hi], max_tokens: 8, temperature: 1, top_p: 1, presence_penalty: 0, frequency_penalty: 0, n: 1 });
    assert.equal(r.http, 200, JSON.stringify(r));
    const title = await post("/v1/chat/completions", { model: id, stream: false, temperature: 0.2, max_tokens: 16, n: 1, presence_penalty: 0,
        frequency_penalty: 0, messages: [{ role: "system", content: "Provide a concise title of 5 words or less." }, ...hi] });
    assert.equal(title.choices[0].message.role, "assistant");
});

test("Open WebUI: models, a chat, a title, over both of its connections", async () => {
    const { data: [{ id }] } = await get("/v1/models");
    const r = await post("/v1/chat/completions", { stream: true, model: id, messages: hi, max_tokens: 8, stream_options: { include_usage: true } });
    assert.equal(r.http, 200, JSON.stringify(r));
    const title = await post("/v1/chat/completions", { model: id, stream: false, max_completion_tokens: 16, messages: hi });
    assert.equal(title.http, 200, JSON.stringify(title));
    await get("/api/version");
    assert.equal((await get("/api/ps")).models.length, 1);
    const [{ model }] = (await get("/api/tags")).models;
    const own = await lines("/api/chat", { model, stream: true, messages: hi, options: { num_predict: 8, temperature: 0.8 } });
    assert.equal(own.at(-1).done, true);
});
