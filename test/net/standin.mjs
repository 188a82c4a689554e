// standin.mjs [FOLDER]: an HTTP server on loopback for the tests of src/net: honest, slow, lying or endless,
// by path. Prints its port and one that speaks TLS with a certificate nobody vouches for; ends when its standard input closes. /sha/N tells the SHA-256 that /bytes/N has.
//
// FOLDER/OWNER/REPO/... is served as a model hub: /api/models/OWNER/REPO/revision/main and
// /OWNER/REPO/resolve/REVISION/FILE, the latter by a redirect to another host name, as the real one does.
import { createHash } from "node:crypto";
import { createReadStream, existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSecure } from "node:https";
import { join } from "node:path";

const folder = process.argv[2];
const counts = new Map(); // requests by path
const seen = []; // method, path, range and authorization of each request
const count = (key) => counts.set(key, (counts.get(key) ?? 0) + 1).get(key);

let longest = Buffer.alloc(0);
function pattern(n) {
    if (n > longest.length) {
        longest = Buffer.alloc(n);
        for (let i = 0; i < n; i++) longest[i] = (i * 7 + (i >> 8) * 13) & 255;
    }
    return longest.subarray(0, n);
}

function rangeOf(req, n) {
    const m = /^bytes=(\d+)-(\d*)$/.exec(req.headers.range ?? "");
    if (!m) return null;
    return { from: Number(m[1]), to: m[2] ? Math.min(Number(m[2]), n - 1) : n - 1 };
}

function sendBytes(req, res, n, how = "") {
    const r = how === "norange" ? null : rangeOf(req, n);
    const body = pattern(n).subarray(r?.from ?? 0, (r?.to ?? n - 1) + 1);
    const head = { "content-type": "application/octet-stream", "content-length": body.length };
    if (r) head["content-range"] = `bytes ${r.from + (how === "wrongrange" ? 1 : 0)}-${r.to}/${n}`;
    if (how === "longrange") {
        delete head["content-length"]; // chunked, and more than was asked for
        res.writeHead(r ? 206 : 200, head);
        return res.end(Buffer.concat([body, Buffer.alloc(1 << 16)]));
    }
    if (how === "cut" && body.length > 100000) { // the connection breaks before the end
        res.writeHead(r ? 206 : 200, head);
        return res.write(body.subarray(0, Math.max(100000, body.length / 2)),
            () => setTimeout(() => res.destroy(), 10));
    }
    if (how === "slow") {
        res.writeHead(r ? 206 : 200, head);
        let at = 0;
        const more = () => {
            if (at >= body.length) return res.end();
            res.write(body.subarray(at, (at += 65536)));
            setTimeout(more, 40);
        };
        return more();
    }
    res.writeHead(r ? 206 : 200, head);
    res.end(body);
}

const behaviours = {
    bytes: (req, res, n) => sendBytes(req, res, Number(n)),
    norange: (req, res, n) => sendBytes(req, res, Number(n), "norange"),
    wrongrange: (req, res, n) => sendBytes(req, res, Number(n), "wrongrange"),
    longrange: (req, res, n) => sendBytes(req, res, Number(n), "longrange"),
    cut: (req, res, n) => sendBytes(req, res, Number(n), "cut"),
    slow: (req, res, n) => sendBytes(req, res, Number(n), "slow"),
    sha: (req, res, n) => res.end(createHash("sha256").update(pattern(Number(n))).digest("hex")),
    endless(req, res, status) {
        res.writeHead(Number(status));
        const more = () => { while (!res.destroyed && res.write("x".repeat(65536))); };
        res.on("drain", more);
        more();
    },
    drip(req, res) {
        res.writeHead(200);
        const timer = setInterval(() => res.write("."), 50);
        res.on("close", () => clearInterval(timer));
    },
    silent() {},
    heads(req, res) {
        res.socket.write("HTTP/1.1 200 OK\r\n");
        const more = () => { while (!res.socket.destroyed && res.socket.write(`a: ${"y".repeat(900)}\r\n`)); };
        res.socket.on("drain", more);
        more();
    },
    loop: (req, res) => res.writeHead(302, { location: req.url }).end(),
    hop(req, res, n) {
        res.writeHead(302, { location: Number(n) ? `/hop/${Number(n) - 1}` : "/echo" }).end("moved");
    },
    away: (req, res) => res.writeHead(302, { location: decodeURIComponent(req.url.split("?to=")[1]) }).end(),
    echo(req, res) {
        const parts = [];
        req.on("data", (d) => parts.push(d));
        req.on("end", () => {
            res.writeHead(200, { "content-type": "Application/JSON; charset=utf-8" });
            res.end(JSON.stringify({ method: req.method, url: req.url, headers: req.headers,
                body: Buffer.concat(parts).toString("latin1") }));
        });
    },
    status(req, res, code) {
        res.writeHead(Number(code), { "retry-after": "7", "content-type": "application/json" });
        res.end(`{"error": {"message": "told you ${code}"}}`);
    },
    flaky(req, res, n) { // the first two requests of an address fail
        if (count(req.url) <= 2) return res.writeHead(503).end();
        sendBytes(req, res, Number(n));
    },
    seen: (req, res) => res.end(JSON.stringify(seen)),
    stop: () => process.exit(0),
    sse(req, res) {
        res.writeHead(200, { "content-type": "text/event-stream" });
        const text = "data: one\n\ndata: two\r\ndata: lines\r\n\r\nevent: end\ndata: [DONE]\n\n";
        let i = 0;
        const timer = setInterval(() => {
            if (i === text.length) return clearInterval(timer), res.end();
            res.write(text.slice(i, (i += Math.min(5, text.length - i))));
        }, 5);
    },
};

function tree(at, under = "") {
    return readdirSync(at, { withFileTypes: true }).flatMap((d) =>
        d.isDirectory() ? tree(join(at, d.name), `${under}${d.name}/`) : [`${under}${d.name}`]);
}

// Listings that no honest hub would send, by repository of the owner "evil".
const evil = {
    paths: [{ rfilename: "../../../evil-Q4_K_M.gguf" }, { rfilename: "/evil-Q5_K_M.gguf" },
        { rfilename: "a/../../evil-Q6_K.gguf" }, { rfilename: ".evil-Q8_0.gguf" },
        { rfilename: "back\\slash-Q3_K_M.gguf" }, { rfilename: "new\nline-Q2_K.gguf" }],
    hash: [{ rfilename: "model-Q4_K_M.gguf", size: 1000, lfs: { sha256: "0".repeat(64), size: 1000 } }],
    huge: [{ rfilename: "model-Q4_K_M.gguf", size: 2 ** 60, lfs: { sha256: "0".repeat(64), size: 2 ** 60 } }],
    negative: [{ rfilename: "model-Q4_K_M.gguf", size: -5, lfs: { sha256: "0".repeat(64), size: -5 } }],
    sha: [{ rfilename: "model-Q4_K_M.gguf", size: 10, lfs: { sha256: "../../x", size: 10 } }],
    parts: [{ rfilename: "m-Q4_K_M-00001-of-00003.gguf", size: 5 }, { rfilename: "m-Q4_K_M-00003-of-00003.gguf", size: 5 }],
    many: Array.from({ length: 200000 }, (_, i) => ({ rfilename: `f${i}.txt`, size: 1 })),
};

function hub(req, res, path) {
    let m = /^\/api\/models\/([^/]+\/[^/]+)\/revision\/main$/.exec(path);
    if (m) {
        if (m[1].startsWith("evil/")) return res.end(JSON.stringify({ sha: "e".repeat(40), siblings: evil[m[1].slice(5)] }));
        if (m[1] === "gated/model" && req.headers.authorization !== "Bearer hf_secret")
            return res.writeHead(401, { "content-type": "application/json" }).end('{"error":"Access to model gated/model is restricted."}');
        const at = join(folder, m[1]);
        if (!existsSync(at)) return res.writeHead(404).end('{"error":"Repository not found"}');
        const siblings = tree(at).map((name) => {
            const data = readFileSync(join(at, name)), sha256 = createHash("sha256").update(data).digest("hex");
            return { rfilename: name, size: data.length,
                ...(name.endsWith(".gguf") && { lfs: { sha256, size: data.length, pointerSize: 130 } }) };
        });
        return res.end(JSON.stringify({ id: m[1], sha: "c".repeat(40), siblings }));
    }
    m = /^\/([^/]+\/[^/]+)\/resolve\/[0-9a-f]{40}\/(.+)$/.exec(path);
    if (m) {
        if (m[1].startsWith("evil/")) return sendBytes(req, res, 1000);
        return res.writeHead(302, { location: `http://localhost:${port}/cdn/${m[1]}/${m[2]}` }).end();
    }
    if (path.startsWith("/cdn/")) {
        const at = join(folder, decodeURIComponent(path.slice(5))), n = statSync(at).size, r = rangeOf(req, n);
        res.writeHead(r ? 206 : 200, { "content-length": r ? r.to - r.from + 1 : n,
            ...(r && { "content-range": `bytes ${r.from}-${r.to}/${n}` }) });
        return createReadStream(at, r ? { start: r.from, end: r.to } : {}).pipe(res);
    }
    res.writeHead(404).end('{"error":"no such thing"}');
}

// Signed by itself, for localhost, made for these tests.
const secret = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgVIoW/UeRHI+hszQC
B2KuZeNc5AEaU5WsA3rS1/NmKAyhRANCAASYPi+BAJLLfG5aQwckxllBM6h7zzgw
M3kaqVpjSyq04gJiCK0J7ckfErXJPw+JvaHTi91CnXfZd/ptM19cVPf0
-----END PRIVATE KEY-----`;
const certificate = `-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUFBYhG3ZzILLagW5TacXUve93j3swCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTIyMDgxM1oYDzIxMjYxMDI4
MjIwODEzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASYPi+BAJLLfG5aQwckxllBM6h7zzgwM3kaqVpjSyq04gJiCK0J7ckf
ErXJPw+JvaHTi91CnXfZd/ptM19cVPf0o28wbTAdBgNVHQ4EFgQUGcKiQ2NalH1j
JoOkByAXbuPsG9UwHwYDVR0jBBgwFoAUGcKiQ2NalH1jJoOkByAXbuPsG9UwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSQAwRgIhAMup266vnpwx/4qKlBDfKMKxC0EpMhIcn/P+hx4q0rtAAiEA
6gzkd+ULdgG/sxtkSTivPgQoMLX13kG1/i0owHeYGS4=
-----END CERTIFICATE-----`;

let port;
const server = createServer((req, res) => {
    const path = req.url.split("?")[0], [, name, arg] = path.split("/");
    if (name !== "seen") seen.push({ method: req.method, path, range: req.headers.range, authorization: req.headers.authorization, host: req.headers.host });
    res.on("error", () => {});
    if (behaviours[name]) return behaviours[name](req, res, arg);
    if (folder) return hub(req, res, decodeURIComponent(path));
    res.writeHead(404).end();
});
server.on("clientError", (_, socket) => socket.destroy());
server.listen(0, "127.0.0.1", () => {
    port = server.address().port;
    // "localhost" may mean ::1 first
    const six = createServer((req, res) => server.emit("request", req, res));
    const secure = createSecure({ key: secret, cert: certificate }, (req, res) => server.emit("request", req, res));
    const ready = () => secure.listen(0, "127.0.0.1", () => process.stdout.write(`${port} ${secure.address().port}\n`));
    six.on("error", ready);
    six.listen(port, "::1", ready);
});
process.stdin.on("end", () => process.exit(0)).resume();
