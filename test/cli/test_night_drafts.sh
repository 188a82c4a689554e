#!/usr/bin/env bash
# night_drafts: contexts for drafts are promoted if they beat the server's own store: for many users, and not for one.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 curl

trap 'stop_server; rm -rf "$work"' EXIT
night() { "$CHIMERE" night "$@" --night-dir nights; }
# own_day EXPRESSION: the day's answers, whose owners are given in SQL.
own_day() {
    python3 - "$1" <<'PY'
import sqlite3, sys
db = sqlite3.connect("day.db")
db.execute("UPDATE quality SET at_ms = 1764288000000 + id, owner = " + sys.argv[1])  # a fixed quarter: a fixed tenth is held out
db.commit()
PY
}
run=(run -m nano --db day.db -q -n 1 --steps drafts)

# the store of one user knows all texts of the day already: the same contexts once more gain nothing
long_day
own_day "'key-0000000000000001'"
night "${run[@]}" >one
grep -q 'drafts .*refused: .* passes per token' one || fail "one user: $(cat one)"
grep -q 'no gain that' one || fail "one user: $(cat one)"
[ ! -e nights/live/drafts.bin ] || fail "contexts without a gain serve"

# users who ask about the same things help each other, which their own stores cannot
own_day "printf('key-%016d', id)"
night "${run[@]}" >many
grep -q 'drafts .*promoted: .* passes per token' many || fail "many users: $(cat many)"
[ -s nights/live/drafts.bin ] || fail "what was promoted does not serve"
cp nights/live/drafts.bin first
night rollback 0 >/dev/null
[ ! -e nights/live/drafts.bin ] || fail "rollback left the contexts"
night "${run[@]}" >/dev/null
cmp nights/live/drafts.bin first || fail "the same day gave other contexts"

night schedule drafts=off >/dev/null
start_server --db day.db --no-odo --night --night-dir nights --night-items 1 --log-level info
grep -q 'requests use the files of night 3 now' said || fail "the server does not use them: $(cat said)"
curl -sf -m 120 "$url/v1/chat/completions" -d '{"max_tokens":8,"messages":[{"role":"user","content":"Who are you?"}]}' >/dev/null ||
    fail "an answer with the contexts of a night: $(cat said)"
stop_server

# a damaged file is refused, and the server answers without it
object=nights/objects/$(sha256sum first | cut -d' ' -f1)
printf 'x' | dd of="$object" bs=1 seek=1000 conv=notrunc 2>/dev/null
: >said
start_server --db day.db --no-odo --night --night-dir nights --night-items 1
grep -q 'nights: .*damaged' said || fail "damaged contexts: $(cat said)"
curl -sf -m 120 "$url/v1/chat/completions" -d '{"max_tokens":8,"messages":[{"role":"user","content":"Who are you?"}]}' >/dev/null ||
    fail "an answer without the contexts: $(cat said)"
stop_server

# who taught them can be forgotten with them
night forget --user key-0000000000000001 --db day.db >gone
[ ! -e nights/live/drafts.bin ] || fail "the contexts of a forgotten user serve: $(cat gone)"
