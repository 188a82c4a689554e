// resume.test.mjs: a streamed answer outlives its connection where the request asks for it, and is read on, stopped, or
// found by nobody else.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { start } from "./serve.mjs";

let server;
before(async () => {
    server = await start((folder) => {
        writeFileSync(join(folder, "keys"), "key-of-ada ada admin\nkey-of-bob bob\n");
        return { args: ["-m", "nano", "--no-odo", "--ctx", "32768", "--api-key", join(folder, "keys")], env: { XDG_DATA_HOME: folder } };
    });
});
after(async () => assert.equal(await server.stop(), 0));

const call = (method, path, body, more = {}, key = "key-of-ada") => fetch(server.url + path, { method, ...more,
    headers: { authorization: `Bearer ${key}`, ...more.headers }, body: body && JSON.stringify(body) });
const long = { model: "chimere-nano", stream: true, messages: [{ role: "user", content: "Tell me a story." }], ignore_eos: true, max_tokens: 1500, temperature: 0 };
const endless = { ...long, max_tokens: 30_000 }; // longer than any pause of this program
const running = async () => (await (await call("GET", "/v1/status")).json()).models[0].running;
const text = (frames) => frames.split("\n\n").filter((f) => f.startsWith("data: {")).map((f) => JSON.parse(f.slice(6)).choices?.[0]?.delta?.content ?? "").join("");

async function beginAndLeave(keep, body) {
    const control = new AbortController();
    const res = await call("POST", "/v1/chat/completions", body, { signal: control.signal, headers: keep ? { "X-Chimere-Keep": "true" } : {} });
    const id = res.headers.get("x-request-id");
    await res.body.getReader().read();
    control.abort();
    return id;
}

test("an answer whose client left is read to its end, twice, as if it had stayed", async () => {
    const whole = text(await (await call("POST", "/v1/chat/completions", long)).text());
    assert.ok(whole.length > 500);
    const id = await beginAndLeave(true, long);
    await new Promise((ok) => setTimeout(ok, 300));
    const [one, two] = await Promise.all([call("GET", `/chimere/v1/answers/${id}`), call("GET", `/chimere/v1/answers/${id}`)]);
    assert.match(one.headers.get("content-type"), /event-stream/);
    const [a, b] = [await one.text(), await two.text()];
    assert.equal(text(a), whole);
    assert.equal(a, b);
    assert.match(a, /data: \[DONE\]\n\n$/);
    assert.equal(await (await call("GET", `/chimere/v1/answers/${id}`)).text(), a); // after its end, too
    assert.equal((await call("GET", `/chimere/v1/answers/${id}`, undefined, {}, "key-of-bob")).status, 404);
    assert.equal((await call("DELETE", `/chimere/v1/answers/${id}`, undefined, {}, "key-of-bob")).status, 404);
    assert.equal((await call("GET", `/chimere/v1/answers/${id}`, undefined, { headers: { "X-User": "eve" } })).status, 404);
});

test("without the header it ends with its client; with it, when it is stopped", async () => {
    const gone = await beginAndLeave(false, endless);
    for (let i = 0; i < 3000 && (await running()); i++) await new Promise((ok) => setTimeout(ok, 20));
    assert.equal(await running(), 0);
    assert.equal((await call("GET", `/chimere/v1/answers/${gone}`)).status, 404);
    const id = await beginAndLeave(true, endless);
    await new Promise((ok) => setTimeout(ok, 100));
    assert.equal(await running(), 1);
    const reader = call("GET", `/chimere/v1/answers/${id}`).then((r) => r.text());
    assert.equal((await (await call("DELETE", `/chimere/v1/answers/${id}`)).json()).stopped, true);
    for (let i = 0; i < 3000 && (await running()); i++) await new Promise((ok) => setTimeout(ok, 20));
    assert.equal(await running(), 0);
    await reader;
    assert.equal((await call("GET", "/chimere/v1/answers/req_none")).status, 404);
});

test("more answers than are kept: all are answered, and the server stops with one under way", async () => {
    const short = { ...long, max_tokens: 2 };
    for (let i = 0; i < 40; i++) assert.match(await (await call("POST", "/v1/chat/completions", short, { headers: { "X-Chimere-Keep": "true" } })).text(), /\[DONE\]/);
    const ids = [await beginAndLeave(true, long)];
    // readers that leave are forgotten
    for (let i = 0; i < 12; i++) {
        const control = new AbortController();
        const res = await call("GET", `/chimere/v1/answers/${ids[0]}`, undefined, { signal: control.signal });
        assert.ok([200, 429].includes(res.status));
        control.abort();
    }
});
