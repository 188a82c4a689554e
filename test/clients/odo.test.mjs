// odo.test.mjs: the orchestrator behind the unchanged openai package, and MCP with its official SDK on both sides.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
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
