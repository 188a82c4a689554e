#!/usr/bin/env bash
# chimere key: keys in the server's folder, their limits, and a server that runs meanwhile.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl

pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null; wait; rm -rf "$work"' EXIT
start() {
    : >served
    "$CHIMERE" serve --port 0 -q --ctx 256 --no-odo --state-dir kept "$@" >served 2>log &
    pid=$!
    for _ in $(seq 2400); do grep -q 'http://' served && break || sleep 0.05; done
    url=$(grep -om1 'http://[^ ]*' served | head -1); [ -n "$url" ] || fail "the server does not start: $(cat log)"
}
stop() {
    kill "$pid"
    wait "$pid" || true
    pid=
}
status() { curl -sS -m 300 -D head -o body -w '%{http_code}' ${1:+-H "Authorization: Bearer $1"} "$url/v1/models"; }
# turns STATUS [KEY]: the server runs on; what changes holds within a second, here within many.
turns() {
    local got i
    for i in $(seq 1200); do
        got=$(status "${2:-}")
        [ "$got" != "$1" ] || return 0
        sleep 0.1
    done
    fail "expected $1, got $got after $i tries: $(cat body log)"
}
key() { "$CHIMERE" key "$@" --state-dir kept 2>said; }

start
[ "$(status)" = 200 ] || fail "keys are asked for where there are none: $(cat body)"
alice=$(key add alice) bob=$(key add bob --per-minute 2 --tokens-per-day 30 --active 7)
[ "${#alice}" -ge 64 ] && [ "$alice" != "$bob" ] || fail "weak keys: $alice $bob"
turns 401
[ "$(status "$alice")" = 200 ] || fail "a new key is refused: $(cat body)"
[ "$(status "${alice}x")" = 401 ] || fail "a wrong key is taken"
[ "$(status "${alice%?}")" = 401 ] || fail "a part of a key is taken"
# two a minute
turns 200 "$bob"
[ "$(status "$bob")" = 200 ] || fail "the second request: $(cat body)"
[ "$(status "$bob")" = 429 ] || fail "the third request is answered"
grep -qi '^retry-after: [0-9]' head || fail "no Retry-After: $(cat head)"
# limits of a key that is in use
key limit bob --per-minute 0
turns 200 "$bob"
ask() { curl -sS -m 300 -o body -w '%{http_code}' -H "x-api-key: $1" "$url/v1/completions" -d '{"prompt":"One, two,","max_tokens":30,"ignore_eos":true}'; }
[ "$(ask "$bob")" = 200 ] || fail "$(cat body)"
[ "$(ask "$bob")" = 429 ] || fail "more tokens than its key may use: $(cat body)"
grep -q 'tokens per day' body || fail "$(cat body)"
[ "$(ask "$alice")" = 200 ] || fail "another key is held to bob's limit: $(cat body)"
key list >listed
grep -Eq '^bob +valid .* 7 +0 +30 +3[0-9]$' listed || fail "list: $(cat listed)"
grep -Eq '^alice +valid .* - +0 +0 +0 ' listed || fail "list: $(cat listed)"
[ -z "$(grep -rlF -e "$alice" -e "$bob" kept served log)" ] || fail "a secret was written down"
# roles
metrics() { curl -sS -m 300 -o body -w '%{http_code}' -H "x-api-key: $1" "$url/metrics"; }
root=$(key add root --role admin)
turns 200 "$root"
[ "$(metrics "$root")" = 200 ] || fail "an administrator's key: $(cat body)"
[ "$(metrics "$alice")" = 403 ] || fail "everybody reads everybody's metrics"
grep -q 'administrator' body || fail "$(cat body)"
key limit alice --role admin
for _ in $(seq 600); do [ "$(metrics "$alice")" = 403 ] || break; sleep 0.1; done
[ "$(metrics "$alice")" = 200 ] || fail "the new role has no effect: $(cat body)"
key limit alice --role user
key remove root
identity() { key list | awk -v n="$1" '$1 == n { print $4 }'; }
was=$(identity alice)
# names
refuses 2 "a key of that name exists" "$CHIMERE" key add alice --state-dir kept
refuses 1 "not found" "$CHIMERE" key remove nobody --state-dir kept
refuses 1 "not found" "$CHIMERE" key limit nobody --state-dir kept
refuses 2 "state-dir" "$CHIMERE" key list
refuses 2 "expected add" "$CHIMERE" key --state-dir kept
refuses 2 "without blanks" "$CHIMERE" key add "a b" --state-dir kept
# removed, and given out anew
key remove alice
turns 401 "$alice"
second=$(key add alice)
turns 200 "$second"
[ "$(status "$alice")" = 401 ] || fail "the removed key of that name came back"
[ "$(identity alice)" != "$was" ] || fail "a new key inherits what was kept for another of its name"
stop
# another start knows them, and what was used today
start
[ "$(status)" = 401 ] && [ "$(status "$second")" = 200 ] || fail "a restart forgets keys"
[ "$(ask "$bob")" = 429 ] || fail "a restart forgets what was used: $(cat body)"
key remove alice
key remove bob
turns 401 "$second"
[ "$(status)" = 401 ] || fail "without a valid key the server is open"
stop
# a key file beside the store; and neither
echo 'key-of-a-file carol' >file
start --api-key file
[ "$(status key-of-a-file)" = 200 ] || fail "$(cat body)"
dave=$(key add dave --days 1)
turns 200 "$dave"
stop
start --no-keys
[ "$(status)" = 200 ] || fail "--no-keys asks for keys"
stop
echo "key: ok"
