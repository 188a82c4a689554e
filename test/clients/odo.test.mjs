// odo.test.mjs: the orchestrator behind the unchanged openai package, and MCP with its official SDK on both sides.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { calculator, key, serve, toolQuestion } from "./serve.mjs";

const folder = mkdtempSync(join(tmpdir(), "chimere-odo-"));
const db = ["--db", join(folder, "odo.db")];
const script = new URL("mcp-server.mjs", import.meta.url).pathname;
let server, client, web;
before(async () => {
    web = spawn(process.execPath, [script, "http"], { stdio: ["ignore", "pipe", "inherit"] });
    const port = await new Promise((resolve) => web.stdout.once("data", (d) => resolve(String(d).trim())));
    server = await serve(...db, "--mcp", `sdk=${process.execPath} ${script}`, "--mcp", `web=http://127.0.0.1:${port}/mcp`);
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0 });
});
after(async () => {
    assert.equal(await server.stop(), 0);
    web.kill();
    rmSync(folder, { recursive: true });
});
const ask = (content, more) => client.chat.completions.create({ model: "odo", temperature: 0, max_tokens: 120,
    messages: [{ role: "user", content }], ...more });

test("models", async () => {
    const names = [];
    for await (const m of client.models.list()) names.push(m.id);
    for (const name of ["odo", "odo:code", "odo:kine"]) assert.ok(names.includes(name), `${name} in ${names}`);
});

test("our own tools run here", async () => {
    const r = await ask(toolQuestion);
    assert.match(r.choices[0].message.content, /-1186/);
    assert.equal(r.choices[0].finish_reason, "stop");
    assert.equal(r.choices[0].message.tool_calls, undefined);
});

test("streams, with its steps", async () => {
    let text = "", finish, steps = [];
    for await (const chunk of await ask(toolQuestion, { stream: true })) {
        if (chunk.odo) steps.push(chunk.odo.step);
        text += chunk.choices[0]?.delta?.content ?? "";
        finish = chunk.choices[0]?.finish_reason ?? finish;
    }
    assert.match(text, /-1186/);
    assert.equal(finish, "stop");
    assert.ok(steps.includes("decision") && steps.includes("tool"), String(steps));
});

test("the client's tools go back to the client", async () => {
    const r = await ask(toolQuestion, { tools: [{ type: "function", function: calculator }] });
    assert.equal(r.choices[0].finish_reason, "tool_calls");
    assert.equal(r.choices[0].message.tool_calls[0].function.name, "calculator");
});

test("tools of an SDK server, on a pipe and over HTTP", async () => {
    const r = await ask("Tell me about the weather in Oslo.", { stream: true });
    const tools = [];
    for await (const chunk of r) if (chunk.odo?.step === "tool") tools.push(chunk.odo.data);
    assert.ok(tools.length, "the model called one of the two");
    assert.match(tools[0].name, /^(web_)?get_weather$/);
    assert.equal(tools[0].ok, true);
});

test("unknown wishes are refused by name", async () => {
    await assert.rejects(ask("hello", { odo: { mode: "hyper" } }), (e) => e.status === 400 && /odo\.mode/.test(e.message));
});

test("ourselves as an MCP server", async () => {
    const us = new Client({ name: "test", version: "1.0.0" });
    await us.connect(new StdioClientTransport({ command: process.env.CHIMERE, args: ["odo", "mcp", ...db] }));
    const { tools } = await us.listTools();
    assert.ok(tools.some((t) => t.name === "calculator") && tools.some((t) => t.name === "documents"));
    const sum = await us.callTool({ name: "calculator", arguments: { expression: "6*7" } });
    assert.match(sum.content[0].text, /42/);
    assert.equal((await us.callTool({ name: "calculator", arguments: { expression: "1/0" } })).isError, true);
    await us.close();
});

test("ourselves as an MCP server over HTTP, with sessions", async () => {
    const headers = { Authorization: `Bearer ${key}` };
    const transport = new StreamableHTTPClientTransport(new URL(`${server.url}/mcp`), { requestInit: { headers } });
    const us = new Client({ name: "test", version: "1.0.0" });
    await us.connect(transport);
    assert.match(transport.sessionId, /^[0-9a-f]{32}$/);
    const { tools } = await us.listTools();
    for (const name of ["calculator", "documents", "remember"]) assert.ok(tools.some((t) => t.name === name), name);
    const sums = await Promise.all([...Array(16).keys()].map((i) =>
        us.callTool({ name: "calculator", arguments: { expression: `${i}*7` } })));
    sums.forEach((sum, i) => assert.match(sum.content[0].text, new RegExp(`= ${i * 7}$`)));
    assert.equal((await us.callTool({ name: "calculator", arguments: { expression: "1/0" } })).isError, true);
    await us.callTool({ name: "remember", arguments: { text: "My boat is called Ada." } });
    const memory = await (await fetch(`${server.url}/v1/memory`, { headers })).json();
    assert.ok(memory.data.some((m) => m.text === "My boat is called Ada."));
    const post = (extra, body = { jsonrpc: "2.0", id: 1, method: "tools/list" }) => fetch(`${server.url}/mcp`, {
        method: "POST", headers: { "Content-Type": "application/json", ...headers, ...extra }, body: JSON.stringify(body) });
    const session = { "Mcp-Session-Id": transport.sessionId };
    assert.equal((await post({})).status, 400);
    assert.equal((await post({ "Mcp-Session-Id": "0".repeat(32) })).status, 404);
    assert.equal((await post({ ...session, "MCP-Protocol-Version": "1999-01-01" })).status, 400);
    assert.equal((await post({ ...session, "Content-Type": "text/plain" })).status, 415);
    assert.equal((await post({ ...session, Origin: "http://evil.example" })).status, 403);
    assert.equal((await post({ ...session, Authorization: "Bearer no" })).status, 401);
    assert.equal((await post(session)).status, 200);
    await transport.terminateSession();
    assert.equal((await post(session)).status, 404);
    await us.close();
});

test("what a user wants remembered is the user's alone", async () => {
    const one = await ask("Remember that my parrot is called Coco.", { user: "kim" });
    assert.ok(one.odo.remembered);
    const call = (path, init = {}, user = "kim") => fetch(`${server.url}/v1/memory${path}`, { ...init,
        headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json", "X-User": user } });
    const list = async (user) => (await (await call("", {}, user)).json()).data;
    const [row] = (await list("kim")).filter((m) => /Coco/.test(m.text));
    assert.equal(row.pinned, false);
    assert.equal((await list("bo")).length, 0);
    const asked = async (user) => (await ask("What is my parrot called?", { user })).odo.memory;
    assert.equal((await asked("kim")).found, 1);
    assert.equal(await asked("bo"), undefined);
    assert.equal((await call(`/${row.id}`, { method: "POST", body: '{"pinned":true}' }, "bo")).status, 404);
    assert.equal((await call(`/${row.id}`, { method: "POST", body: '{"pinned":true}' })).status, 200);
    assert.equal((await asked("kim")).pins, 1);
    assert.equal((await call("", { method: "POST", body: '{"text":""}' })).status, 400);
    assert.equal((await call("", { method: "POST", body: '{"text":"x","colour":1}' })).status, 400);
    assert.equal((await call(`/${row.id}`, { method: "DELETE" }, "bo")).status, 404);
    assert.deepEqual(await (await call("/all", { method: "DELETE" })).json(), { deleted: 1 });
    assert.equal(await asked("kim"), undefined);
});
