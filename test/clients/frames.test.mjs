// frames.test.mjs: the raw bytes that curl sees: headers, frames, ends of streams.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { key, question, serve } from "./serve.mjs";

let server;
before(async () => { server = await serve(); });
after(async () => assert.equal(await server.stop(), 0));

async function curl(path, body, auth = key) {
    const { stdout } = await promisify(execFile)("curl", ["-sS", "-i", "-N", "--max-time", "300", `${server.url}${path}`,
        ...(auth && ["-H", `Authorization: Bearer ${auth}`]),
        ...(body === undefined ? [] : ["--data-binary", typeof body === "string" ? body : JSON.stringify(body)])],
    { maxBuffer: 1 << 26 });
    const at = stdout.indexOf("\r\n\r\n");
    const [line, ...heads] = stdout.slice(0, at).split("\r\n");
    return { status: Number(line.split(" ")[1]), body: stdout.slice(at + 4),
        head: Object.fromEntries(heads.map((h) => [h.split(":")[0].toLowerCase(), h.split(":").slice(1).join(":").trim()])) };
}
const chat = { model: "chimere-nano", temperature: 0, max_tokens: 40, messages: [{ role: "user", content: question }] };

test("a chat stream is data lines, and [DONE] at its end", async () => {
    const r = await curl("/v1/chat/completions", { ...chat, stream: true });
    assert.equal(r.status, 200);
    assert.match(r.head["content-type"], /^text\/event-stream/);
    const frames = r.body.split("\n\n").filter(Boolean);
    assert.ok(frames.every((f) => f.startsWith("data: ")));
    assert.equal(frames.at(-1), "data: [DONE]");
    const chunks = frames.slice(0, -1).map((f) => JSON.parse(f.slice(6)));
    assert.ok(chunks.every((c) => c.object === "chat.completion.chunk" && c.id === chunks[0].id));
    assert.equal(chunks.filter((c) => c.choices[0]?.finish_reason).length, 1);
});

test("a messages stream names its events", async () => {
    const r = await curl("/v1/messages", { ...chat, stream: true });
    const frames = r.body.split("\n\n").filter(Boolean);
    for (const f of frames) {
        const [name, data] = f.split("\n");
        assert.equal(name, `event: ${JSON.parse(data.slice(6)).type}`);
    }
    assert.match(frames.at(-1), /^event: message_stop/);
});

const frames = (r) => r.body.split("\n\n").filter((f) => f.startsWith("data: {")).map((f) => JSON.parse(f.slice(6)));

test("usage counts what was cached, evaluated and thought; the prompt's progress is told", async () => {
    const long = { ...chat, user: "one", return_progress: true, stream: true, stream_options: { include_usage: true }, max_tokens: 200,
        messages: [{ role: "system", content: "Numbers are fine things. ".repeat(60) }, { role: "user", content: question }] };
    for (let turn = 0; turn < 2; turn++) {
        const all = frames(await curl("/v1/chat/completions", { ...long, chat_template_kwargs: { enable_thinking: turn === 1 } }));
        const { usage } = all.at(-1), progress = all.map((c) => c.prompt_progress).filter(Boolean);
        assert.equal(usage.prompt_tokens_details.cached_tokens + usage.prompt_tokens_details.evaluated_tokens, usage.prompt_tokens);
        assert.ok(usage.prompt_tokens > 128);
        if (turn) assert.ok(usage.prompt_tokens_details.cached_tokens >= 64);
        else assert.equal(usage.prompt_tokens_details.cached_tokens, 0);
        assert.equal(progress.at(-1).processed, usage.prompt_tokens);
        assert.ok(progress.every((p, i) => p.total === usage.prompt_tokens && p.processed >= (progress[i - 1]?.processed ?? 0)));
        const thought = all.map((c) => c.choices[0]?.delta?.reasoning_content ?? "").join("");
        // an empty thought is its end mark, and at most a line end
        const { reasoning_tokens } = usage.completion_tokens_details;
        assert.ok(thought ? reasoning_tokens > 0 : reasoning_tokens <= (turn ? 2 : 0), `${reasoning_tokens}: ${thought}`);
        assert.equal(all.filter((c) => c.usage).length, 1);
    }
});

test("several choices of one stream are those of the whole", async () => {
    const more = { ...chat, n: 3, seed: 5, temperature: 1 };
    const whole = JSON.parse((await curl("/v1/chat/completions", more)).body);
    const texts = ["", "", ""], ends = [];
    for (const { choices: [c] } of frames(await curl("/v1/chat/completions", { ...more, stream: true }))) {
        if (c) texts[c.index] += c.delta.content ?? "";
        if (c?.finish_reason) ends.push(c.index);
    }
    assert.deepEqual(texts, whole.choices.map((c) => c.message.content));
    assert.deepEqual(ends.sort(), [0, 1, 2]);
});

test("effort is a budget of thinking, none is no thinking", async () => {
    const thought = async (more) => {
        const r = JSON.parse((await curl("/v1/chat/completions", { ...chat, max_tokens: 400, ...more })).body);
        return [r.choices[0].message.reasoning_content ?? "", r.usage.completion_tokens_details.reasoning_tokens];
    };
    assert.deepEqual(await thought({ reasoning_effort: "none" }), ["", 0]);
    const [text, n] = await thought({ reasoning_effort: "high" });
    assert.ok(text && n > 0);
    const [, short] = await thought({ reasoning_effort: "high", thinking_budget: 2 });
    assert.ok(short <= 8, `${short} tokens`);
});

test("errors come in the API's shape, before and instead of a stream", async () => {
    for (const bad of ["", "{", "[]", "null", '{"messages":"x"}', '{"messages":[{"role":"user","content":"\\ud800}]}',
        JSON.stringify({ ...chat, temperature: "hot" }), `{"a":${"[".repeat(10000)}${"]".repeat(10000)}}`]) {
        const r = await curl("/v1/chat/completions", bad);
        assert.equal(r.status, 400, bad.slice(0, 60));
        const { error } = JSON.parse(r.body);
        assert.equal(typeof error.message, "string");
        assert.equal(error.type, "invalid_request_error");
        const a = JSON.parse((await curl("/v1/messages", bad)).body);
        assert.equal(a.type, "error");
    }
    const stream = await curl("/v1/chat/completions", { ...chat, stream: true, temperature: -1 });
    assert.equal(stream.status, 400);
    assert.match(stream.head["content-type"], /^application\/json/);
    assert.equal((await curl("/v1/nothing", {})).status, 404);
    assert.ok([404, 405].includes((await curl("/v1/chat/completions")).status));
    assert.equal((await curl("/v1/models", undefined, "nobody-at-all")).status, 401);
});

test("health needs no key, and metrics are Prometheus text", async () => {
    assert.equal((await curl("/health", undefined, "")).status, 200);
    const m = await curl("/metrics");
    assert.match(m.head["content-type"], /^text\/plain/);
    for (const line of m.body.trim().split("\n"))
        assert.match(line, /^(#.*|[a-z_]+(\{[^}]*\})? [-+.0-9eInfa]+)$/);
});
