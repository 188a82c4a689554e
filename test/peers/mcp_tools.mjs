#!/usr/bin/env node
// mcp_tools.mjs FOLDER: installs MCP servers from npm into FOLDER, asks each for its tools, and writes them to
// FOLDER/tools/NAME.json, for test/peers/forced_calls.py --tools. A server that cannot be installed or started is named and
// skipped. Needs the packages of test/clients.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const clients = join(dirname(fileURLToPath(import.meta.url)), "..", "clients", "package.json");
const find = createRequire(clients);
const { Client } = await import(pathToFileURL(find.resolve("@modelcontextprotocol/sdk/client/index.js")));
const { StdioClientTransport } = await import(pathToFileURL(find.resolve("@modelcontextprotocol/sdk/client/stdio.js")));

// package, then its arguments; FOLDER stands for a folder that it may use
const servers = [
    ["@modelcontextprotocol/server-everything"], ["@modelcontextprotocol/server-filesystem", "FOLDER"], ["@modelcontextprotocol/server-memory"],
    ["@modelcontextprotocol/server-sequential-thinking"], ["@playwright/mcp"], ["chrome-devtools-mcp"], ["@notionhq/notion-mcp-server"],
    ["@upstash/context7-mcp"], ["firecrawl-mcp"], ["tavily-mcp"], ["@brave/brave-search-mcp-server"],
];
const folder = resolve(process.argv[2] ?? "mcp-tools"), tools = join(folder, "tools");
mkdirSync(tools, { recursive: true });
if (!existsSync(join(folder, "package.json"))) writeFileSync(join(folder, "package.json"), "{\"private\": true}");
const keys = { FIRECRAWL_API_KEY: "none", TAVILY_API_KEY: "none", BRAVE_API_KEY: "none", NOTION_TOKEN: "none" };
for (const [name, ...more] of servers) {
    try {
        const place = join(folder, "node_modules", name);
        if (!existsSync(place))
            execFileSync("npm", ["install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", name], { cwd: folder, timeout: 240000 });
        const { bin, version } = JSON.parse(readFileSync(join(place, "package.json")));
        const file = join(place, typeof bin === "string" ? bin : Object.values(bin)[0]);
        const client = new Client({ name: "tools", version: "1" });
        await client.connect(new StdioClientTransport({ command: process.execPath, args: [file, ...more.map((x) => x === "FOLDER" ? folder : x)],
            env: { ...process.env, ...keys }, stderr: "ignore" }), { timeout: 30000 });
        const list = (await client.listTools()).tools;
        writeFileSync(join(tools, `${name.replace(/[@/]/g, "_")}.json`), JSON.stringify(list));
        await client.close();
        console.log(`${name} ${version}: ${list.length} tools`);
    } catch (e) {
        console.log(`skip: ${name}: ${String(e.message).split("\n")[0]}`);
    }
}
process.exit(0);
