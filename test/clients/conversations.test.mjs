// conversations.test.mjs: /v1/conversations with OpenAI's own client, and what this server adds: a tree, titles, search,
// versions; owners, limits and input that nobody should send.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { start } from "./serve.mjs";

let server, ada, bob;
const clientOf = (apiKey, headers) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0, defaultHeaders: headers });
before(async () => {
    server = await start((folder) => {
        writeFileSync(join(folder, "keys"), "key-of-ada ada\nkey-of-bob bob\n");
        return { args: ["-m", "nano", "--no-odo", "--ctx", "1024", "--api-key", join(folder, "keys"), "--state-dir", join(folder, "state")],
            env: { XDG_DATA_HOME: folder } };
    });
    ada = clientOf("key-of-ada");
    bob = clientOf("key-of-bob");
});
after(async () => assert.equal(await server.stop(), 0));

async function call(method, path, body, headers = {}, key = "key-of-ada") {
    const res = await fetch(server.url + path, { method, headers: { authorization: `Bearer ${key}`, ...headers },
        body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body) });
    return { status: res.status, etag: res.headers.get("etag"), ...await res.json() };
}
const user = (text, more) => ({ type: "message", role: "user", content: [{ type: "input_text", text }], ...more });

test("OpenAI's client creates, reads, changes and deletes", async () => {
    const c = await ada.conversations.create({ metadata: { topic: "demo" }, items: [{ type: "message", role: "user", content: "Hello!" }] });
    assert.match(c.id, /^conv_[0-9a-f]{32}$/);
    assert.equal(c.object, "conversation");
    assert.deepEqual(c.metadata, { topic: "demo" });
    assert.ok(Math.abs(c.created_at - Date.now() / 1000) < 60);
    assert.deepEqual((await ada.conversations.retrieve(c.id)).metadata, { topic: "demo" });
    assert.deepEqual((await ada.conversations.update(c.id, { metadata: { topic: "new" } })).metadata, { topic: "new" });
    const added = await ada.conversations.items.create(c.id, { items: [
        { type: "message", role: "assistant", content: [{ type: "output_text", text: "Hi.", annotations: [] }] },
        { type: "function_call", call_id: "call_1", name: "f", arguments: "{}" },
        { type: "function_call_output", call_id: "call_1", output: "done" },
    ] });
    assert.deepEqual(added.data.map((x) => x.type), ["message", "function_call", "function_call_output"]);
    assert.equal(added.first_id, added.data[0].id);
    assert.equal(added.has_more, false);
    const item = await ada.conversations.items.retrieve(added.data[1].id, { conversation_id: c.id });
    assert.equal(item.call_id, "call_1");
    const seen = [];
    for await (const x of ada.conversations.items.list(c.id, { limit: 1, order: "asc" })) seen.push(x.type);
    assert.deepEqual(seen, ["message", "message", "function_call", "function_call_output"]);
    const newest = await ada.conversations.items.list(c.id);
    assert.equal(newest.data[0].type, "function_call_output"); // newest first unless asked for
    assert.deepEqual(newest.data[3].content, [{ type: "input_text", text: "Hello!" }]);
    assert.equal(newest.data[3].status, "completed");
    assert.equal((await ada.conversations.items.delete(added.data[1].id, { conversation_id: c.id })).id, c.id);
    await assert.rejects(ada.conversations.items.retrieve(added.data[1].id, { conversation_id: c.id }), { status: 404 });
    assert.deepEqual(await ada.conversations.delete(c.id), { id: c.id, object: "conversation.deleted", deleted: true });
    await assert.rejects(ada.conversations.retrieve(c.id), { status: 404 });
    assert.match((await ada.conversations.create()).id, /^conv_/);
});

test("items form a tree: a parent is an earlier item of the same conversation", async () => {
    const c = await call("POST", "/v1/conversations", { title: "tree", items: [user("one", { id: "a" }), user("two", { id: "b" }), user("two again", { id: "b2", parent: "a" })] });
    const list = await call("GET", `/v1/conversations/${c.id}/items?order=asc`);
    assert.deepEqual(list.data.map((x) => [x.id, x.parent]), [["a", null], ["b", "a"], ["b2", "a"]]);
    const before = (await call("GET", "/v1/conversations?limit=1000")).data.length;
    for (const items of [[user("x", { parent: "nowhere" })], [user("x", { id: "y", parent: "y" })], [user("x", { id: "a" })],
        [user("fine"), user("x", { id: "p", parent: "q" }), user("x", { id: "q" })]]) {
        const r = await call("POST", `/v1/conversations/${c.id}/items`, { items });
        assert.equal(r.status, 400, JSON.stringify(items));
        assert.match(r.error.message, /items\[\d\]/);
        assert.equal((await call("POST", "/v1/conversations", { items: [...items, user("x", { id: "a" }), user("x", { id: "a" })] })).status, 400);
    }
    assert.equal((await call("GET", `/v1/conversations/${c.id}`)).n_items, 3);
    assert.equal((await call("GET", "/v1/conversations?limit=1000")).data.length, before);
    await call("POST", `/v1/conversations/${c.id}/items/b`, user("two, corrected"));
    assert.equal((await call("GET", `/v1/conversations/${c.id}/items/b`)).content[0].text, "two, corrected");
    assert.equal((await call("GET", `/v1/conversations/${c.id}/items/b`)).parent, "a");
    assert.equal((await call("DELETE", `/v1/conversations/${c.id}/items/a?below=true`)).n_items, 0);
});

test("two writers: the second, with the version of before, is refused", async () => {
    const c = await call("POST", "/v1/conversations", { title: "first" });
    assert.match(c.etag, /^"\d+"$/);
    const ours = await call("POST", `/v1/conversations/${c.id}`, { title: "ours" }, { "If-Match": c.etag });
    assert.equal(ours.status, 200);
    assert.notEqual(ours.etag, c.etag);
    const theirs = await call("POST", `/v1/conversations/${c.id}`, { title: "theirs" }, { "If-Match": c.etag });
    assert.equal(theirs.status, 412);
    assert.equal(theirs.error.code, "precondition_failed");
    assert.equal((await call("DELETE", `/v1/conversations/${c.id}`, undefined, { "If-Match": `W/${c.etag}` })).status, 412);
    assert.equal((await call("POST", `/v1/conversations/${c.id}`, { title: "x" }, { "If-Match": "abc" })).status, 400);
    assert.equal((await call("GET", `/v1/conversations/${c.id}`)).title, "ours");
    // many at once, each with a version: as many succeed as versions were current
    let etag = ours.etag;
    const all = await Promise.all([...Array(8).keys()].map((i) => call("POST", `/v1/conversations/${c.id}`, { title: `t${i}` }, { "If-Match": etag })));
    assert.deepEqual(all.map((r) => r.status).sort(), [200, ...Array(7).fill(412)]);
});

test("titles, pins, projects, settings and search; another key or user finds nothing", async () => {
    const c = await call("POST", "/v1/conversations", { title: "Garden plans", project: "home", settings: { model: "nano" }, items: [user("When do I plant tomatoes?")] });
    assert.deepEqual((await call("GET", "/v1/conversations?search=tomat")).data.map((x) => x.id), [c.id]);
    assert.match((await call("GET", "/v1/conversations?search=tomat")).data[0].match, /tomatoes/);
    assert.deepEqual((await call("GET", "/v1/conversations?search=garden")).data.map((x) => x.id), [c.id]);
    assert.deepEqual((await call("GET", "/v1/conversations?project=home")).data.map((x) => x.id), [c.id]);
    assert.deepEqual((await call("GET", "/v1/conversations?search=%22%20OR%20%22")).data, []);
    assert.equal((await call("POST", `/v1/conversations/${c.id}`, { pinned: true })).pinned, true);
    assert.equal((await call("GET", "/v1/conversations")).data[0].id, c.id);
    assert.deepEqual((await call("GET", `/v1/conversations/${c.id}`)).settings, { model: "nano" });
    await assert.rejects(bob.conversations.retrieve(c.id), { status: 404 });
    await assert.rejects(clientOf("key-of-ada", { "X-User": "eve" }).conversations.retrieve(c.id), { status: 404 });
    await assert.rejects(bob.conversations.items.create(c.id, { items: [{ role: "user", content: "x" }] }), { status: 404 });
    assert.deepEqual((await call("GET", "/v1/conversations?search=tomat", undefined, {}, "key-of-bob")).data, []);
    assert.equal((await call("GET", "/v1/conversations", undefined, {}, "wrong")).status, 401);
});

test("what nobody should send is refused in one sentence", async () => {
    const c = await call("POST", "/v1/conversations", {});
    const bad = [
        ["POST", "/v1/conversations", "{"], ["POST", "/v1/conversations", { colour: 1 }], ["POST", "/v1/conversations", { title: 1 }],
        ["POST", "/v1/conversations", { title: "x".repeat(513) }], ["POST", "/v1/conversations", { metadata: { a: 1 } }],
        ["POST", "/v1/conversations", { metadata: Object.fromEntries([...Array(17).keys()].map((i) => [`k${i}`, ""])) }],
        ["POST", "/v1/conversations", { settings: [] }], ["POST", "/v1/conversations", { settings: { x: "y".repeat(70000) } }],
        ["POST", "/v1/conversations", { items: {} }], ["POST", "/v1/conversations", { items: [1] }],
        ["POST", "/v1/conversations", { items: Array(1001).fill(user("x")) }],
        ["POST", "/v1/conversations", { items: [user("x".repeat(5 << 20))] }],
        ["POST", "/v1/conversations", { items: [user("x", { id: "../x" })] }], ["POST", "/v1/conversations", { items: [user("x", { id: "x".repeat(80) })] }],
        ["POST", "/v1/conversations", { items: [user("x", { role: "root" })] }], ["POST", "/v1/conversations", { items: [user("x", { content: 1 })] }],
        ["POST", "/v1/conversations", { items: [user("x", { content: [{}] })] }], ["POST", "/v1/conversations", { items: [user("x", { parent: 3 })] }],
        ["POST", "/v1/conversations", { items: [user("x", { created_at: 1e15 })] }], ["POST", "/v1/conversations", { items: [{ type: "item_reference", id: "x" }] }],
        ["POST", `/v1/conversations/${c.id}`, { items: [] }], ["POST", `/v1/conversations/${c.id}/items`, { items: [], more: 1 }],
        ["GET", "/v1/conversations?limit=0"], ["GET", "/v1/conversations?limit=1e9"], ["GET", `/v1/conversations?search=${"x".repeat(600)}`],
        ["GET", `/v1/conversations/${c.id}/items?order=up`], ["DELETE", `/v1/conversations/${c.id}/items/x?below=maybe`],
    ];
    for (const [method, path, body] of bad) {
        const r = await call(method, path, body);
        assert.equal(r.status, 400, `${method} ${path} ${JSON.stringify(body)?.slice(0, 80)}: ${r.status}`);
        assert.match(r.error.message, /^[^\n]{8,300}$/);
    }
    for (const path of ["/v1/conversations/none", `/v1/conversations/${c.id}/items/none`, `/v1/conversations/${c.id}/other`, `/v1/conversations/${c.id}/items?after=none`,
        "/v1/conversations?after=none", `/v1/conversations/${"x".repeat(200)}`, "/v1/conversations//items"])
        assert.equal((await call("GET", path)).status, 404, path);
    assert.equal((await call("PUT", "/v1/conversations", {})).status, 405);
    assert.equal((await call("GET", `/v1/conversations/${c.id}`)).n_items, 0);
});

test("a long conversation is read page by page", async () => {
    const c = await call("POST", "/v1/conversations", { items: Array.from({ length: 1000 }, (_, i) => user(`message ${i}`)) });
    for (let k = 1; k < 5; k++) await call("POST", `/v1/conversations/${c.id}/items`, { items: Array.from({ length: 1000 }, (_, i) => user(`message ${k * 1000 + i}`)) });
    const texts = [];
    for (let from = ""; ;) {
        const page = await call("GET", `/v1/conversations/${c.id}/items?order=asc&limit=700${from}`);
        texts.push(...page.data.map((x) => x.content[0].text));
        if (!page.has_more) break;
        from = `&after=${page.last_id}`;
    }
    assert.deepEqual(texts, Array.from({ length: 5000 }, (_, i) => `message ${i}`));
    assert.equal((await call("DELETE", `/v1/conversations/${c.id}`)).deleted, true);
});
