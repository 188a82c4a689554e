// openai.test.mjs: the openai package, as its documentation shows its use, against a running server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { dirname, join } from "node:path";
import OpenAI from "openai";
import { calculate, calculator, key, person, question, serve, toolQuestion } from "./serve.mjs";

let server, client;
const model = "chimere-nano";
before(async () => {
    server = await serve("--seed", "1");
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0 });
});
after(async () => assert.equal(await server.stop(), 0));

const ask = (more) => client.chat.completions.create({ model, temperature: 0, max_tokens: 80,
    messages: [{ role: "user", content: question }], ...more });
const tools = [{ type: "function", function: calculator }];
const toolMessages = [{ role: "user", content: toolQuestion }];

test("models", async () => {
    const list = [];
    for await (const m of client.models.list()) list.push(m);
    assert.equal(list[0].id, model);
    assert.equal(list[0].object, "model");
    assert.equal((await client.models.retrieve(model)).id, model);
});

test("chat", async () => {
    const r = await ask();
    assert.equal(r.object, "chat.completion");
    assert.match(r.choices[0].message.content, /42/);
    assert.equal(r.choices[0].finish_reason, "stop");
    assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
    assert.ok(r.usage.prompt_tokens > 5 && r.usage.completion_tokens > 0);
});

test("length, stop, n, seed and logit_bias", async () => {
    const cut = await ask({ max_tokens: 1, max_completion_tokens: undefined });
    assert.equal(cut.choices[0].finish_reason, "length");
    assert.equal(cut.usage.completion_tokens, 1);
    const stopped = await ask({ messages: [{ role: "user", content: "Who are you?" }], stop: ["small"] });
    assert.equal(stopped.choices[0].finish_reason, "stop");
    assert.ok(!stopped.choices[0].message.content.includes("small"));
    const two = await ask({ n: 2, temperature: 1, seed: 3 });
    assert.deepEqual(two.choices.map((c) => c.index), [0, 1]);
    const [a, b] = await Promise.all([ask({ temperature: 1, seed: 7 }), ask({ temperature: 1, seed: 7 })]);
    assert.equal(a.choices[0].message.content, b.choices[0].message.content);
});

test("log-probabilities", async () => {
    const r = await ask({ logprobs: true, top_logprobs: 3 });
    const content = r.choices[0].logprobs.content;
    assert.equal(content.map((c) => Buffer.from(c.bytes)).reduce((a, b) => Buffer.concat([a, b])).toString(),
        r.choices[0].message.content);
    for (const c of content) {
        assert.ok(c.logprob <= 0);
        assert.equal(c.top_logprobs.length, 3);
        assert.ok(c.top_logprobs[0].logprob >= c.top_logprobs[1].logprob);
        assert.equal(c.top_logprobs[0].logprob, c.logprob); // greedy
    }
});

test("streaming says what the whole says", async () => {
    const whole = await ask();
    const stream = await ask({ stream: true, stream_options: { include_usage: true } });
    let text = "", usage, finish, first;
    for await (const chunk of stream) {
        first ??= chunk;
        text += chunk.choices[0]?.delta?.content ?? "";
        finish = chunk.choices[0]?.finish_reason ?? finish;
        usage = chunk.usage ?? usage;
    }
    assert.equal(first.choices[0].delta.role, "assistant");
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(finish, "stop");
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("the stream helper, and leaving early", async () => {
    const runner = client.chat.completions.stream({ model, temperature: 0, messages: [{ role: "user", content: question }] });
    assert.match((await runner.finalChatCompletion()).choices[0].message.content, /42/);
    const stream = await ask({ stream: true, max_tokens: 1000, ignore_eos: true });
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break; // closes the connection
    const deadline = Date.now() + 120_000;
    for (;;) {
        const slots = await (await fetch(`${server.url}/slots`, { headers: { authorization: `Bearer ${key}` } })).json();
        if ((slots.slots ?? slots).every((s) => !s.is_processing)) break;
        assert.ok(Date.now() < deadline, "the answer nobody reads goes on");
        await new Promise((r) => setTimeout(r, 50));
    }
});

test("tools: there and back again", async () => {
    const r = await ask({ messages: toolMessages, tools });
    const m = r.choices[0].message;
    assert.equal(r.choices[0].finish_reason, "tool_calls");
    assert.equal(m.tool_calls[0].function.name, "calculator");
    const result = calculate(JSON.parse(m.tool_calls[0].function.arguments).expression);
    const end = await ask({ tools, messages: [...toolMessages, m, { role: "tool", tool_call_id: m.tool_calls[0].id, content: result }] });
    assert.match(end.choices[0].message.content, /-1186/);
});

test("tools: streamed arguments grow into JSON", async () => {
    const stream = await ask({ messages: toolMessages, tools, stream: true });
    let name = "", args = "", finish, id;
    for await (const { choices: [c] } of stream) {
        const call = c?.delta?.tool_calls?.[0];
        name += call?.function?.name ?? "";
        args += call?.function?.arguments ?? "";
        id ??= call?.id;
        finish = c?.finish_reason ?? finish;
    }
    assert.equal(name, "calculator");
    assert.ok(id);
    assert.ok(JSON.parse(args).expression);
    assert.equal(finish, "tool_calls");
});

test("tools: forced and forbidden", async () => {
    const forced = await ask({ tools, tool_choice: "required" });
    assert.equal(forced.choices[0].message.tool_calls[0].function.name, "calculator");
    const named = await ask({ tools, tool_choice: { type: "function", function: { name: "calculator" } } });
    assert.equal(typeof JSON.parse(named.choices[0].message.tool_calls[0].function.arguments).expression, "string");
    const none = await ask({ messages: toolMessages, tools, tool_choice: "none" });
    assert.equal(none.choices[0].message.tool_calls, undefined);
});

// The loop that agents are: the client's own runner calls our function until the model answers.
test("an agent with a calculator ends with the right answer", async () => {
    const calls = [];
    const runner = client.chat.completions.runTools({ model, temperature: 0, max_tokens: 120, messages: toolMessages,
        tools: [{ type: "function", function: { ...calculator, parse: JSON.parse,
            function: ({ expression }) => { calls.push(expression); return calculate(expression); } } }] });
    assert.match(await runner.finalContent(), /-1186/);
    assert.equal(calls.length, 1);
    assert.deepEqual(runner.messages.map((m) => m.role), ["user", "assistant", "tool", "assistant"]);
});

test("a JSON schema holds", async () => {
    for (const stream of [false, true]) {
        const q = { messages: [{ role: "user", content: "Invent a person." }], temperature: 1, max_tokens: 400,
            response_format: { type: "json_schema", json_schema: { name: "person", strict: true, schema: person } } };
        const text = stream ? (await client.chat.completions.stream({ model, ...q }).finalChatCompletion()).choices[0].message.content
            : (await ask(q)).choices[0].message.content;
        const o = JSON.parse(text);
        assert.deepEqual(Object.keys(o).sort(), ["adult", "name"]);
        assert.equal(typeof o.adult, "boolean");
        assert.ok(o.name.length <= 12);
    }
    const any = await ask({ response_format: { type: "json_object" }, messages: [{ role: "user", content: "Say something." }],
        max_tokens: 400, temperature: 0.6, seed: 1 });
    if (any.choices[0].finish_reason === "stop") assert.equal(typeof JSON.parse(any.choices[0].message.content), "object");
});

test("text completions", async () => {
    const r = await client.completions.create({ model, prompt: "One, two, three,", max_tokens: 6, temperature: 0, echo: true });
    assert.ok(r.choices[0].text.startsWith("One, two, three,"));
    let text = "";
    for await (const c of await client.completions.create({ model, prompt: "One, two, three,", max_tokens: 6, temperature: 0, stream: true }))
        text += c.choices[0]?.text ?? "";
    assert.equal(`One, two, three,${text}`, r.choices[0].text);
});

test("text completions of several prompts", async () => {
    const one = (prompt, more) => client.completions.create({ model, prompt, max_tokens: 8, temperature: 0, ...more });
    const prompts = ["One, two, three,", "What is 12 plus", "The"];
    const alone = [];
    for (const p of prompts) alone.push((await one(p)).choices[0].text);
    const all = await one(prompts, { n: 2 });
    assert.deepEqual(all.choices.map((c) => c.index), [0, 1, 2, 3, 4, 5]);
    assert.deepEqual(all.choices.map((c) => c.text), alone.flatMap((t) => [t, t]));
    const streamed = ["", "", ""];
    for await (const c of await one(prompts, { stream: true })) streamed[c.choices[0].index] += c.choices[0].text;
    assert.deepEqual(streamed, alone);
    const tokens = async (content) => (await (await fetch(`${server.url}/tokenize`, { method: "POST", body: JSON.stringify({ content }),
        headers: { authorization: `Bearer ${key}` } })).json()).tokens;
    const ids = await Promise.all(prompts.map(tokens));
    const echoed = await one(ids, { echo: true });
    assert.deepEqual(echoed.choices.map((c) => c.text), alone.map((t, i) => prompts[i] + t));
});

test("responses", async () => {
    const r = await client.responses.create({ model, input: question, temperature: 0, max_output_tokens: 60 });
    assert.equal(r.status, "completed");
    assert.match(r.output_text, /42/);
    assert.ok(r.usage.input_tokens > 0 && r.usage.output_tokens > 0);
    const kinds = [];
    let text = "";
    const stream = await client.responses.create({ model, input: [{ role: "user", content: question }],
        instructions: "You are a helpful assistant.", temperature: 0, stream: true });
    for await (const ev of stream) {
        kinds.push(ev.type);
        assert.equal(ev.sequence_number, kinds.length - 1);
        if (ev.type === "response.output_text.delta") text += ev.delta;
    }
    assert.equal(kinds[0], "response.created");
    assert.equal(kinds.at(-1), "response.completed");
    assert.match(text, /42/);
    const call = await client.responses.create({ model, input: toolQuestion, temperature: 0,
        tools: [{ type: "function", strict: false, ...calculator }] });
    const f = call.output.find((o) => o.type === "function_call");
    assert.equal(f.name, "calculator");
    const end = await client.responses.create({ model, temperature: 0, tools: [{ type: "function", strict: false, ...calculator }],
        input: [{ role: "user", content: toolQuestion }, ...call.output,
            { type: "function_call_output", call_id: f.call_id, output: calculate(JSON.parse(f.arguments).expression) }] });
    assert.match(end.output_text, /-1186/);
});

test("embeddings", async (t) => {
    const own = await serve("--embedding-model", join(dirname(process.env.CHIMERE), "chimere-nano.gguf")).catch((e) => e);
    if (own instanceof Error) return t.skip(`this server has no embeddings: ${own.message}`);
    try {
        const c = new OpenAI({ baseURL: `${own.url}/v1`, apiKey: key, maxRetries: 0 });
        const input = ["The cat sleeps.", "The cat sleeps.", "Seven times eight is fifty-six."];
        const ask = (more) => c.embeddings.create({ model, input, ...more });
        const plain = await ask({ encoding_format: "float" }), packed = await ask(); // base64 is the package's default
        assert.deepEqual(plain.data.map((d) => d.index), [0, 1, 2]);
        const [a, b, d] = plain.data.map((x) => x.embedding);
        assert.ok(a.length > 100);
        assert.ok(Math.abs(a.reduce((s, x) => s + x * x, 0) - 1) < 1e-3);
        assert.deepEqual(a, b);
        assert.notDeepEqual(a, d);
        packed.data[0].embedding.forEach((x, i) => assert.ok(Math.abs(x - a[i]) < 1e-6));
        assert.ok(plain.usage.prompt_tokens > 6);
        await assert.rejects(ask({ input: [] }), OpenAI.BadRequestError);
    } finally {
        assert.equal(await own.stop(), 0);
    }
});

test("errors are the package's own classes, with the field's name", async () => {
    const fails = async (promise, type, field) => {
        const e = await promise.then(() => assert.fail("no error"), (x) => x);
        assert.ok(e instanceof type, `${e.constructor.name}: ${e.message}`);
        if (field) assert.equal(e.param, field, e.message);
    };
    await fails(ask({ temperature: -1 }), OpenAI.BadRequestError, "temperature");
    await fails(ask({ top_logprobs: 21, logprobs: true }), OpenAI.BadRequestError, "top_logprobs");
    await fails(ask({ nonsense: 1 }), OpenAI.BadRequestError, "nonsense");
    await fails(ask({ messages: [] }), OpenAI.BadRequestError, "messages");
    await fails(ask({ model: "other" }), OpenAI.NotFoundError);
    await fails(client.models.retrieve("other"), OpenAI.NotFoundError);
    await fails(new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "wrong-key", maxRetries: 0 }).models.list(), OpenAI.AuthenticationError);
    const long = Array.from({ length: 3000 }, () => "word").join(" ");
    await fails(ask({ messages: [{ role: "user", content: long }] }), OpenAI.BadRequestError);
    assert.match((await ask()).choices[0].message.content, /42/); // and nothing else was disturbed
});

test("many at once", async () => {
    const answers = await Promise.all(Array.from({ length: 12 }, (_, i) =>
        ask({ messages: [{ role: "user", content: `What is ${10 + i} plus 3?` }] })));
    const right = answers.filter((r, i) => r.choices[0].message.content.includes(String(13 + i))).length;
    assert.ok(right >= 10, `${right} of 12 right`);
});
