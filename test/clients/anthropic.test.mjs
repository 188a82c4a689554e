// anthropic.test.mjs: the @anthropic-ai/sdk package against a running server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { calculate, calculator, key, question, serve, toolQuestion } from "./serve.mjs";

let server, client;
const model = "chimere-nano";
before(async () => {
    server = await serve();
    client = new Anthropic({ baseURL: server.url, apiKey: key, maxRetries: 0 });
});
after(async () => assert.equal(await server.stop(), 0));

const ask = (more) => client.messages.create({ model, temperature: 0, max_tokens: 80,
    messages: [{ role: "user", content: question }], ...more });
const tools = [{ name: calculator.name, description: calculator.description, input_schema: calculator.parameters }];

test("messages", async () => {
    const r = await ask();
    assert.equal(r.type, "message");
    assert.equal(r.role, "assistant");
    assert.equal(r.content[0].type, "text");
    assert.match(r.content[0].text, /42/);
    assert.equal(r.stop_reason, "end_turn");
    assert.ok(r.usage.input_tokens > 5 && r.usage.output_tokens > 0);
    const blocks = await ask({ system: "You are a helpful assistant.",
        messages: [{ role: "user", content: [{ type: "text", text: question }] }] });
    assert.match(blocks.content[0].text, /42/);
});

test("length and stop sequences", async () => {
    const cut = await ask({ max_tokens: 1 });
    assert.equal(cut.stop_reason, "max_tokens");
    assert.equal(cut.usage.output_tokens, 1);
    const r = await ask({ messages: [{ role: "user", content: "Who are you?" }], stop_sequences: ["small"] });
    assert.equal(r.stop_reason, "stop_sequence");
    assert.equal(r.stop_sequence, "small");
});

test("streaming says what the whole says", async () => {
    const whole = await ask();
    const kinds = [];
    let text = "";
    for await (const ev of await ask({ stream: true })) {
        if (ev.type !== "ping") kinds.push(ev.type);
        if (ev.type === "content_block_delta") text += ev.delta.text;
    }
    assert.equal(text, whole.content[0].text);
    assert.deepEqual([kinds[0], kinds[1], ...kinds.slice(-3)],
        ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]);
    const helper = client.messages.stream({ model, temperature: 0, max_tokens: 80, messages: [{ role: "user", content: question }] });
    const final = await helper.finalMessage();
    assert.equal(final.content[0].text, text);
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
});

test("an agent with a calculator ends with the right answer", async () => {
    for (const streamed of [false, true]) {
        const messages = [{ role: "user", content: toolQuestion }];
        let steps = 0, last;
        do {
            const q = { model, temperature: 0, max_tokens: 120, tools, messages };
            last = streamed ? await client.messages.stream(q).finalMessage() : await client.messages.create(q);
            messages.push({ role: "assistant", content: last.content });
            const uses = last.content.filter((b) => b.type === "tool_use");
            if (uses.length) messages.push({ role: "user", content: uses.map((u) =>
                ({ type: "tool_result", tool_use_id: u.id, content: calculate(u.input.expression) })) });
        } while (last.stop_reason === "tool_use" && ++steps < 4);
        assert.equal(steps, 1);
        assert.match(last.content.map((b) => b.text ?? "").join(""), /-1186/);
    }
});

test("tools: forced and forbidden", async () => {
    const any = await ask({ tools, tool_choice: { type: "any" } });
    assert.equal(any.stop_reason, "tool_use");
    const named = await ask({ tools, tool_choice: { type: "tool", name: "calculator" } });
    assert.equal(named.content.find((b) => b.type === "tool_use").name, "calculator");
    const none = await ask({ tools, tool_choice: { type: "none" }, messages: [{ role: "user", content: toolQuestion }] });
    assert.ok(none.content.every((b) => b.type === "text"));
});

test("tokens are counted as they are read", async () => {
    const n = await client.messages.countTokens({ model, messages: [{ role: "user", content: question }] });
    assert.equal(n.input_tokens, (await ask()).usage.input_tokens);
});

test("errors are the package's own classes", async () => {
    const fails = async (promise, type, kind) => {
        const e = await promise.then(() => assert.fail("no error"), (x) => x);
        assert.ok(e instanceof type, `${e.constructor.name}: ${e.message}`);
        assert.equal(e.error.type, "error");
        assert.equal(e.error.error.type, kind);
    };
    await fails(ask({ temperature: -1 }), Anthropic.BadRequestError, "invalid_request_error");
    await fails(ask({ max_tokens: undefined }), Anthropic.BadRequestError, "invalid_request_error");
    await fails(ask({ messages: [{ role: "nobody", content: "x" }] }), Anthropic.BadRequestError, "invalid_request_error");
    await fails(ask({ model: "other" }), Anthropic.NotFoundError, "not_found_error");
    await fails(new Anthropic({ baseURL: server.url, apiKey: "wrong-key", maxRetries: 0 }).messages.create(
        { model, max_tokens: 1, messages: [{ role: "user", content: "x" }] }), Anthropic.AuthenticationError, "authentication_error");
});
