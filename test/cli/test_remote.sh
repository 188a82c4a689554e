#!/usr/bin/env bash
# chat --url and bench --url against a server of ours: the same answers, figures that add up, clear errors.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

printf 'open-sesame tester\n' >keys
"$CHIMERE" serve --port 0 -q --api-key keys >served 2>&1 &
pid=$!
trap 'kill $pid 2>/dev/null || true; wait; rm -rf "$work"' EXIT
for _ in $(seq 2400); do grep -q 'http://' served && break || sleep 0.05; done
[ -s served ] || fail "the server does not start"
url=$(grep -o 'http://[^ ]*' served | head -1)
talk() { printf 'What is 12 plus 30?\nWho are you?\n' | "$CHIMERE" chat --temp 0 -n 60 "$@"; }

talk -q >here
CHIMERE_URL_KEY=open-sesame talk --url "$url" >there || fail "chat --url: $(cat there)"
cmp here there || fail "the server answers otherwise: $(cat there)"
grep -q 42 there || fail "$(cat there)"
CHIMERE_URL_KEY=open-sesame talk --url "$url/v1/" --url-model chimere-nano >named
cmp here named || fail "named model: $(cat named)"

refuses 1 "$url/v1/models: the server answered 401" "$CHIMERE" chat --url "$url" </dev/null
refuses 1 "127.0.0.1:9/v1/models" "$CHIMERE" chat --url http://127.0.0.1:9 </dev/null
refuses 2 "expected http://" "$CHIMERE" chat --url ftp://x </dev/null
export CHIMERE_URL_KEY=open-sesame
echo hi | refuses 1 "no-such" "$CHIMERE" chat --url "$url" --url-model no-such
"$CHIMERE" doctor | grep 'url-key' | grep open-sesame >/dev/null && fail "doctor shows the key"

"$CHIMERE" bench --url "$url" -p 16 -n 8 --concurrency 1,3 --requests 5 --json >figures
[ "$(grep -c '"requests": 5' figures)" = 2 ] || fail "requests: $(cat figures)"
[ "$(grep -c '"failed": 0' figures)" = 2 ] || fail "failed: $(cat figures)"
[ "$(grep -c '"tokens": 40' figures)" = 2 ] || fail "the end of text was not ignored: $(cat figures)"
grep -q '"ttft_ms_p50"' figures && grep -q '"gap_ms_p99"' figures || fail "$(cat figures)"
"$CHIMERE" bench --url "$url" -p 16 -n 4 --concurrency 4 --requests 8 --rate 40 >table
awk '$1 == 4 { ok = $2 == 8 && $3 == 0 && $4 > 0 } END { exit !ok }' table || fail "rate: $(cat table)"
refuses 2 "--concurrency" "$CHIMERE" bench --url "$url" --concurrency 0
refuses 1 "no-such" "$CHIMERE" bench --url "$url" --url-model no-such -p 4 -n 4
echo "remote: ok"
