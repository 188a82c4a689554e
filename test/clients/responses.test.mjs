// responses.test.mjs: answers that are kept: requests that go on from them, retrieved and deleted by the openai package.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { key, question, serve } from "./serve.mjs";

let server, client;
const model = "chimere-nano";
before(async () => {
    server = await serve("--no-odo", "--ctx", "1024", "--seed", "1");
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0 });
});
after(async () => assert.equal(await server.stop(), 0));

test("a request goes on from an answer as if its items had been sent", async () => {
    const first = await client.responses.create({ model, input: question, temperature: 0, max_output_tokens: 30 });
    assert.equal(first.store, true);
    const next = await client.responses.create({ model, input: "And plus 1?", temperature: 0, max_output_tokens: 10, previous_response_id: first.id });
    const same = await client.responses.create({ model, temperature: 0, max_output_tokens: 10, store: false,
        input: [{ role: "user", content: question }, ...first.output, { role: "user", content: "And plus 1?" }] });
    assert.equal(next.previous_response_id, first.id);
    assert.equal(next.usage.input_tokens, same.usage.input_tokens);
    assert.equal(next.output_text, same.output_text);
    let last;
    for await (const event of await client.responses.create({ model, input: "Why?", stream: true, max_output_tokens: 5, previous_response_id: next.id })) last = event;
    const third = await client.responses.retrieve(last.response.id);
    assert.deepEqual(third.output, last.response.output);
    assert.equal((await client.responses.inputItems.list(third.id)).data.length, 5);
});

test("retrieved, listed, deleted; others find nothing", async () => {
    const r = await client.responses.create({ model, input: question, max_output_tokens: 5 });
    assert.deepEqual((await client.responses.retrieve(r.id)).output, r.output);
    const { data } = await client.responses.inputItems.list(r.id);
    assert.deepEqual(data[0].content, [{ type: "input_text", text: question }]);
    const short = [{ role: "user", content: "Hi" }, { role: "assistant", content: "Hello" }, { role: "user", content: [{ type: "input_text", text: "Bye" }] }];
    const named = await client.responses.create({ model, input: short, max_output_tokens: 5 });
    const listed = (await client.responses.inputItems.list(named.id)).data.reverse();
    assert.deepEqual(listed.map((x) => [x.type, x.role, x.content[0].type, x.content[0].text]),
        [["message", "user", "input_text", "Hi"], ["message", "assistant", "output_text", "Hello"], ["message", "user", "input_text", "Bye"]]);
    await client.responses.delete(r.id);
    const missing = { status: 404 };
    await assert.rejects(client.responses.retrieve(r.id), missing);
    await assert.rejects(client.responses.delete(r.id), missing);
    await assert.rejects(client.responses.create({ model, input: "x", previous_response_id: r.id }),
        { status: 400, code: "previous_response_not_found" });
    const unkept = await client.responses.create({ model, input: question, max_output_tokens: 5, store: false });
    assert.equal(unkept.store, false);
    await assert.rejects(client.responses.retrieve(unkept.id), missing);
});

test("references to items of kept answers are what they name", async () => {
    const first = await client.responses.create({ model, input: question, temperature: 0, max_output_tokens: 30 });
    const asked = (await client.responses.inputItems.list(first.id)).data[0];
    const rest = { model, temperature: 0, max_output_tokens: 10 }, more = { role: "user", content: "And plus 1?" };
    const next = await client.responses.create({ ...rest,
        input: [{ type: "item_reference", id: asked.id }, { id: first.output[0].id }, more] });
    const same = await client.responses.create({ ...rest, store: false, input: [{ role: "user", content: question }, ...first.output, more] });
    assert.equal(next.usage.input_tokens, same.usage.input_tokens);
    assert.equal(next.output_text, same.output_text);
    assert.deepEqual((await client.responses.inputItems.list(next.id)).data.map((x) => x.id).slice(1), [first.output[0].id, asked.id]);
    for (const id of ["msg_1", `${first.output[0].id}9`, "msg__", "x".repeat(5000)])
        await assert.rejects(client.responses.create({ ...rest, input: [{ type: "item_reference", id }] }), { status: 404 }, id);
    await client.responses.delete(first.id);
    await assert.rejects(client.responses.create({ ...rest, input: [{ type: "item_reference", id: asked.id }] }), { status: 404 });
});

test("numbers come back as the shortest text that reads back equal", async () => {
    const number = { minimum: 0.1, maximum: 1e300, multipleOf: 0.30000000000000004, default: 2.5 };
    const tools = [{ type: "function", name: "f", strict: false, parameters: { type: "object", properties: { x: { type: "number", ...number } } } }];
    const r = await client.responses.create({ model, input: question, max_output_tokens: 5, temperature: 0.1, top_p: 0.95, tools,
        metadata: { a: "b" } }).asResponse();
    const text = await r.text();
    for (const part of ['"minimum":0.1,', '"maximum":1e+300,', '"multipleOf":0.30000000000000004,', '"temperature":0.1,', '"top_p":0.95,'])
        assert.ok(text.includes(part), `${part} ${text}`);
    assert.deepEqual(JSON.parse(text).tools, tools);
});

test("another server on the same store continues an answer", async () => {
    const folder = mkdtempSync(join(tmpdir(), "chimere-kept-"));
    let id;
    for (let turn = 0; turn < 2; turn++) {
        const own = await serve("--no-odo", "--ctx", "1024", "--state-dir", folder);
        const c = new OpenAI({ baseURL: `${own.url}/v1`, apiKey: key, maxRetries: 0 });
        if (!turn) id = (await c.responses.create({ model, input: question, max_output_tokens: 5 })).id;
        else {
            assert.equal((await c.responses.retrieve(id)).id, id);
            const next = await c.responses.create({ model, input: "And plus 1?", max_output_tokens: 5, previous_response_id: id });
            assert.equal(next.previous_response_id, id);
            await c.responses.delete(id);
            await assert.rejects(c.responses.retrieve(id), { status: 404 });
        }
        assert.equal(await own.stop(), 0);
    }
    rmSync(folder, { recursive: true });
});
