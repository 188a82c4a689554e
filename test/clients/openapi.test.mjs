// openapi.test.mjs: /openapi.json against what the server does: every route of the source is in it and answers, and the
// fields that it names are the fields that requests may have.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import Ajv from "ajv/dist/2020.js";
import { key, serve } from "./serve.mjs";

let server, doc;
before(async () => {
    server = await serve("-m", "nano", "--ctx", "1024");
    doc = await (await fetch(`${server.url}/openapi.json`)).json();
});
after(async () => assert.equal(await server.stop(), 0));

const operations = () => Object.entries(doc.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, o]) => ({ path, method: method.toUpperCase(), o })));
async function call(method, path, body, headers = { authorization: `Bearer ${key}` }) {
    const res = await fetch(server.url + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await res.text();
    let json = {};
    try {
        json = JSON.parse(text);
    } catch {
        // metrics, the page, streams
    }
    return { status: res.status, json, text };
}
const message = (r) => (typeof r.json.error === "string" ? r.json.error : r.json.error?.message) ?? "";

test("the document is of OpenAPI 3.1's form", () => {
    assert.match(doc.openapi, /^3\.1\./);
    const ids = operations().map(({ o }) => o.operationId);
    assert.equal(new Set(ids).size, ids.length);
    for (const { path, o } of operations()) {
        const named = [...path.matchAll(/\{(\w+)\}/g)].map((m) => m[1]);
        assert.deepEqual(o.parameters.filter((p) => p.in === "path").map((p) => p.name), named, path);
        assert.ok(o.parameters.every((p) => p.in !== "path" || p.required));
        assert.ok(o.summary && o.responses["200"] && o.responses.default, path);
        for (const content of Object.values(o.requestBody?.content ?? {})) new Ajv({ strict: false }).compile(content.schema);
        const ref = o.responses.default.content["application/json"].schema.$ref;
        assert.ok(doc.components.schemas[ref.split("/").at(-1)], ref);
    }
});

test("it has every route of the source, and no other", () => {
    const source = readFileSync(new URL("../../src/serve/routes.c", import.meta.url), "utf8");
    const want = [...source.matchAll(/^ {4}\{"([A-Z]+)", "([^"]+)"/gm)].map(([, method, path]) => `${method} ${path}`);
    assert.ok(want.length > 60);
    const got = operations().map(({ method, path }) => `${method} ${path.replace(/\{\w+\}/g, "*")}`);
    assert.deepEqual(got.sort(), want.sort());
});

test("every route answers, in the shape of its errors", async () => {
    const ajv = new Ajv({ strict: false });
    for (const { path, method, o } of operations()) {
        if (path === "/drain") continue; // below
        const at = path.replace(/\{\w+\}/g, "none-of-this-name");
        const r = await call(method, at, method === "POST" ? {} : undefined);
        assert.notEqual(r.status, 405, `${method} ${at}`);
        assert.doesNotMatch(message(r), /^there is no \/(?!studio)/, `${method} ${at}: ${message(r)}`);
        assert.ok(r.status < 500 || /orchestrator|answer/.test(message(r)), `${method} ${at}: ${r.status} ${r.text.slice(0, 200)}`);
        if (r.status >= 400) {
            const name = o.responses.default.content["application/json"].schema.$ref.split("/").at(-1);
            const check = ajv.compile(doc.components.schemas[name]);
            assert.ok(check(r.json), `${method} ${at}: ${r.text.slice(0, 200)}`);
        }
        const bare = await call(method, at, method === "POST" ? {} : undefined, {});
        assert.equal(bare.status === 401, !o.security, `${method} ${at} without a key: ${bare.status}`);
    }
    assert.equal((await call("GET", "/v1/none")).status, 404);
    assert.ok([200, 202].includes((await call("POST", "/drain")).status));
    assert.equal((await call("DELETE", "/drain")).status, 200);
});

test("members that are required are missed; those that are listed are known, others are not", async () => {
    for (const { path, method, o } of operations()) {
        const schema = o.requestBody?.content["application/json"]?.schema;
        if (!schema || path.includes("{") || path.startsWith("/api/")) continue; // Ollama's ignore what they do not know
        const unknown = await call(method, path, { no_such_member: 1, model: "chimere-nano" });
        assert.ok(unknown.status >= 400, `${method} ${path}`);
        if (schema.required) {
            const r = await call(method, path, {});
            assert.ok(r.status >= 400 && r.status < 500, `${method} ${path}: ${r.status}`);
        }
    }
    const one = { "/v1/chat/completions": { messages: [{ role: "user", content: "hi" }], max_tokens: 1 }, "/v1/completions": { prompt: "hi", max_tokens: 1 },
        "/v1/responses": { input: "hi", max_output_tokens: 16 }, "/v1/messages": { messages: [{ role: "user", content: "hi" }], max_tokens: 1 } };
    for (const [path, body] of Object.entries(one)) {
        const { properties } = doc.paths[path].post.requestBody.content["application/json"].schema;
        assert.ok(Object.keys(properties).length > 40, path);
        for (const [name, schema] of Object.entries(properties)) {
            const wrong = await call("POST", path, { ...body, [name]: { not: ["a", "value"] } });
            assert.doesNotMatch(message(wrong), new RegExp(`^${name}: unknown field`), `${path} ${name}`);
            if (schema.maximum === undefined) continue;
            for (const bad of [schema.maximum + 1, schema.minimum - 1, "x"]) {
                const r = await call("POST", path, { ...body, [name]: bad });
                assert.equal(r.status, 400, `${path} ${name} ${bad}`);
                assert.match(message(r), new RegExp(`^${name}: expected`), `${path} ${name} ${bad}`);
            }
        }
        const r = await call("POST", path, { ...body, no_such_member: 1 });
        assert.match(message(r), /no_such_member: unknown field/);
    }
});
