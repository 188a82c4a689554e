#!/usr/bin/env bash
# night_learn: serve --learn keeps answers of who agreed, without secrets and tainted text; nothing without it.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 curl

trap 'stop_server; rm -rf "$work"' EXIT
start() {
    : >said
    start_server --db day.db --no-odo "$@"
}
# ask KEY JSON: prints the answer's id
ask() {
    curl -sf -m 120 "$url/v1/chat/completions" ${1:+-H "Authorization: Bearer $1"} -d "{\"temperature\":0,\"max_tokens\":200,$2}" >answer ||
        fail "ask: $(cat answer)"
    python3 -c 'import json; t = open("answer").read(); print(json.loads(t[6:].split("\n")[0] if t.startswith("data: ") else t)["id"])'
}
user() { printf '"messages":[{"role":"user","content":"%s"}]' "$1"; }
rows() { python3 -c 'import sqlite3; print(sqlite3.connect("day.db").execute("SELECT count(*) FROM quality").fetchone()[0])'; }
# rate KEY ID SCORE: the row is written a moment after the answer
rate() {
    for ((i = 0; i < 600; i++)); do
        curl -s -m 300 "$url/v1/feedback" ${1:+-H "Authorization: Bearer $1"} -d "{\"answer\":\"$2\",\"score\":$3}" >rated
        ! grep -q '"object":"feedback"' rated || return 0
        sleep 0.2
    done
    fail "the answer $2 was not kept: $(cat rated)"
}

"$CHIMERE" odo log --db day.db >/dev/null # makes the store
start
ask "" "$(user 'Who wrote Hamlet and when?')" >/dev/null
curl -s -m 300 "$url/v1/feedback" -d '{"answer":"chatcmpl-1","score":5}' | grep 'keeps no answers' >/dev/null || fail "feedback without --learn"
stop_server
[ "$(rows)" = 0 ] || fail "kept without --learn: $(rows)"

printf 'secret-of-ann ann\nsecret-of-bob bob\n' >keys
chmod 600 keys
start --learn ann --api-key keys
ask secret-of-bob "$(user 'Who is the king of the hill?')" >/dev/null # did not agree
# none of these is a question that alone explains its answer
ask secret-of-ann '"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Tell me about bread."}]' >/dev/null
ask secret-of-ann '"messages":[{"role":"user","content":"Hello."},{"role":"assistant","content":"Hello."},{"role":"user","content":"Tell me about bread."}]' >/dev/null
ask secret-of-ann "$(user 'Tell me about wine.'),\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}]" >/dev/null
ask secret-of-ann "$(user 'Tell me about JSON.'),\"response_format\":{\"type\":\"json_object\"}" >/dev/null
# one word each, so that the answer ends whatever it is
first=$(ask secret-of-ann "$(user 'Who are you? Write to ann.lee@example.org about card 4111 1111 1111 1111.'),\"stop\":[\" \"]")
rate secret-of-ann "$first" 5
second=$(ask secret-of-ann "$(user 'Explain in one sentence why the sky is blue.'),\"stream\":true,\"stop\":[\" \"]")
rate secret-of-ann "$second" 1
curl -sf -m 300 -H 'Authorization: Bearer secret-of-ann' "$url/v1/feedback" -d "{\"answer\":\"$second\",\"correction\":\"Air scatters blue light, says ann.lee@example.org.\"}" >corrected ||
    fail "correction: $(cat corrected)"
stop_server
python3 - "$first" "$second" <<'PY'
import sqlite3, sys
rows = sqlite3.connect("day.db").execute("SELECT name, question, answer, feedback, owner, origin, parent, id FROM quality ORDER BY id").fetchall()
fixed = rows.pop()
assert fixed[0] is None and fixed[1] == rows[1][1] and fixed[2] == "Air scatters blue light, says [mail]." and fixed[3] == 5, fixed
assert fixed[4] == rows[1][4] and fixed[5:7] == ("correction", rows[1][7]), fixed
assert [r[0] for r in rows] == sys.argv[1:], rows
assert rows[0][1] == "Who are you? Write to [mail] about card [card].", rows[0]
assert [r[3] for r in rows] == [5, 1] and all(r[2] for r in rows) and len({r[4] for r in rows}) == 1 and rows[0][4].startswith("key-"), rows
PY
