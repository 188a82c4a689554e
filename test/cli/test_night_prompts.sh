#!/usr/bin/env bash
# night_prompts: combinations of an instruction and demonstrations make held-out answers more probable.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

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
