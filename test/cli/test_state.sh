#!/usr/bin/env bash
# serve --state-dir: a conversation's next turn evaluates only what is new, also after a stop, and a
# server killed at any moment starts again.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl

pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null; wait; rm -rf "$work"' EXIT
start() {
    : >served
    "$CHIMERE" serve --port 0 -q --state-dir kept >served 2>log &
    pid=$!
    for _ in $(seq 2400); do grep -q 'http://' served && break || sleep 0.05; done
    url=$(grep -om1 'http://[^ ]*' served | head -1); [ -n "$url" ] || fail "the server does not start: $(cat log)"
}
stop() {
    kill "$1" "$pid"
    wait "$pid" || true
    pid=
}
# ask TURNS: how many prompt tokens were cached, and how many there were, of a talk of that many turns.
ask() {
    local messages='{"role":"system","content":"You are terse."}' i
    for i in $(seq "$1"); do
        messages+=',{"role":"user","content":"Tell me about number '$i', its divisors, its neighbours, the year of that name, and whether it is prime. Then add it to the numbers before it, and say how far they have come. Take your time and be exact."}'
        [ "$i" = "$1" ] || messages+=',{"role":"assistant","content":"The number '$i' is a fine number."}'
    done
    curl -sS -m 300 "$url/v1/chat/completions" -d '{"messages":['"$messages"'],"max_tokens":20,"temperature":0,"user":"u"}' >answer
    tr ',{}' '\n' <answer | sed -n 's/.*"cached_tokens": *\([0-9]*\).*/\1/p' | head -1
}
total() { tr ',{}' '\n' <answer | sed -n 's/.*"prompt_tokens": *\([0-9]*\).*/\1/p' | head -1; }

start
[ "$(ask 6)" = 0 ] || fail "cached before anything was asked: $(cat answer)"
first=$(total)
cached=$(ask 7)
[ "$cached" -ge $((first - 64 - 30)) ] || fail "turn 7: $cached of $(total) cached, after $first"
text=$(cat answer)
stop -TERM
if command -v sqlite3 >/dev/null; then
    rows=$(sqlite3 kept/chimere.db 'SELECT api, session, status, n_cached FROM requests')
    [ "$rows" = "/v1/chat/completions|127.0.0.1/u|200|0
/v1/chat/completions|127.0.0.1/u|200|$cached" ] || fail "recorded: $rows"
fi
[ -n "$(ls kept/states/*.seq 2>/dev/null)" ] || fail "nothing was saved: $(cat log)"
# files of a program under Wine have no modes
[ -n "${WINEPREFIX:-}" ] || [ -z "$(find kept -type f ! -perm 600)" ] || fail "others may read: $(ls -l kept kept/states)"

start
cached=$(ask 8)
[ "$cached" -ge "$first" ] || fail "after a restart: $cached of $(total) cached"
stop -KILL
for state in kept/states/*.seq; do printf x >>"$state"; done
start
[ "$(ask 7)" = 0 ] || fail "damaged states were used: $(cat answer)"
strip() { sed 's/"content": *"\([^"]*\)".*/\n\1/' | tail -1; }
[ -n "$(strip <answer)" ] || fail "no text: $(cat answer)"
[ "$(strip <answer)" = "$(strip <<<"$text")" ] || fail "another answer: $text $(cat answer)"
stop -KILL
head -c 3000 /dev/urandom >kept/chimere.db
rm -f kept/chimere.db-wal kept/chimere.db-shm
refuses 1 "chimere.db" "$CHIMERE" serve --port 0 -q --state-dir kept
echo "state: ok"
