// search.test.mjs: the web_search that the SDKs ask a server to run, over a stand-in for SearXNG.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { key, serve } from "./serve.mjs";

const model = "chimere-nano", ask = "How many stripes has a quagga?";
const pages = [{ url: "https://quagga.example/stripes", title: "Stripes of the quagga", content: "A quagga has 73 stripes on its neck." }];
let asked = [], status = 200, engine, server, bare, openai, anthropic;
before(async () => {
    engine = createServer((req, res) => {
        const url = new URL(req.url, "http://localhost");
        if (url.pathname === "/search") asked.push(url.searchParams.get("q"));
        res.writeHead(url.pathname === "/search" ? status : 404, { "Content-Type": "application/json" });
        res.end(JSON.stringify({ results: pages }));
    });
    await new Promise((done) => engine.listen(0, "127.0.0.1", done));
    server = await serve("--searxng", `http://127.0.0.1:${engine.address().port}`, "--seed", "1");
    bare = await serve("--seed", "1");
    openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0 });
    anthropic = new Anthropic({ baseURL: server.url, apiKey: key, maxRetries: 0 });
});
after(async () => {
    engine.close();
    assert.equal(await server.stop(), 0);
    assert.equal(await bare.stop(), 0);
});

const wish = { model, input: ask, tools: [{ type: "web_search" }], tool_choice: { type: "web_search" }, max_output_tokens: 20 };

test("responses: a search is an item with its query and its pages", async () => {
    asked = [];
    const r = await openai.responses.create(wish);
    const [call, ...rest] = r.output;
    assert.deepEqual(asked, [ask]);
    assert.equal(r.model, model);
    assert.equal(call.type, "web_search_call");
    assert.equal(call.status, "completed");
    assert.deepEqual(call.action, { type: "search", query: ask, sources: [{ type: "url", url: pages[0].url }] });
    assert.equal(rest.at(-1).type, "message");
    assert.ok(r.usage.input_tokens > 60); // the page is in the prompt
    const next = await openai.responses.create({ model, input: "Thanks.", previous_response_id: r.id, max_output_tokens: 5 });
    assert.equal(next.previous_response_id, r.id);
});

test("responses: the frames of a stream build the same items", async () => {
    const types = [];
    const stream = openai.responses.stream(wish);
    for await (const event of stream) types.push(event.type);
    const whole = await stream.finalResponse();
    const steps = types.filter((t) => t.startsWith("response.web_search_call."));
    assert.deepEqual(steps.map((t) => t.split(".")[2]), ["in_progress", "searching", "completed"]);
    assert.equal(whole.output[0].type, "web_search_call");
    assert.equal(whole.output[0].action.query, ask);
});

const message = { model, max_tokens: 20, messages: [{ role: "user", content: ask }],
    tools: [{ type: "web_search_20250305", name: "web_search", max_uses: 2 }], tool_choice: { type: "tool", name: "web_search" } };

test("messages: server_tool_use and its result", async () => {
    for (const got of [await anthropic.messages.create(message), await anthropic.messages.stream(message).finalMessage()]) {
        const [use, result, ...rest] = got.content;
        assert.equal(use.type, "server_tool_use");
        assert.deepEqual(use.input, { query: ask });
        assert.equal(result.tool_use_id, use.id);
        assert.deepEqual(result.content.map((p) => [p.type, p.url, p.title]), [["web_search_result", pages[0].url, pages[0].title]]);
        assert.equal(rest.at(-1).type, "text");
        const next = await anthropic.messages.create({ ...message, tool_choice: { type: "none" },
            messages: [...message.messages, { role: "assistant", content: got.content }, { role: "user", content: "Thanks." }] });
        assert.ok(next.content.every((b) => b.type === "text"));
    }
});

test("chat: web_search_options, an engine that is down, a choice of no tool", async () => {
    const chat = { model, messages: [{ role: "user", content: ask }], max_tokens: 5 };
    const r = await openai.chat.completions.create({ ...chat, web_search_options: {} });
    assert.equal(r.choices.length, 1);
    status = 500;
    const other = "What does a quagga eat?"; // results of the first question are kept for a while
    const failed = await openai.responses.create({ ...wish, input: other });
    assert.equal(failed.output[0].status, "failed");
    assert.equal(failed.output.at(-1).type, "message");
    const block = (await anthropic.messages.create({ ...message, messages: [{ role: "user", content: other }] })).content[1];
    assert.equal(block.content.error_code, "unavailable");
    status = 200;
    asked = [];
    await openai.responses.create({ ...wish, tool_choice: "none" });
    assert.deepEqual(asked, []);
});

test("a server without a source leaves the tool out, and refuses the choice of it", async () => {
    const client = new OpenAI({ baseURL: `${bare.url}/v1`, apiKey: key, maxRetries: 0 });
    const r = await client.responses.create({ ...wish, tool_choice: "auto" });
    assert.ok(r.output.every((item) => item.type !== "web_search_call"));
    await assert.rejects(client.responses.create(wish), { status: 400 });
    await assert.rejects(client.chat.completions.create({ model, messages: [{ role: "user", content: ask }], web_search_options: {} }),
        /no source to search/);
});
