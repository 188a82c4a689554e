// flags.test.mjs: where the server listens, its keys, metrics under other names, and the fields and routes that clients of
// llama-server and lm-evaluation-harness use.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, statSync, writeFileSync, existsSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { key, question, start } from "./serve.mjs";

const post = async (url, body, headers = {}) => {
    const r = await fetch(url, { method: "POST", body: JSON.stringify(body), headers });
    return { status: r.status, ...(await r.json()) };
};
// A GET through a Unix socket: the status and the text.
const unix = (socketPath, path) => new Promise((resolve, reject) => {
    request({ socketPath, path }, (r) => {
        let text = "";
        r.on("data", (d) => text += d).on("end", () => resolve([r.statusCode, text]));
    }).on("error", reject).end();
});
const frames = async (url, body) => {
    const text = await (await fetch(url, { method: "POST", body: JSON.stringify({ ...body, stream: true }) })).text();
    return text.split("\n\n").filter((x) => x.startsWith("data: {")).map((x) => JSON.parse(x.slice(6)));
};
// What `chimere serve` says when it refuses to start.
const refused = (...args) => new Promise((resolve) => {
    const child = spawn(process.env.CHIMERE, ["serve", "-m", "nano", "--port", "0", "-q", "--no-odo", ...args]);
    let text = "";
    child.stderr.on("data", (d) => text += d);
    child.on("close", (code) => resolve(`${code} ${text}`)); // once all of its output is there
});

test("several addresses and a Unix socket", async () => {
    const folder = mkdtempSync(join(tmpdir(), "chimere-unix-")), path = join(folder, "s");
    // a socket's file that a killed server left: nobody listens
    const stale = spawn(process.execPath, ["-e", `require("net").createServer().listen(${JSON.stringify(path)}, () => console.log("up"))`]);
    await new Promise((r) => stale.stdout.once("data", r));
    stale.kill("SIGKILL");
    await new Promise((r) => stale.on("exit", r));
    assert.ok(existsSync(path));
    const server = await start(() => ({ args: ["--no-odo", "--host", "127.0.0.1", "--host", "127.0.0.2", "--host", `unix:${path}`] }));
    try {
        const port = new URL(server.url).port;
        assert.equal((await fetch(`http://127.0.0.2:${port}/health`)).status, 200);
        assert.equal(statSync(path).mode & 0o777, 0o600);
        assert.deepEqual((await unix(path, "/health"))[0], 200);
        assert.equal((await unix(path, "/metrics"))[0], 200); // this user is an administrator
        const many = await Promise.all(Array.from({ length: 40 }, () => unix(path, "/v1/models")));
        assert.ok(many.every(([status, text]) => status === 200 && text.includes("chimere-nano")));
        assert.match(await refused("--host", `unix:${path}`), /^1 .*another program listens/s);
    } finally {
        assert.equal(await server.stop(), 0);
    }
    assert.ok(!existsSync(path));
    writeFileSync(path, "a file");
    assert.match(await refused("--host", `unix:${path}`), /is no socket/);
    assert.match(await refused("--host", `unix:${"x".repeat(200)}`), /a path of 1 to/);
    assert.match(await refused("--host", "127.0.0.1", "--host", "nowhere"), /expected an address/);
    assert.ok(statSync(path).isFile());
    rmSync(path);
    for (const more of [[], ["--host", "127.0.0.1"]]) {
        const alone = await start(() => ({ args: ["--no-odo", "--host", `unix:${path}`, ...more] }));
        assert.equal((await unix(path, "/health"))[0], 200);
        if (more.length) assert.equal((await fetch(`${alone.url}/health`)).status, 200);
        assert.equal(await alone.stop(), 0);
    }
    rmSync(folder, { recursive: true });
});

test("--ollama listens where Ollama's clients look", async (t) => {
    const server = await start(() => ({ args: ["--no-odo", "--ollama"] })).catch((e) => {
        if (!/11434.*Ollama itself/s.test(e.message)) throw e;
    });
    if (!server) return t.skip("port 11434 is in use");
    try {
        const { models } = await (await fetch("http://127.0.0.1:11434/api/tags")).json();
        assert.equal(models[0].name, "chimere-nano:latest");
        assert.match(await refused("--ollama"), /11434.*Ollama itself/s);
    } finally {
        assert.equal(await server.stop(), 0);
    }
});

test("keys as text, in a file, in llama-server's spelling", async () => {
    const server = await start((folder) => {
        writeFileSync(join(folder, "keys"), `${key} tests\n`, { mode: 0o600 });
        return { args: ["--no-odo", "--api-key", "first-secret,second-secret", "--api-key", "third-secret", "--api-key-file", join(folder, "keys")] };
    });
    try {
        const get = async (k, path = "/v1/models") =>
            (await fetch(server.url + path, { headers: k ? { authorization: `Bearer ${k}` } : {} })).status;
        for (const k of ["first-secret", "second-secret", "third-secret", key]) assert.equal(await get(k), 200, k);
        for (const k of ["first-secret,second-secret", "first-secre", ""]) assert.equal(await get(k), 401, k);
        assert.equal(await get("third-secret", "/metrics"), 200);
        assert.equal(await get(key, "/metrics"), 403);
    } finally {
        assert.equal(await server.stop(), 0);
    }
    assert.match(await refused("--api-key", "short"), /8 to 512 characters/);
    assert.match(await refused("--api-key", "with # in it"), /must not contain blanks or '#'/);
    assert.match(await refused("--api-key", "./no-such-file"), /no-such-file/);
});

for (const [name, lines] of [["llamacpp", ["llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total", "llamacpp:requests_processing"]],
    ["vllm", ['vllm:generation_tokens_total{model_name="chimere-nano"}', 'vllm:time_to_first_token_seconds_count{model_name="chimere-nano"}']]])
    test(`metrics under the names of ${name}`, async () => {
        const server = await start(() => ({ args: ["--no-odo", "--metrics-compat", name] }));
        try {
            await post(`${server.url}/v1/completions`, { prompt: "One, two,", max_tokens: 7, ignore_eos: true });
            const text = await (await fetch(`${server.url}/metrics`)).text();
            const value = (line) => Number(text.split("\n").find((x) => x.startsWith(`${line} `))?.split(" ").pop());
            for (const line of lines) assert.ok(value(line) >= 0, line);
            assert.equal(value(name === "vllm" ? lines[0] : "llamacpp:tokens_predicted_total"), 7);
            assert.ok(value("chimere_generated_tokens_total") === 7);
            const names = [...text.matchAll(/^# TYPE (\S+)/gm)].map((m) => m[1]);
            assert.equal(new Set(names).size, names.length); // each is declared once
        } finally {
            assert.equal(await server.stop(), 0);
        }
    });

test("timings per token, progress, __verbose", async () => {
    const server = await start(() => ({ args: ["--no-odo", "--verbose"] }));
    try {
        const messages = [{ role: "user", content: question }], rest = { max_tokens: 6, timings_per_token: true, ignore_eos: true };
        for (const [path, body] of [["/v1/chat/completions", { messages }], ["/v1/completions", { prompt: "One, two," }], ["/completion", { prompt: "One, two," }]]) {
            const all = await frames(server.url + path, { ...body, ...rest });
            const counts = all.filter((f) => f.timings).map((f) => f.timings.predicted_n);
            assert.ok(counts.length > 3, path);
            assert.deepEqual(counts, [...counts].sort((a, b) => a - b));
            assert.equal(counts.at(-1), 6, path);
            const without = await frames(server.url + path, { ...body, ...rest, timings_per_token: false });
            assert.ok(without.filter((f) => f.timings).length <= 1, path);
            const whole = await post(server.url + path, { ...body, ...rest });
            assert.ok(whole.__verbose.prompt.includes(body.prompt ?? question), path);
            const progress = await frames(server.url + path, { ...body, ...rest, return_progress: true });
            assert.ok(progress.some((f) => f.prompt_progress?.processed > 0), path);
        }
    } finally {
        assert.equal(await server.stop(), 0);
    }
});

test("slots are saved, restored and erased", async () => {
    const server = await start((folder) => ({ args: ["--no-odo", "--slot-save-path", join(folder, "state")] }));
    try {
        const prompt = "The quick brown fox jumps over the lazy dog. ".repeat(20);
        const ask = async (id_slot) => (await post(`${server.url}/completion`, { prompt, id_slot, n_predict: 3, temperature: 0 }));
        const act = (id, action, body = {}) => post(`${server.url}/slots/${id}?action=${action}`, body);
        const first = await ask(1), all = first.timings.prompt_n;
        assert.ok(all > 100);
        const saved = await act(1, "save", { filename: "one.bin" });
        assert.equal(saved.status, 200);
        assert.ok(saved.n_saved >= all && saved.n_written > 4 * all);
        const erased = await act(1, "erase");
        assert.equal(erased.n_erased, saved.n_saved);
        const again = await ask(1);
        assert.equal(again.timings.prompt_n, all); // nothing of it is left
        assert.equal(again.content, first.content);
        assert.equal((await act(5, "erase")).status, 200);
        const restored = await act(5, "restore", { filename: "one.bin" });
        assert.equal(restored.n_restored, saved.n_saved);
        assert.equal(restored.n_read, saved.n_written);
        const next = await ask(5);
        assert.ok(next.timings.prompt_n < all / 2, `${next.timings.prompt_n} of ${all}`);
        assert.equal(next.content, first.content);
        for (const [id, action, body, status] of [[7, "save", { filename: "x" }, 404], [1, "restore", { filename: "none" }, 404],
            [1, "save", { filename: "../x" }, 400], [1, "save", {}, 400], [1, "burn", {}, 400], [9999, "erase", {}, 400], ["a", "erase", {}, 400]])
            assert.equal((await act(id, action, body)).status, status, `${id} ${action}`);
        writeFileSync(join(server.folder, "state", "slots", "127.0.0.1-bad"), "CHSLOT1\n garbage");
        assert.match((await act(1, "restore", { filename: "bad" })).error.message, /no saved slot/);
        assert.ok(existsSync(join(server.folder, "state", "slots", "127.0.0.1-one.bin")));
    } finally {
        assert.equal(await server.stop(), 0);
    }
});

test("slots without a folder are refused", async () => {
    const server = await start(() => ({ args: ["--no-odo"] }));
    try {
        assert.equal((await post(`${server.url}/completion`, { prompt: "a", id_slot: 0, n_predict: 1 })).status, 200);
        assert.match((await post(`${server.url}/slots/0?action=save`, { filename: "x" })).error.message, /--state-dir/);
    } finally {
        assert.equal(await server.stop(), 0);
    }
});

test("echo with log-probabilities of the prompt, as lm-evaluation-harness asks", async () => {
    const server = await start(() => ({ args: ["--no-odo"] }));
    try {
        const url = `${server.url}/v1/completions`, rest = { temperature: 0, logprobs: 5 };
        const { tokens: prompt } = await post(`${server.url}/tokenize`, { content: "Seven plus five is twelve, and twelve plus one is" });
        const made = (await post(`${server.url}/completion`, { prompt, n_predict: 8, n_probs: 5, temperature: 0, return_tokens: true, ignore_eos: true }));
        const ids = [...prompt, ...made.tokens];
        // the decode's own log-probabilities, against those of the same tokens as a prompt
        const echoed = await post(url, { ...rest, prompt: ids, max_tokens: 1, echo: true, ignore_eos: true });
        const { tokens, token_logprobs, top_logprobs, text_offset } = echoed.choices[0].logprobs;
        assert.equal(tokens.length, ids.length + 1);
        assert.equal(token_logprobs[0], null);
        assert.equal(top_logprobs[0], null);
        assert.equal(echoed.choices[0].text, tokens.join(""));
        made.completion_probabilities.forEach((p, i) =>
            assert.ok(Math.abs(p.logprob - token_logprobs[prompt.length + i]) < 2e-3, `${i}: ${p.logprob} ${token_logprobs[prompt.length + i]}`));
        for (let i = 1; i < tokens.length; i++) {
            const top = Object.values(top_logprobs[i]);
            assert.ok(token_logprobs[i] <= Math.max(...top) + 1e-6 && top.length <= 5 && top.every((x) => x <= 0));
            assert.equal(text_offset[i], Buffer.byteLength(tokens.slice(0, i).join("")));
        }
        // greedy tokens are the likeliest ones
        for (let i = prompt.length; i < ids.length; i++) {
            const best = Object.entries(top_logprobs[i]).sort((a, b) => b[1] - a[1])[0][0];
            assert.equal(best, tokens[i]);
        }
        // several prompts, of different length, at once; nothing generated
        const many = await post(url, { ...rest, prompt: [ids, prompt, ids.slice(0, 1)], max_tokens: 0, echo: true });
        assert.deepEqual(many.choices.map((c) => c.logprobs.tokens.length), [ids.length, prompt.length, 1]);
        many.choices[0].logprobs.token_logprobs.forEach((x, i) => assert.ok(x === null || Math.abs(x - token_logprobs[i]) < 2e-3));
        const text = await post(url, { ...rest, prompt: "Seven plus five", max_tokens: 0, echo: true });
        assert.equal(text.choices[0].logprobs.tokens.join(""), "Seven plus five");
        // streamed: the same in all
        const chunks = await frames(url, { ...rest, prompt: ids, max_tokens: 2, echo: true, ignore_eos: true });
        const streamed = chunks.flatMap((c) => c.choices[0]?.logprobs?.tokens ?? []);
        assert.deepEqual(streamed.slice(0, ids.length), tokens.slice(0, ids.length));
        assert.equal(chunks.map((c) => c.choices[0]?.text ?? "").join(""), streamed.join(""));
    } finally {
        assert.equal(await server.stop(), 0);
    }
});
