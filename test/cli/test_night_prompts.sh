#!/usr/bin/env bash
# night_prompts: combinations of an instruction and demonstrations make held-out answers more probable; pipelines have
# rules of their own.
set -euo pipefail
pipelines=$(cd "$(dirname "$0")/../../pipelines" && pwd)
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 curl

long_day
python3 - <<'PY'
import sqlite3
db = sqlite3.connect("day.db")
db.execute("UPDATE quality SET at_ms = 1764288000000 + id")  # which questions are held out depends on the quarter
db.commit()
PY
night() { "$CHIMERE" night run -m nano --db day.db -q -n 1 --steps prompts --dry-run --json --night-dir nights "$@"; }
refuses 2 'expected gepa or mipro, got tpe' night --prompt-search tpe
refuses 2 'expected gepa or mipro, got tpe' "$CHIMERE" night simulate -m nano --night-dir week --prompt-search tpe
refuses 2 'expected gepa or mipro, got tpe' "$CHIMERE" serve -m nano --port 0 --db other.db --night --night-dir nights --night-prompt-search tpe
night --prompt-search mipro >mipro.json
python3 - <<'PY'
import json
(s,) = json.load(open("mipro.json"))["steps"]
assert s["name"] == "prompts" and s["target"]["n"] == 18, s
assert s["target"]["gain"] > 0 and s["target"]["p"] < 0.025, s["target"]
PY

# the answers of a pipeline teach rules of its own, after its prompt, with the calls and the tokens that the owner allows;
# the pipeline's file stays as its author wrote it
written() { cat "$pipelines"/*.yaml | sha256sum; }
before=$(written)
python3 - <<'PY'
import sqlite3
db = sqlite3.connect("day.db")
db.execute("UPDATE quality SET route = 'kine' WHERE id > 5")  # the other five are too few
db.commit()
PY
night --prompt-search mipro --prompt-calls 200 --prompt-tokens 40 >kine.json
python3 - <<'PY'
import json
(s,) = json.load(open("kine.json"))["steps"]
assert s["pipeline"] == "kine" and s["target"]["n"] in range(12, 19), s
assert 100 <= s["calls"] <= 200 and 1 <= s["tokens"] <= 40, s
PY
[ "$(written)" = "$before" ] || fail "a night wrote a pipeline's file"
refuses 2 'prompt-calls' night --prompt-calls 10

# a playbook with rules of a pipeline: a server uses them in that pipeline alone, and it is a program of DSPy
python3 - <<'PY'
import hashlib, json, os
model = json.load(open("kine.json"))["model_hash"]
book = json.dumps({"version": 1, "bullets": [], "pipelines": {"kine": [{"id": "b1", "text": "Name the phase."}, {"id": "b2", "text": "Question: Who? Answer: Ann."}]}}).encode()
sha = hashlib.sha256(book).hexdigest()
os.makedirs("made/nights"), os.makedirs("made/objects")
open("made/objects/" + sha, "wb").write(book)
json.dump({"night": 1, "parent": 0, "at": 1764288000, "model": "nano", "model_hash": model, "promoted": True, "steps": [],
           "owners": {"playbook.json": []}, "artefacts": {"playbook.json": sha}}, open("made/nights/000001.json", "w"))
PY
"$CHIMERE" night rollback 1 --night-dir made >/dev/null
"$CHIMERE" night playbook --night-dir made >program.json
python3 - <<'PY'
import json
p = json.load(open("program.json"))
assert set(p) == {"answer", "kine", "metadata"}, p
assert p["kine"]["signature"]["instructions"] == "Name the phase." and p["answer"]["demos"] == [], p
assert [(d["question"], d["answer"]) for d in p["kine"]["demos"]] == [("Who?", "Ann.")], p
PY
"$CHIMERE" night playbook import program.json --night-dir other | grep '^2 rules' >/dev/null || fail "an exported program cannot be imported"
"$CHIMERE" night schedule prompts=off --night-dir made >/dev/null
trap 'stop_server; rm -rf "$work"' EXIT
start_server --db other.db --night --night-dir made --night-items 1
# uses MODEL: whether the rules of a night are in the prompt
uses() {
    curl -sf -m 120 "$url/v1/chat/completions" -d "{\"model\":\"$1\",\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":\"What helps after an ankle sprain?\"}]}" |
        python3 -c 'import json, sys; print("playbook" in json.load(sys.stdin).get("odo", {}))'
}
[ "$(uses odo:kine)" = True ] || fail "the rules of the pipeline are not used"
[ "$(uses odo:code)" = False ] || fail "another pipeline uses the rules"
