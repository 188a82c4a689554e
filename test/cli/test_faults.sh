#!/usr/bin/env bash
# Faults of the machine around the program: standard output that cannot be written, backends that are not
# there, few file descriptors, keys that others may read, clients that leave the queue.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl node

pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null; exec 9>&-; wait; rm -rf "$work"' EXIT
start() {
    : >served
    "$CHIMERE" "$@" >served 2>log &
    pid=$!
    for _ in $(seq 2400); do grep -q 'http://' served && break || sleep 0.05; done
    url=$(grep -om1 'http://[^ ]*' served | head -1); [ -n "$url" ] || fail "no server: $(cat log)"
}
stop() {
    kill "$pid"
    wait "$pid" || true
    pid=
}
chat='{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2}'

# what could not be written is an error, in every command that prints; a closed stream is not given to a file
"$CHIMERE" synth qwen35moe-mini q8 m.gguf --layers 4 --experts 4 --vocab 512 >/dev/null
for i in $(seq 40); do echo "The $i cats sat on $((i * 7)) mats."; done >text
echo 'root ::= "a"' >g.gbnf
mkdir docs
cp text docs/
"$CHIMERE" key add someone --state-dir keys-dir >/dev/null 2>&1
for command in $("$CHIMERE" help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do echo "$command --help"; done >commands
cat >>commands <<'END'
--help
--version
help --man run
help --http
completion bash
run -m nano -q -n 2 Hi
run -m nano -q -n 2 --json Hi
inspect m.gguf
inspect m.gguf --json
doctor
perplexity -m nano -f text --ctx 64
cost
recommend
key list --state-dir keys-dir
store check keys-dir/chimere.db
odo explain two+two
odo index docs --db index.db
night status --night-dir nights
quantize m.gguf q.gguf Q4_0
imatrix -m m.gguf -f text -o m.imatrix --ctx 64 --chunks 1 -q
dump m.gguf token_embd.weight
bench -m m.gguf -p 8 -n 2 -r 1
END
while read -r command; do
    # shellcheck disable=SC2086
    "$CHIMERE" $command >out 2>err </dev/null || fail "$command: $(cat err)"
    [ -s out ] || fail "$command: prints nothing"
    for how in full closed; do
        status=0
        # shellcheck disable=SC2086
        if [ $how = full ]; then "$CHIMERE" $command >/dev/full 2>err </dev/null || status=$?
        else "$CHIMERE" $command >&- 2>err </dev/null || status=$?; fi
        [ "$status" = 1 ] || fail "$command, standard output $how: status $status: $(cat err)"
        grep -q 'standard output' err || fail "$command, standard output $how: $(cat err)"
    done
done <commands
[ "$("$CHIMERE" inspect q.gguf --json | head -c 1)" = '{' ] || fail "a file was written over"

# a backend that is not there, in front of it an orchestrator
start odo --backend http://127.0.0.1:9 --port 0 --db front.db
[ "$(curl -sS -o body -w '%{http_code}' "$url/v1/chat/completions" -d "$chat")" = 502 ] ||
    fail "no backend: $(cat body log)"
grep -q '127.0.0.1:9' body || fail "the backend's address is not named: $(cat body)"
stop

# backends that flood, never end a line, call 3,000 tools, stop in the middle or answer what is no answer
cat >backend.mjs <<'END'
import { createServer } from 'node:http';
const frame = (delta, end) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: end ?? null }] })}\n\n`;
const endless = (res, text) => {
    const more = () => { while (!res.destroyed && res.write(text)); };
    res.on('drain', more);
    res.on('error', () => {});
    more();
};
const modes = {
    FLOOD: (res) => endless(res, frame({ content: 'x'.repeat(100000) })),
    LINE: (res) => endless(res, 'y'.repeat(100000)),
    CALLS: (res) => {
        for (let i = 0; i < 3000; i++)
            res.write(frame({ tool_calls: [{ index: i, id: `c${i}`, function: { name: 'calculator', arguments: '{}' } }] }));
        res.end();
    },
    CUT: (res) => res.end(frame({ content: 'half' })),
    TYPES: (res) => res.end('data: {"choices":{"0":1}}\n\ndata: {"choices":[[1]]}\n\ndata: {"error":"no"}\n\n'),
};
const server = createServer((req, res) => {
    let body = '';
    req.on('data', (d) => (body += d));
    req.on('end', () => {
        res.writeHead(200, { 'content-type': 'text/event-stream' });
        modes[Object.keys(modes).find((m) => body.includes(m)) ?? 'CUT'](res);
    });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
END
exec 9> >(exec node backend.mjs >port)
for _ in $(seq 2400); do [ -s port ] || sleep 0.05; done
start odo --backend "http://127.0.0.1:$(cat port)" --port 0 --db hostile.db
for mode in FLOOD LINE CALLS CUT TYPES; do
    status=$(curl -sS -m 120 -o body -w '%{http_code}' "$url/v1/chat/completions" -d "${chat/Hi/$mode}")
    [ "$status" = 502 ] || fail "$mode: $status $(cat body)"
done
stop
exec 9>&-

# few descriptors, an open key file
echo 'a-key-of-the-test me' >keys
chmod 644 keys

: >served
(ulimit -n 200 && exec "$CHIMERE" serve --port 0 -q --ctx 256 --no-odo --api-key keys >served 2>log) &
pid=$!
for _ in $(seq 2400); do grep -q 'http://' served && break || sleep 0.05; done
grep -q '200 file descriptors are allowed' log || fail "descriptors: $(cat log)"
grep -q 'keys: others on this machine may read it (mode 644)' log || fail "modes: $(cat log)"
stop
chmod 600 keys
start serve --port 0 -q --ctx 256 --no-odo --api-key keys
! grep -q 'may read it' log || fail "a private file: $(cat log)"
stop

# one line per request, as text or as JSON; none unless it is asked for
start serve --port 0 -q --ctx 256 --no-odo
curl -sS -o body "$url/health"
stop
! grep -q health log || fail "reported without being asked: $(cat log)"
start serve --port 0 -q --ctx 256 --no-odo --verbose
curl -sS -o body "$url/health"
curl -sS -o body "$url/v1/chat/completions" -d "$chat"
curl -sS -o body "$url/v1/chat/completions" -d "${chat%\}},\"stream\":true}"
curl -sS -o body --path-as-is "$url/no%22such%0apath"
stop
[ "$(grep -c 'info: GET /health 200 [0-9.]* ms req_[0-9a-f]* 127.0.0.1$' log)" = 1 ] || fail "$(cat log)"
[ "$(grep -c 'info: POST /v1/chat/completions 200 ' log)" = 2 ] || fail "$(cat log)"
[ "$(grep -c 'info: GET /no?such?path 404 ' log)" = 1 ] || fail "$(cat log)"
start serve --port 0 -q --ctx 256 --no-odo --log-level info --log-json
curl -sS -o body "$url/health"
curl -sS -o body --path-as-is "$url/no%22such%0apath"
stop
node -e 'const l = require("fs").readFileSync("log", "utf8").trim().split("\n").map(JSON.parse);
    const g = l.filter((x) => x.path === "/health");
    if (g.length !== 1 || g[0].status !== 200 || g[0].level !== "info" || isNaN(Date.parse(g[0].time)) || !g[0].request)
        throw new Error(JSON.stringify(l));' || fail "JSON lines: $(cat log)"
echo "faults: ok"
