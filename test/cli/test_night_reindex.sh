#!/usr/bin/env bash
# night_reindex: changed and new documents are read and deleted ones forgotten, without a record of a night.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 curl

trap 'stop_server; rm -rf "$work"' EXIT

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
grep -q 'reindex .*2 collections: 4 files looked at, 0 read again, 0 new, 0 forgotten' same || fail "unchanged: $(cat same)"
text() { python3 -c 'import sqlite3; print(*(r[0] for r in sqlite3.connect("day.db").execute("SELECT body FROM doc_fts")))'; }
text | grep white >/dev/null || fail "the index has no text: $(text)"

echo 'The lighthouse of Sago is now painted green.' >papers/a.txt
rm papers/c.txt
rm -r other/place # the folder above is empty: perhaps a disk that is not mounted
night "${run[@]}" --dry-run >dry
grep -q 'not done: a dry run' dry || fail "dry run: $(cat dry)"
text | grep white >/dev/null || fail "a dry run changed the index"
night "${run[@]}" >ran
grep -q '2 files looked at, 1 read again, 0 new, 1 forgotten, 1 left' ran || fail "changed: $(cat ran)"
text >now
if ! grep -q green now || grep -qE 'white|blue' now; then fail "the index is old: $(cat now)"; fi
grep -q 'not always there' now || fail "a file whose disk may not be mounted was forgotten"
# new files of a folder that was indexed are found, also in new folders; those beside a single file are not
mkdir -p papers/new alone
echo 'The lighthouse of Orin is violet.' >papers/new/e.txt
echo 'The lighthouse of Pell is orange.' >alone/one.txt
echo 'The lighthouse of Quay is secret.' >alone/two.txt
echo x >papers/program.bin
"$CHIMERE" odo index alone/one.txt --db day.db >/dev/null
night "${run[@]}" >ran
grep -q '4 files looked at, 0 read again, 1 new, 0 forgotten' ran || fail "new: $(cat ran)"
text >now
if ! grep -q violet now || grep -q secret now; then fail "new files: $(cat now)"; fi
night "${run[@]}" >ran
grep -q '4 files looked at, 0 read again, 0 new, 0 forgotten' ran || fail "twice: $(cat ran)"
# a file that the owner removes from the index stays away, until it is indexed by name
where=$(python3 -c 'import os; print(os.path.realpath("papers/new/e.txt"))')
start_server --db day.db
curl -sf -m 300 -G -X DELETE "$url/chimere/v1/documents" --data-urlencode "name=$where" >/dev/null || fail "remove: $(cat said)"
stop_server
night "${run[@]}" >ran
grep -q '0 read again, 0 new, 0 forgotten' ran || fail "a removed file came back: $(cat ran)"
"$CHIMERE" odo index papers/new/e.txt --db day.db >/dev/null
text | grep violet >/dev/null || fail "indexed by name: $(text)"
python3 - <<'PY'
import sqlite3
rows = sqlite3.connect("day.db").execute("SELECT kind, name, state FROM jobs").fetchall()
assert rows == 5 * [("night", "reindex", "done")], rows
PY
night status --db day.db | grep '^step  *reindex done, begun .*: [0-9] collections: .* 0 read again' >/dev/null || fail "status: $(night status --db day.db)"
night status | grep '^nights *0$' >/dev/null || fail "upkeep left a record: $(night status)"
night schedule | grep '^reindex *6h ' >/dev/null || fail "schedule: $(night schedule)"
