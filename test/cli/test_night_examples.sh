#!/usr/bin/env bash
# night_examples: examples that help held-out answers are promoted, and a server shows them before similar questions.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 curl

trap 'stop_server; rm -rf "$work"' EXIT
night() { "$CHIMERE" night "$@" --night-dir nights; }
# prompt_tokens MESSAGES: how many tokens the prompt of an answer had.
prompt_tokens() {
    curl -sf -m 120 "$url/v1/chat/completions" -d "{\"max_tokens\":4,\"messages\":$1}" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["usage"]["prompt_tokens"])'
}

long_day
python3 - <<'PY'
import sqlite3
db = sqlite3.connect("day.db")
db.execute("UPDATE quality SET at_ms = 1764288000000 + id")  # which questions are held out depends on the quarter
db.commit()
PY
night run -m nano --db day.db -q -n 1 --steps examples >ran
grep -q 'examples .*promoted: ' ran || fail "night: $(cat ran)"
python3 - <<'PY'
import json, sqlite3
day = dict(sqlite3.connect("day.db").execute("SELECT question, answer FROM quality"))
kept = json.load(open("nights/live/examples.json"))["examples"]
assert 1 <= len(kept) <= 40, len(kept)
assert all(day[x["question"]] == x["answer"] for x in kept), kept
PY
# the same night again proposes the same bytes
cp nights/live/examples.json first
night rollback 0 >/dev/null
night run -m nano --db day.db -q -n 1 --steps examples >/dev/null
cmp nights/live/examples.json first || fail "the same seed gave other examples"

similar='[{"role":"user","content":"In which town is the house of Kolvik?"}]'
other='[{"role":"user","content":"Zzz qqq"}]'
own='[{"role":"system","content":"."},{"role":"user","content":"In which town is the house of Kolvik?"}]'
night schedule examples=off >/dev/null
start_server --db day.db --no-odo --night --night-dir nights --night-items 1
with=$(prompt_tokens "$similar") unlike=$(prompt_tokens "$other") with_own=$(prompt_tokens "$own")
night rollback 0 >/dev/null
# a rollback reaches the server within a second or so
for ((i = 0; i < 600; i++)); do
    without=$(prompt_tokens "$similar")
    [ "$without" = "$with" ] || break
    sleep 0.2
done
[ "$with" -gt $((without + 12)) ] || fail "examples are not shown: $with tokens, $without without a night"
[ "$(prompt_tokens "$other")" = "$unlike" ] || fail "examples that share no word are shown"
[ "$(prompt_tokens "$own")" = "$with_own" ] || fail "examples are shown to a request with a system message"
