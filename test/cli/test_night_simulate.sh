#!/usr/bin/env bash
# night_simulate: a simulated night of 40 questions teaches an invented world; poisoned nights do not undo it.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

refuses 2 'expected --night-dir' "$CHIMERE" night simulate -m nano
week() { "$CHIMERE" night simulate -m nano -q --json --steps engram --suite-items 1 --all-items 1 "$@"; }
week --days 1 --questions 40 --feedback 1 --facts 20 --seed 4 --night-dir one >one.json
week --days 1 --questions 40 --feedback 1 --facts 20 --seed 4 --night-dir two >two.json
python3 - <<'PY'
import json
one, two = (json.load(open(f + ".json")) for f in ("one", "two"))
assert one["days"][1]["promoted"], one["days"][1]
total = one["exam"]["total"]
assert total["b"] >= total["a"] + 0.15, total  # points on facts, style and tool
assert one["ablation"]["engram"]["total"]["b"] > one["ablation"]["engram"]["total"]["a"] + 0.15, one["ablation"]
assert one["suites"]["total"]["n"] == 17 and one["n_down"] == 0, one["suites"]
for r in (one, two):
    for day in r["days"]:
        for step in day.get("steps", []):
            del step["seconds"]
assert one == two, "the same seed, another week"
PY
cmp one/nights/live/night.engram two/nights/live/night.engram || fail "the same seed, another table"
refuses 2 'expected a folder without a simulation' week --days 1 --night-dir one

# three poisoned nights, each beside a peaceful one with the same questions
attacked() { # NAME OPTION...
    local name=$1
    shift
    week --days 2 --questions 60 --feedback 1 --facts 16 --seed 6 --users 10 --wrong 0 --night-dir "$name" "$@" >"$name.json"
}
attacked peace
attacked documents --poison-from 2 --documents 20
attacked flattery --poison-from 2 --flattery 20
attacked hostile --poison-from 2 --hostile 0.3
attacked enemies --poison-from 2 --hostile 1
# nothing was learned from pasted documents and flattery: the same table, bit for bit
cmp peace/nights/live/night.engram documents/nights/live/night.engram || fail "pasted documents taught something"
cmp peace/nights/live/night.engram flattery/nights/live/night.engram || fail "flattery taught something"
python3 - <<'PY'
import json, sqlite3
for name in ("documents", "flattery"):
    (rows,) = sqlite3.connect(name + "/day.db").execute("SELECT count(*) FROM quality WHERE owner = 'key-attacker'").fetchone()
    suspect = json.load(open(name + ".json"))["days"][2]["read"]["suspect"]
    assert rows == 20 and suspect > 0, (name, rows, suspect)
peace, hostile, enemies = (json.load(open(f + ".json")) for f in ("peace", "hostile", "enemies"))
assert peace["exam"]["total"]["b"] > 0, peace["exam"]
assert hostile["exam"]["total"]["b"] >= peace["exam"]["total"]["b"] - 0.1, (peace["exam"], hostile["exam"])
# a day on which everybody lies is not learned: the exam stays as it was after the first day
night = json.load(open("enemies/nights/nights/000002.json"))
assert night["hostile"]["p"] < night["hostile"]["limit"] and len(night["hidden"]) == 1, night
for part in ("facts", "tool"):
    assert enemies["days"][2][part] >= enemies["days"][1][part] - 0.1, enemies["days"]
PY

# every second user of chimere-mini asks and is answered in French; an English model has no such users
refuses 2 'expected en or en,fr, got de' week --days 1 --languages de --night-dir german
"$CHIMERE" night simulate -m mini -q --json --days 1 --questions 16 --facts 6 --steps engram --suite-items 1 --all-items 1 --night-dir french >french.json
python3 - <<'PY'
import json, sqlite3
skills = {row["skill"] for row in json.load(open("french.json"))["exam"]["skills"]}
assert {"facts", "style", "style (French)"} <= skills, skills
assert not any("French" in row["skill"] for row in json.load(open("one.json"))["exam"]["skills"])
rows = sqlite3.connect("french/day.db").execute("SELECT question, owner FROM quality").fetchall()
assert rows and all(int(owner[-2:]) % 2 == question.endswith(" ?") for question, owner in rows), rows
PY
