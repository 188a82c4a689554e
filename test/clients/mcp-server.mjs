// mcp-server.mjs: an MCP server made with the official SDK, on its standard streams or (with a port) over HTTP.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

function make() {
    const server = new McpServer({ name: "weather", version: "1.0.0" });
    server.registerTool("get_weather", { description: "Get the weather of a city.", inputSchema: { city: z.string() } },
        async ({ city }) => ({ content: [{ type: "text", text: `${city}: -5 degrees, sunny` }] }));
    return server;
}
if (process.argv[2] === "http") {
    const sessions = new Map(); // the SDK refuses messages without the session that it gave
    const http = createServer(async (request, response) => {
        let transport = sessions.get(request.headers["mcp-session-id"]);
        if (!transport) {
            transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID,
                onsessioninitialized: (id) => sessions.set(id, transport) });
            await make().connect(transport);
        }
        await transport.handleRequest(request, response);
    });
    http.listen(0, "127.0.0.1", () => console.log(http.address().port));
} else {
    await make().connect(new StdioServerTransport());
}
