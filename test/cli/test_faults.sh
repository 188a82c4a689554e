#!/usr/bin/env bash
# Faults of the machine around the program: standard output that cannot be written, backends that are not
# there, few file descriptors, keys that others may read, clients that leave the queue.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl node

pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null; wait; rm -rf "$work"' EXIT
start() {
    : >served
    "$CHIMERE" "$@" >served 2>log &
    pid=$!
    for _ in $(seq 400); do grep -q 'http://' served && break || sleep 0.05; done
    url=$(grep -om1 'http://[^ ]*' served | head -1); [ -n "$url" ] || fail "no server: $(cat log)"
}
stop() {
    kill "$pid"
    wait "$pid" || true
    pid=
}
chat='{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2}'

# what could not be written is an error
for command in "--help" "--version" "serve --help" "grammar --help"; do
    status=0
    # shellcheck disable=SC2086
    "$CHIMERE" $command >/dev/full 2>err || status=$?
    [ "$status" = 1 ] || fail "$command >/dev/full: status $status"
    grep -q 'standard output' err || fail "$command: $(cat err)"
done

# a backend that is not there, in front of it an orchestrator
start odo --backend http://127.0.0.1:9 --port 0 --db front.db
[ "$(curl -sS -o body -w '%{http_code}' "$url/v1/chat/completions" -d "$chat")" = 502 ] ||
    fail "no backend: $(cat body log)"
grep -q '127.0.0.1:9' body || fail "the backend's address is not named: $(cat body)"
stop

# few descriptors, an open key file
echo 'a-key-of-the-test me' >keys
chmod 644 keys

: >served
(ulimit -n 200 && exec "$CHIMERE" serve --port 0 -q --ctx 256 --no-odo --api-key keys >served 2>log) &
pid=$!
for _ in $(seq 400); do grep -q 'http://' served && break || sleep 0.05; done
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
