// audio.test.mjs: OpenAI's SDK speaks and transcribes through the server, over a stand-in for the audio server.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import OpenAI, { toFile } from "openai";
import { key, serve } from "./serve.mjs";

const sound = Buffer.from(Array.from({ length: 70_000 }, (_, i) => (i * 7) & 255));
let asked = [], held = [], mode = "right", audio, server, bare, openai;
before(async () => {
    audio = createServer((req, res) => {
        const parts = [];
        req.on("data", (d) => parts.push(d));
        req.on("end", () => {
            asked.push({ url: req.url, type: req.headers["content-type"], bearer: req.headers.authorization, body: Buffer.concat(parts) });
            if (mode === "held") return held.push(res);
            if (mode === "broken") return req.socket.destroy();
            if (mode === "refused") return res.writeHead(400, { "Content-Type": "application/json" }).end(JSON.stringify({ error: { message: "no such voice" } }));
            if (req.url === "/v1/audio/speech") return res.writeHead(200, { "Content-Type": "audio/mpeg" }).end(sound);
            res.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify({ text: "hello there" }));
        });
    });
    await new Promise((done) => audio.listen(0, "127.0.0.1", done));
    const url = `http://127.0.0.1:${audio.address().port}`;
    server = await serve("--tts-url", `${url}/v1/`, "--stt-url", url, "--audio-key", "secret-of-audio");
    bare = await serve();
    openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0 });
});
after(async () => {
    audio.close();
    audio.closeAllConnections();
    assert.equal(await server.stop(), 0);
    assert.equal(await bare.stop(), 0);
    assert.doesNotMatch(server.said(), /secret-of-audio/);
});
const speech = { model: "tts-1", voice: "alloy", input: "Good morning." };

test("speech: the other server's sound, byte for byte, by its own key", async () => {
    asked = [];
    const res = await openai.audio.speech.create(speech);
    assert.equal(res.headers.get("content-type"), "audio/mpeg");
    assert.deepEqual(Buffer.from(await res.arrayBuffer()), sound);
    assert.equal(asked[0].url, "/v1/audio/speech");
    assert.deepEqual(JSON.parse(asked[0].body), speech);
    assert.equal(asked[0].bearer, "Bearer secret-of-audio"); // the caller's key stays here
});

test("transcriptions: the recording arrives as it was sent", async () => {
    asked = [];
    const r = await openai.audio.transcriptions.create({ model: "whisper-1", file: await toFile(sound, "a.webm", { type: "audio/webm" }) });
    assert.equal(r.text, "hello there");
    assert.equal(asked[0].url, "/v1/audio/transcriptions");
    assert.match(asked[0].type, /^multipart\/form-data; boundary=/);
    assert.ok(asked[0].body.includes(sound));
});

test("an error of the other server keeps its status and its words", async () => {
    mode = "refused";
    await assert.rejects(openai.audio.speech.create(speech), (e) => e.status === 400 && /no such voice/.test(e.message));
    mode = "broken";
    await assert.rejects(openai.audio.speech.create(speech), (e) => e.status === 502);
    mode = "right";
});

test("two at a time; a client that leaves frees its place", async () => {
    mode = "held";
    const stop = [new AbortController(), new AbortController()];
    const first = stop.map((s) => openai.audio.speech.create(speech, { signal: s.signal }).then(() => "answered", () => "left"));
    while (held.length < 2) await new Promise((done) => setTimeout(done, 20));
    await assert.rejects(openai.audio.speech.create(speech), (e) => e.status === 503 || e.status === 429);
    stop.forEach((s) => s.abort());
    assert.deepEqual(await Promise.all(first), ["left", "left"]);
    mode = "right";
    for (let i = 0; ; i++) { // the server notices that they left within a moment
        const ok = await openai.audio.speech.create(speech).then(() => true, () => false);
        if (ok) break;
        assert.ok(i < 300);
        await new Promise((done) => setTimeout(done, 100));
    }
});

test("who asks learns where audio goes, and a server without says what to start", async () => {
    const get = async (url) => (await fetch(`${url}/chimere/v1/audio`, { headers: { Authorization: `Bearer ${key}` } })).json();
    const host = `127.0.0.1:${audio.address().port}`;
    assert.deepEqual(await get(server.url), { object: "audio", transcriptions: host, speech: host });
    assert.deepEqual(await get(bare.url), { object: "audio", transcriptions: null, speech: null });
    const without = new OpenAI({ baseURL: `${bare.url}/v1`, apiKey: key, maxRetries: 0 });
    await assert.rejects(without.audio.speech.create(speech), (e) => /--tts-url/.test(e.message) && e.status >= 400);
    const unkeyed = await fetch(`${server.url}/v1/audio/speech`, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
    assert.equal(unkeyed.status, 401);
});
