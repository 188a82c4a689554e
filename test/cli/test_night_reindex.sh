#!/usr/bin/env bash
# night_reindex: changed documents are read again and deleted ones forgotten, without a record of a night.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

night() { "$CHIMERE" night "$@" --night-dir nights; }
found() { "$CHIMERE" odo docs --db day.db; }

mkdir -p papers/sub other/place
echo 'The lighthouse of Sago is white.' >papers/a.txt
echo 'The lighthouse of Venn is red.' >papers/sub/b.txt
echo 'The lighthouse of Lumo is blue.' >papers/c.txt
echo 'On a disk that is not always there.' >other/place/d.txt
"$CHIMERE" odo index papers --db day.db >/dev/null
"$CHIMERE" odo index other --collection second --db day.db >/dev/null
run=(run -m nano --db day.db -q --steps reindex)
night "${run[@]}" >same
grep -q 'reindex .*2 collections: 4 files looked at, 0 read again, 0 forgotten' same || fail "unchanged: $(cat same)"
text() { python3 -c 'import sqlite3; print(*(r[0] for r in sqlite3.connect("day.db").execute("SELECT body FROM doc_fts")))'; }
text | grep -q white || fail "the index has no text: $(text)"

echo 'The lighthouse of Sago is now painted green.' >papers/a.txt
rm papers/c.txt
rm -r other/place # the folder above is empty: perhaps a disk that is not mounted
night "${run[@]}" --dry-run >dry
grep -q 'not done: a dry run' dry || fail "dry run: $(cat dry)"
text | grep -q white || fail "a dry run changed the index"
night "${run[@]}" >ran
grep -q '2 files looked at, 1 read again, 1 forgotten, 1 left' ran || fail "changed: $(cat ran)"
text >now
if ! grep -q green now || grep -qE 'white|blue' now; then fail "the index is old: $(cat now)"; fi
grep -q 'not always there' now || fail "a file whose disk may not be mounted was forgotten"
python3 - <<'PY'
import sqlite3
rows = sqlite3.connect("day.db").execute("SELECT kind, name, state FROM jobs").fetchall()
assert rows.count(("reindex", "default", "done")) == 2 and rows.count(("reindex", "second", "done")) == 2, rows
PY
night status | grep -q '^nights *0$' || fail "upkeep left a record: $(night status)"
night schedule | grep -q '^reindex *6h ' || fail "schedule: $(night schedule)"
