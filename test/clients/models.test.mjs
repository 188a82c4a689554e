// models.test.mjs: several models behind one server: loaded when asked for, unloaded, refused by name.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { dirname, join } from "node:path";
import OpenAI from "openai";
import { key, question, serve } from "./serve.mjs";

const nano = join(dirname(process.env.CHIMERE), "chimere-nano.gguf");
let server, client;
before(async () => {
    server = await serve("--also", `second=${nano}`, "--also", `third=${nano}`, "--also-max", "1", "--ctx", "16384");
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0 });
});
after(async () => assert.equal(await server.stop(), 0));

const ask = (model, more) => client.chat.completions.create({ model, temperature: 0, max_tokens: 20,
    messages: [{ role: "user", content: question }], ...more });
const post = async (path, body) => {
    const r = await fetch(server.url + path, { method: "POST", body: JSON.stringify(body), headers: { authorization: `Bearer ${key}` } });
    return { status: r.status, body: await r.json() };
};
const states = async () => {
    const r = await fetch(`${server.url}/v1/status`, { headers: { authorization: `Bearer ${key}` } });
    return Object.fromEntries((await r.json()).on_demand.map((m) => [m.id, m.state]));
};

test("all are listed, none of the others is loaded", async () => {
    const ids = [], sees = {};
    for await (const m of client.models.list()) {
        ids.push(m.id);
        sees[m.id] = m.meta?.vision;
    }
    assert.equal(sees["chimere-nano"], false);
    assert.equal(sees.second, undefined); // not known before it is loaded
    for (const id of ["chimere-nano", "second", "third"]) assert.ok(ids.includes(id), ids.join());
    assert.deepEqual(await states(), { second: "listed", third: "listed" });
});

test("the first request loads; the next model takes the idle one's place", async () => {
    for (const model of ["second", "third", "second"]) {
        const r = await ask(model);
        assert.equal(r.model, model);
        assert.match(r.choices[0].message.content, /42/);
        assert.equal((await states())[model], "ready");
        assert.equal(Object.values(await states()).filter((s) => s === "ready").length, 1);
    }
});

test("a model that answers stays", async () => {
    const stream = await ask("second", { stream: true, max_tokens: 15000, ignore_eos: true }); // longer than any pause of this program
    let n = 0;
    for await (const chunk of stream) {
        assert.ok(chunk);
        if (n++ === 2) assert.equal((await post("/models/unload", { model: "second" })).status, 429);
        if (n > 100) break; // closes the connection
    }
    assert.ok(n > 100, `${n} chunks`);
});

test("loading and unloading by hand", async () => {
    let status = 429; // until the server notices that nobody reads the answer any more
    for (let i = 0; i < 600 && status === 429; i++) {
        if (i) await new Promise((done) => setTimeout(done, 100));
        ({ status } = await post("/models/unload", { model: "second" }));
    }
    assert.equal(status, 200);
    assert.equal((await states()).second, "listed");
    const r = await post("/models/load", { model: "third" });
    assert.equal(r.status, 200);
    assert.equal(r.body.models.find((m) => m.id === "third").state, "ready");
    assert.equal((await post("/models/load", { model: "nobody" })).status, 404);
    assert.equal((await post("/models/load", {})).status, 400);
    await assert.rejects(ask("nobody"), OpenAI.NotFoundError);
});
