#!/usr/bin/env bash
# The systemd unit and its drop-ins: how exposed each leaves the service, and that what the server calls while it
# answers, streams and runs code passes each filter of system calls.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs systemd-analyze curl node

deploy=$SOURCE_DIR/deploy
units=etc/systemd/system
mkdir -p "$units" usr/local/bin
cp "$deploy/chimere.service" "$units/"
# score DROP-IN...: the exposure of the unit with these, times ten.
score() {
    local d line
    rm -rf "$units/chimere.service.d"
    mkdir "$units/chimere.service.d"
    for d in "$@"; do cp "$deploy/drop-ins/$d.conf" "$units/chimere.service.d/"; done
    line=$(systemd-analyze security --offline=true --root="$work" chimere.service | tail -1)
    [[ $line =~ level\ for\ chimere.service:\ ([0-9]+)\.([0-9]) ]] || fail "no level: $line"
    echo $((10#${BASH_REMATCH[1]}${BASH_REMATCH[2]}))
}
[ "$(score)" -le 20 ] || fail "the unit: $(score)"
for d in network sandbox cuda; do
    [ "$(score $d)" -le 28 ] || fail "$d.conf: $(score $d)"
done

command -v strace >/dev/null && strace -qq -o traced true 2>/dev/null || {
    echo "skip: system calls of the unit: no strace, or it may not trace here"
    exit 0
}
# denied TRACE DROP-IN...: the traced calls that the filters of the unit with these drop-ins refuse.
cat >denied.js <<'END'
const fs = require("fs"), { execFileSync } = require("child_process");
const sets = {};
let set;
for (const line of execFileSync("systemd-analyze", ["syscall-filter", "--no-pager"], { encoding: "utf8" }).split("\n")) {
    if (/^@/.test(line)) set = sets[line.trim()] = [];
    else if (set && /^ +[@a-z0-9_-]+$/.test(line)) set.push(line.trim());
    else if (/^#/.test(line)) set = null;
}
const expand = (name) => (name[0] === "@" ? (sets[name] || []).flatMap(expand) : [name]);
let allowed = new Set(expand("@default"));
for (const file of process.argv.slice(3))
    for (const line of fs.readFileSync(file, "utf8").split("\n")) {
        const m = /^SystemCallFilter=(~?)(.*)$/.exec(line);
        if (!m) continue;
        const names = m[2].split(" ").filter(Boolean).flatMap(expand);
        for (const n of names) if (m[1]) allowed.delete(n); else allowed.add(n);
        for (const n of expand("@default")) allowed.add(n);
    }
const called = new Set([...fs.readFileSync(process.argv[2], "utf8").matchAll(/^\d+ +([a-z0-9_]+)\(.*(?:= (\S+)|\?|unfinished)/gm)]
    .filter((m) => !/^-1$/.test(m[2] || "")).map((m) => m[1]));
called.delete("fchown"); // of SQLite, as root alone
console.log([...called].filter((n) => !allowed.has(n)).join(" "));
END
denied() {
    local trace=$1 d files=("$deploy/chimere.service")
    shift
    for d in "$@"; do files+=("$deploy/drop-ins/$d.conf"); done
    node denied.js "$trace" "${files[@]}" 2>/dev/null
}
# traced TRACE OPTION...: starts a server; its calls go to the trace.
pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null; wait; rm -rf "$work"' EXIT
traced() {
    local trace=$1
    shift
    : >served
    strace -f -qq -s 0 --seccomp-bpf -o "$trace" "$CHIMERE" serve --port 0 -q --ctx 512 --state-dir kept --db kept/odo.db "$@" >served 2>log &
    pid=$!
    for _ in $(seq 600); do grep -q 'http://' served && break || sleep 0.1; done
    url=$(grep -om1 'http://[^ ]*' served | head -1); [ -n "$url" ] || fail "no server: $(cat log)"
}
stop() {
    # shellcheck disable=SC2046
    kill $(cat "/proc/$pid/task/$pid/children") # the server; strace ends with it
    wait "$pid" || true
    pid=
}
chat='{"messages":[{"role":"user","content":"Hi"}],"max_tokens":4}'
traced plain
curl -sS -m 300 -o body "$url/v1/chat/completions" -d "$chat"
grep -q '"choices"' body || fail "chat: $(cat body log)"
curl -sS -m 300 -o body "$url/v1/chat/completions" -d "${chat%\}},\"stream\":true}"
grep -q 'DONE' body || fail "stream: $(cat body log)"
stop
[ "$(grep -c . plain)" -gt 1000 ] || fail "nothing was traced"
for d in "" network cuda; do
    # shellcheck disable=SC2086
    [ -z "$(denied plain $d)" ] || fail "chat and stream need what the unit with '$d' refuses: $(denied plain $d)"
done

traced coded --run-code
json='content-type: application/json'
curl -sS -m 300 -D head -o body -H "$json" "$url/mcp" -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
session=$(sed -n 's/^[Mm]cp-[Ss]ession-[Ii]d: *\([^\r]*\).*/\1/p' head)
curl -sS -m 300 -o body -H "$json" -H "Mcp-Session-Id: $session" "$url/mcp" \
    -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_code","arguments":{"language":"shell","code":"echo $((6*7)) | cat"}}}'
stop
if grep -q 42 body; then
    [ -n "$(denied coded)" ] || fail "the unit alone lets run_code make namespaces: this test sees nothing"
    [ -z "$(denied coded sandbox)" ] || fail "run_code needs what sandbox.conf refuses: $(denied coded sandbox)"
else
    echo "skip: calls of run_code: no sandbox under strace here: $(head -c 300 body)"
fi
echo "hardening: ok"
