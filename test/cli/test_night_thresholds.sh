#!/usr/bin/env bash
# night_thresholds: limits of the orchestrator that decide better on scored answers are promoted and reach a server.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 curl

trap 'stop_server; rm -rf "$work"' EXIT
night() { "$CHIMERE" night "$@" --night-dir nights; }

"$CHIMERE" key add bob --state-dir kept >/dev/null 2>&1 # makes the store
mv kept/chimere.db day.db
# Users accept the answers to easy questions and reject those to questions of a difficulty that counts as easy too.
python3 - <<'PY'
import sqlite3
db = sqlite3.connect("day.db")
(key,) = db.execute("SELECT hash FROM api_keys").fetchone()
bob = "key-" + key[:8].hex()
names = [a + b for a in ("Mira", "Tolo", "Kesh", "Varn", "Ilo", "Brem", "Sul", "Otha", "Quen", "Rada", "Wes", "Yor") for b in ("na", "dor", "vik", "lis", "mar")]
rows = [(f"Where does {n} live?", f"{n} lives in Venn.", 5, "ann") for n in names]
rows += [(f"Why is the house of {n} in Venn and how did it get there?", "I do not know.", 1, bob) for n in names]
for k, (q, a, rating, owner) in enumerate(rows):
    db.execute("INSERT INTO quality(at_ms, parent, name, route, model, origin, question, answer, judge, feedback, owner)"
               " VALUES(?, 0, ?, 'default', 'nano', 'answer', ?, ?, '', ?, ?)", (1764288000000 + k, f"a{k}", q, a, rating, owner))
db.commit()
PY
run=(run -m nano --db day.db -q -n 1 --steps thresholds)
night "${run[@]}" --dry-run >dry
grep -q 'thresholds promoted: ' dry || fail "dry run: $(cat dry)"
[ ! -e nights/live/limits.json ] || fail "a dry run changed what serves"
night "${run[@]}" >ran
grep -q 'wrong decisions per question on [0-9]* held-out answers' ran || fail "night: $(cat ran)"
if grep -q '  gate ' ran; then fail "the suites were answered for limits: $(cat ran)"; fi
night report --html page.html
grep -q 'wrong decisions per question' page.html || fail "page: $(head -c 900 page.html)"
python3 - <<'PY'
import json
f = json.load(open("nights/live/limits.json"))
l = f["limits"]
assert 0 < l["easy"] < 0.25 and l["easy"] <= l["hard"] and l["sure"] <= l["unsure"], l
assert f["route_of"] == 0.45, f
r = json.load(open("nights/nights/000001.json"))
assert len(r["owners"]["limits.json"]) == 2, r["owners"]  # bob's answers, all rejected, were read too
PY
# the same night again proposes the same bytes
cp nights/live/limits.json first
night rollback 0 >/dev/null
[ ! -e nights/live/limits.json ] || fail "rollback left the limits"
night "${run[@]}" >/dev/null
cmp nights/live/limits.json first || fail "the same seed gave other limits"

# a server decides with them, without a restart
mode() {
    curl -sf -m 120 "$url/chimere/v1/explain" -d '{"question":"Why is the house of Zorvik in Venn and how did it get there?"}' |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["mode"])'
}
wait_for_mode() {
    for ((i = 0; i < 600; i++)); do
        [ "$(mode)" != "$1" ] || return 0
        sleep 0.2
    done
    fail "$2: $(mode) instead of $1"
}
night schedule thresholds=off >/dev/null
start_server --db day.db --night --night-dir nights --night-items 1
wait_for_mode ultra "the limits of the night"
night rollback 0 >/dev/null
wait_for_mode fast "after a rollback"
night rollback 2 >/dev/null
wait_for_mode ultra "the night again"
cmp nights/live/limits.json first || fail "the rollback is not bit for bit"
stop_server

# a damaged file: the server starts, says so, and decides as without a night
object=nights/objects/$(sha256sum first | cut -d' ' -f1)
printf 'x' >"$object"
start_server --db day.db --night --night-dir nights --night-items 1
wait_for_mode fast "with damaged limits"
grep -q 'damaged' said || fail "a damaged file without a word: $(cat said)"
stop_server
cp first "$object"

# a night that is killed: the server starts with what was promoted last
"$CHIMERE" night "${run[@]}" --night-dir nights >/dev/null 2>&1 & # not night(): its shell would be killed instead
child=$!
for ((i = 0; i < 300; i++)); do
    [ ! -e nights/try ] || break
    sleep 0.02
done
kill -KILL "$child" 2>/dev/null || true
wait "$child" 2>/dev/null || true
start_server --db day.db --night --night-dir nights --night-items 1
wait_for_mode ultra "after a killed night"
stop_server

# who scored some of the answers may take the limits away
night forget --user bob --db day.db >/dev/null
[ ! -e nights/live/limits.json ] || fail "forget left the limits"
