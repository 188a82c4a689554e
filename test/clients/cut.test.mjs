// cut.test.mjs: calls that a limit or a stop text cuts, as the packages of both APIs see them: never valid, never
// completed, no markup in the text, the same whole and streamed.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { calculator, key, serve, toolQuestion } from "./serve.mjs";

let server, openai, anthropic;
const model = "chimere-nano";
before(async () => {
    server = await serve();
    openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0 });
    anthropic = new Anthropic({ baseURL: server.url, apiKey: key, maxRetries: 0 });
});
after(async () => assert.equal(await server.stop(), 0));

const tools = [{ type: "function", function: calculator }];
const messages = [{ role: "user", content: toolQuestion }];
const isValid = (text) => {
    try { return typeof JSON.parse(text) === "object"; } catch { return false; }
};
const noMarkup = (text) => assert.ok(!/<\/?(tool|func|param)/.test(text ?? ""), text);

// One streamed answer, joined as clients join it.
async function joined(more, client = openai) {
    const out = { content: "", calls: [] };
    for await (const { choices: [c] } of await client.chat.completions.create({ model, messages, tools, temperature: 0,
        stream: true, ...more })) {
        out.content += c.delta.content ?? "";
        for (const t of c.delta.tool_calls ?? []) {
            out.calls[t.index] ??= { name: t.function.name, args: "" };
            out.calls[t.index].args += t.function.arguments;
        }
        out.finish = c.finish_reason ?? out.finish;
    }
    return out;
}
async function whole(more, client = openai) {
    const { choices: [c] } = await client.chat.completions.create({ model, messages, tools, temperature: 0, ...more });
    return { content: c.message.content ?? "", finish: c.finish_reason,
        calls: (c.message.tool_calls ?? []).map((t) => ({ name: t.function.name, args: t.function.arguments })) };
}

let length; // tokens of the whole answer
test("chat completions, cut after every token", async () => {
    const r = await openai.chat.completions.create({ model, messages, tools, temperature: 0, max_tokens: 80 });
    assert.equal(r.choices[0].finish_reason, "tool_calls");
    length = r.usage.completion_tokens;
    let nCut = 0;
    for (let n = 1; n < length; n++) {
        const [a, b] = [await joined({ max_tokens: n }), await whole({ max_tokens: n })];
        assert.deepEqual(a, b);
        noMarkup(a.content);
        assert.equal(a.finish, "length");
        for (const c of a.calls) {
            nCut += !isValid(c.args);
            if (n < length - 2) assert.ok(!isValid(c.args) && c.args.length > 0, c.args); // the last: end mark, end
        }
    }
    assert.ok(nCut > 5);
});

test("chat completions, cut by a stop text", async () => {
    const more = { stop: [" - "], max_tokens: 80 };
    const [a, b] = [await joined(more), await whole(more)];
    assert.deepEqual(a, b);
    assert.equal(a.finish, "stop");
    assert.ok(!isValid(a.calls[0].args));
    noMarkup(a.content);
    await assert.rejects(openai.chat.completions.runTools({ model, messages, temperature: 0, max_tokens: 14,
        tools: [{ type: "function", function: { ...calculator, parse: JSON.parse, function: () => assert.fail("it ran") } }],
    }, { maxChatCompletions: 1 }).done().then(() => { throw new Error("ended"); }));
});

test("responses, cut after every token", async () => {
    const body = { model, input: toolQuestion, temperature: 0, tools: [{ type: "function", ...calculator }] };
    for (let n = 1; n < length; n++) {
        const r = await openai.responses.create({ ...body, max_output_tokens: n });
        let last, done = 0;
        for await (const ev of await openai.responses.create({ ...body, max_output_tokens: n, stream: true })) {
            if (ev.type === "response.function_call_arguments.done") done++;
            if (ev.response) last = ev;
        }
        assert.equal(last.type, "response.incomplete");
        assert.equal(r.status, "incomplete");
        const items = (list) => list.map(({ type, name, arguments: args, status, content }) => [type, name, args, status, content]);
        assert.deepEqual(items(last.response.output), items(r.output));
        for (const item of r.output) {
            if (item.type !== "function_call") { noMarkup(item.content?.[0]?.text); continue; }
            assert.equal(isValid(item.arguments), item.status === "completed");
            assert.equal(done, item.status === "completed" ? 1 : 0);
        }
    }
});

test("messages, cut after every token", async () => {
    const body = { model, messages, temperature: 0,
        tools: [{ name: calculator.name, description: calculator.description, input_schema: calculator.parameters }] };
    for (let n = 1; n < length - 2; n++) {
        const r = await anthropic.messages.create({ ...body, max_tokens: n });
        const s = await anthropic.messages.stream({ ...body, max_tokens: n }).finalMessage();
        assert.deepEqual(s.content, r.content);
        for (const m of [r, s]) {
            assert.equal(m.stop_reason, "max_tokens");
            assert.ok(m.content.every((b) => b.type !== "tool_use"));
            m.content.forEach((b) => noMarkup(b.text));
        }
    }
    const r = await anthropic.messages.stream({ ...body, max_tokens: 80, stop_sequences: [" - "] }).finalMessage();
    assert.equal(r.stop_reason, "stop_sequence");
    assert.ok(r.content.every((b) => b.type !== "tool_use"));
});

// Llama 3 marks no call: the answer is {"name": .., "parameters": {..}} and nothing else.
test("bare JSON calls, cut after every token", async () => {
    const folder = mkdtempSync(join(tmpdir(), "chimere-bare-")), file = join(folder, "bare.jinja");
    writeFileSync(file, `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if tools %}Answer {"name": NAME, "parameters": {}}: {{ tools | tojson }}
{% endif %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`);
    const bare = await serve("--chat-template", file, "--no-odo");
    try {
        const client = new OpenAI({ baseURL: `${bare.url}/v1`, apiKey: key, maxRetries: 0 });
        const other = new Anthropic({ baseURL: bare.url, apiKey: key, maxRetries: 0 });
        const forced = { tool_choice: "required", parallel_tool_calls: false };
        const all = await client.chat.completions.create({ model, messages, tools, temperature: 0, max_tokens: 120, ...forced });
        assert.equal(all.choices[0].finish_reason, "tool_calls");
        const n = all.usage.completion_tokens;
        assert.ok(n > 10);
        let nCut = 0;
        for (let i = 1; i < n; i++) {
            const [a, b] = [await joined({ max_tokens: i, ...forced }, client), await whole({ max_tokens: i, ...forced }, client)];
            assert.deepEqual(a, b);
            assert.equal(a.content, "");
            nCut += a.calls.length;
            if (i < n - 1) a.calls.forEach((c) => assert.ok(!isValid(c.args) && c.args.length > 0, c.args)); // the last: the end
            const r = await client.responses.create({ model, input: toolQuestion, temperature: 0, max_output_tokens: i,
                tools: [{ type: "function", ...calculator }], tool_choice: "required" });
            for (const item of r.output) {
                assert.equal(item.type, "function_call");
                assert.equal(isValid(item.arguments), item.status === "completed");
            }
            const m = await other.messages.create({ model, messages, temperature: 0, max_tokens: i, tool_choice: { type: "any" },
                tools: [{ name: calculator.name, input_schema: calculator.parameters }] });
            if (i < n - 1) assert.deepEqual(m.content, []);
        }
        assert.ok(nCut > 5);
    } finally {
        assert.equal(await bare.stop(), 0);
        rmSync(folder, { recursive: true });
    }
});
