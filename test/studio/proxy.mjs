// proxy.mjs: stands before a server, on the same kind of address, and answers some requests itself: streams that no model
// here would write, connections that break. It keeps what was asked for, and which of it no page of its own asked for:
// browsers name the relation of the asking origin in Sec-Fetch-Site, which scripts cannot set.
import { createServer, request } from "node:http";

// own(req, res, forward): true if it has answered. `down` true: connections are closed unanswered.
export async function proxy(url, own = () => false) {
    const to = new URL(url);
    const p = { down: false, url: "", seen: [], foreign: [] };
    const forward = (req, res, each = (chunk) => res.write(chunk)) => new Promise((ok) => {
        const out = request({ host: to.hostname, port: to.port, method: req.method, path: req.url, headers: req.headers }, (back) => {
            res.writeHead(back.statusCode, back.headers);
            back.on("data", each);
            back.on("end", () => {
                res.end();
                ok();
            });
            back.on("error", () => ok(res.destroy()));
        });
        out.on("error", () => ok(res.destroy()));
        res.on("close", () => out.destroy());
        req.pipe(out);
    });
    const server = createServer((req, res) => {
        if (p.down) return req.socket.destroy();
        const what = `${req.method} ${req.url}`;
        p.seen.push(what);
        const site = req.headers["sec-fetch-site"];
        if (site && site !== "same-origin" && site !== "none") p.foreign.push(`${what} (${site})`);
        if (!own(req, res, forward)) void forward(req, res);
    });
    await new Promise((ok) => server.listen(0, "127.0.0.1", ok));
    p.url = `http://127.0.0.1:${server.address().port}`;
    p.stop = () => new Promise((ok) => {
        server.closeAllConnections();
        server.close(ok);
    });
    return p;
}

export const frame = (delta, more) => `data: ${JSON.stringify({ choices: [{ index: 0, delta }], ...more })}\n\n`;
export const last = `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }], usage: { prompt_tokens: 1, completion_tokens: 1 } })}\n\ndata: [DONE]\n\n`;
export function begin(res, headers) {
    res.writeHead(200, { "content-type": "text/event-stream", "x-request-id": "req_none", ...headers });
}
