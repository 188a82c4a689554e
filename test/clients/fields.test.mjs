// fields.test.mjs: every request field that samples, shapes or stores does what its name says, on the model that
// ships here: a value that must change the answer changes it, one that must not does not.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { key, question, serve } from "./serve.mjs";

// A LoRA adapter of rank 2 over the outputs of nano's first layers: pseudo-random f32, GGUF version 3.
function adapter() {
    const parts = [], bytes = (n, write) => { const b = Buffer.alloc(n); write(b); parts.push(b); };
    const u32 = (x) => bytes(4, (b) => b.writeUInt32LE(x)), u64 = (x) => bytes(8, (b) => b.writeBigUInt64LE(BigInt(x)));
    const text = (s) => { u64(Buffer.byteLength(s)); parts.push(Buffer.from(s)); };
    const words = { "general.type": "adapter", "general.architecture": "qwen35moe", "adapter.type": "lora" };
    const tensors = [0, 1, 2].flatMap((il) => [[`blk.${il}.ssm_out.weight.lora_a`, 512, 2], [`blk.${il}.ssm_out.weight.lora_b`, 2, 256]]);
    parts.push(Buffer.from("GGUF"));
    u32(3), u64(tensors.length), u64(4);
    for (const [name, value] of Object.entries(words)) text(name), u32(8), text(value);
    text("adapter.lora.alpha"), u32(6), bytes(4, (b) => b.writeFloatLE(2));
    let at = 0;
    for (const [name, n_in, n_out] of tensors) {
        text(name), u32(2), u64(n_in), u64(n_out), u32(0), u64(at);
        at += 4 * n_in * n_out;
    }
    const used = parts.reduce((n, p) => n + p.length, 0);
    parts.push(Buffer.alloc((32 - used % 32) % 32));
    let x = 1;
    const random = () => ((x = (x * 48271) % 2147483647) / 2147483647 - 0.5) * 0.5;
    parts.push(Buffer.from(Float32Array.from({ length: at / 4 }, random).buffer));
    return Buffer.concat(parts);
}

let server, folder;
before(async () => {
    folder = mkdtempSync(join(tmpdir(), "chimere-adapter-"));
    const path = join(folder, "adapter.gguf");
    writeFileSync(path, adapter());
    server = await serve("--lora", `${path}:0`, "--no-odo");
});
after(async () => {
    assert.equal(await server?.stop(), 0);
    rmSync(folder, { recursive: true });
});

const post = async (path, body) => {
    const r = await fetch(server.url + path, { method: "POST", body: JSON.stringify(body), headers: { authorization: `Bearer ${key}` } });
    return { status: r.status, body: await r.json() };
};
const chat = (more) => post("/v1/chat/completions", { temperature: 0, max_tokens: 24, cache_prompt: false,
    messages: [{ role: "user", content: question }], ...more });
const say = async (more) => {
    const r = await chat(more);
    assert.equal(r.status, 200, JSON.stringify(r.body));
    return r.body.choices[0].message.content;
};
// Long enough to repeat itself: what penalties are for.
const long = { messages: [{ role: "user", content: "Who are you?" }], max_tokens: 48, ignore_eos: true };
const hot = { temperature: 2, seed: 11 };

test("cutting the distribution down to its best token is greedy", async () => {
    const greedy = await say(long);
    assert.notEqual(await say({ ...long, ...hot }), greedy);
    for (const cut of [{ top_k: 1 }, { top_p: 0.0001 }, { min_p: 1 }, { typical_p: 0.0001, top_k: 1 }, { temperature: 0 }])
        assert.equal(await say({ ...long, ...hot, ...cut }), greedy, JSON.stringify(cut));
});

test("a seed gives the same text again, another seed another", async () => {
    const first = await say({ ...hot, seed: 5 });
    assert.equal(await say({ ...hot, seed: 5 }), first);
    assert.notEqual(await say({ ...hot, seed: 6 }), first);
    const written = JSON.stringify({ temperature: 2, max_tokens: 24, messages: [{ role: "user", content: question }] }).replace("{", '{"seed":5.0,');
    const r = await fetch(`${server.url}/v1/chat/completions`, { method: "POST", body: written, headers: { authorization: `Bearer ${key}` } });
    assert.equal((await r.json()).choices?.[0].message.content, first); // some languages write every number with a point
});

test("penalties, DRY and XTC change what greedy decoding says, and at rest they do not", async () => {
    const plain = await say(long);
    for (const rest of [{ presence_penalty: 0 }, { frequency_penalty: 0 }, { repetition_penalty: 1 }, { repeat_penalty: 1 },
        { dry_multiplier: 0 }, { xtc_probability: 0 }])
        assert.equal(await say({ ...long, ...rest }), plain, JSON.stringify(rest));
    for (const change of [{ presence_penalty: 2 }, { frequency_penalty: 2 }, { repetition_penalty: 1.5 }, { repeat_penalty: 1.5 },
        { dry_multiplier: 50, dry_base: 2, dry_allowed_length: 1 }, { temperature: 1, top_k: 2, seed: 1, xtc_probability: 1, xtc_threshold: 0.01 }])
        assert.notEqual(await say({ ...long, ...change }), plain, JSON.stringify(change));
    const text = await say({ ...long, dry_multiplier: 50, dry_base: 2, dry_allowed_length: 1, dry_sequence_breakers: [] });
    assert.equal(await say({ ...long, dry_multiplier: 50, dry_base: 2, dry_allowed_length: 1, dry_sequence_breakers: [] }), text);
});

test("a banned token does not come, a favoured one does, and 20 alternatives are told", async () => {
    assert.equal((await chat({ logprobs: false, top_logprobs: 0 })).body.choices[0].logprobs, null);
    const { body } = await chat({ logprobs: true, top_logprobs: 20 });
    const [first] = body.choices[0].logprobs.content;
    assert.equal(first.top_logprobs.length, 20);
    const { tokens: [id] } = (await post("/tokenize", { content: first.token })).body;
    assert.notEqual((await chat({ logprobs: true, logit_bias: { [id]: -100 } })).body.choices[0].logprobs.content[0].token, first.token);
    const { tokens: [other] } = (await post("/tokenize", { content: first.top_logprobs[7].token })).body;
    assert.equal((await chat({ logprobs: true, logit_bias: { [other]: 100 } })).body.choices[0].logprobs.content[0].token,
        (await post("/detokenize", { tokens: [other] })).body.content);
});

test("a grammar holds, and so do the limits of length", async () => {
    assert.ok(["perhaps", "never"].includes(await say({ grammar: 'root ::= "perhaps" | "never"' })));
    for (const field of ["max_tokens", "max_completion_tokens"]) {
        const r = (await chat({ ...long, max_tokens: undefined, [field]: 3 })).body;
        assert.equal(r.usage.completion_tokens, 3, field);
        assert.equal(r.choices[0].finish_reason, "length");
    }
});

test("a slot's number names a conversation; cache_prompt false evaluates all", async () => {
    const prompt = "One, two, three, four. ".repeat(30);
    const ask = async (more, text = prompt) => (await post("/v1/completions", { prompt: text, max_tokens: 8, temperature: 0, ...more })).body;
    const first = await ask({ id_slot: 2 });
    const next = prompt + first.choices[0].text + " And then";
    const second = await ask({ id_slot: 2 }, next), fresh = await ask({ cache_prompt: false }, next);
    const cached = (r) => r.usage.prompt_tokens_details.cached_tokens;
    assert.equal(cached(fresh), 0);
    assert.ok(second.usage.prompt_tokens - cached(second) < 16 + 64, `${cached(second)} of ${second.usage.prompt_tokens}`);
    assert.equal(second.choices[0].text, fresh.choices[0].text);
    const bad = await post("/v1/completions", { prompt, id_slot: 5000 });
    assert.equal(bad.status, 400);
    assert.equal(bad.body.error.param, "id_slot");
});

test("an adapter's scale changes the answer, each its own way, and at 0 it is gone", async () => {
    const at = (scale) => say({ ...long, max_tokens: 32, lora: [{ id: 0, scale }] });
    const plain = await say({ ...long, max_tokens: 32 });
    const [zero, one, minus, again] = [await at(0), await at(3), await at(-3), await at(0)];
    assert.equal(zero, plain);
    assert.equal(again, plain);
    assert.notEqual(one, plain);
    assert.notEqual(minus, plain);
    assert.notEqual(minus, one);
    // others that run beside it keep their own
    const mixed = await Promise.all([at(3), at(0), at(-3), at(0)]);
    assert.deepEqual(mixed, [one, plain, minus, plain]);
    // a state of one scale is not taken for another's
    const warm = (scale) => say({ ...long, max_tokens: 32, lora: [{ id: 0, scale }], cache_prompt: true, user: "u" });
    assert.deepEqual([await warm(3), await warm(0), await warm(3)], [one, plain, one]);
    const bad = await chat({ lora: [{ id: 1, scale: 1 }] });
    assert.equal(bad.status, 400);
    assert.match(bad.body.error.param, /^lora/);
});

test("fewer experts change the answer, all of them do not, and states are kept apart", async () => {
    const at = (experts, more) => say({ ...long, max_tokens: 32, experts, ...more });
    const plain = await say({ ...long, max_tokens: 32 });
    assert.equal(await at(1), plain);
    assert.equal(await at({ mass: 1, min: 1 }), plain);
    assert.equal(await at({ mass: 0.3, min: 1024 }), plain);
    const few = await at(0.3);
    assert.notEqual(few, plain);
    assert.deepEqual(await Promise.all([at(0.3), at(1), at(0.3)]), [few, plain, few]);
    const warm = (experts) => at(experts, { cache_prompt: true, user: "e" });
    assert.deepEqual([await warm(0.3), await warm(1), await warm(0.3)], [few, plain, few]);
});

test("what cannot be done is refused by its name", async () => {
    const bad = { temperature: -1, top_p: 2, top_k: -2, min_p: 7, seed: "x", n: 0, stop: [3], max_completion_tokens: -7,
        presence_penalty: "a", frequency_penalty: 101, repetition_penalty: 0, dry_multiplier: -1, xtc_probability: 2,
        logit_bias: { x: "a" }, logprobs: 3, top_logprobs: 21, response_format: { type: "xml" }, grammar: "root ::= (", tools: [{}],
        tool_choice: "perhaps", parallel_tool_calls: 1, stream_options: { other: true }, reasoning_effort: "enormous",
        thinking_budget: -9, chat_template_kwargs: [], user: 7, id_slot: -9, cache_prompt: "no", lora: [{ id: 0 }], audio: {}, functions: [{}] };
    for (const [field, value] of Object.entries(bad)) {
        const r = await chat({ [field]: value });
        assert.equal(r.status, 400, `${field}: ${JSON.stringify(r.body).slice(0, 200)}`);
        assert.ok(String(r.body.error.param ?? r.body.error.message).startsWith(field), `${field}: ${JSON.stringify(r.body)}`);
    }
    assert.equal((await chat({ temperature: null, stop: null, tools: null, lora: null })).status, 200);
});
