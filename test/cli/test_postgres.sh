#!/usr/bin/env bash
# One store for several servers: the store's suite over PostgreSQL, copies there and back, servers that share keys, a
# database that goes away and comes back, and one whose volume is full.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl python3
# shellcheck source=test/cli/postgres.sh
. "$SOURCE_DIR/test/cli/postgres.sh"
export LC_ALL=C
started -c fsync=off
url="postgres://chimere@/postgres?host=$work/db"

# ---- the suite ----
for suite in test_store test_shared test_queue test_conversations; do
    program=$(dirname "$CHIMERE")/test/$suite
    [ -x "$program" ] || continue
    CHIMERE_TEST_STORE=$url "$program" >suite 2>&1 || fail "$suite: $(grep -v '^\[ RUN' suite)"
    grep -q 'PASSED' suite || fail "$suite ran nothing"
done

# ---- sentences ----
refuses 1 'cannot connect' "$CHIMERE" store check "postgres://nobody:hidden@127.0.0.1:1/x"
grep -q hidden err && fail "a password is shown: $(cat err)"
grep -q ' ?[A-Z]' err && fail "not a sentence: $(cat err)"
refuses 1 'cannot connect' "$CHIMERE" serve -q -m nano --port 0 --no-odo --store "postgres://chimere@/nowhere?host=$work/db"
refuses 1 'no such file' "$CHIMERE" store check nowhere.db
"$CHIMERE" store check "$url" >said || fail "check: $(cat said)"

# a schema of a newer program, and none of its tables are touched
newer() { "$bin/psql" -qAtc "$1" "$url" >/dev/null; }
newer 'INSERT INTO chimere_schema VALUES(1000)'
refuses 1 'schema version: expected at most' "$CHIMERE" store check "$url"
refuses 1 'schema version: expected at most' "$CHIMERE" serve -q -m nano --port 0 --no-odo --store "$url"
newer 'DELETE FROM chimere_schema WHERE version = 1000'

# ---- two leaders: while one learns, the other says who does ----
holds='SELECT pg_advisory_lock(4849996, hashtext(CAST(current_schema() AS TEXT))), pg_sleep(600)'
PGAPPNAME='chimere elsewhere:1/1' "$bin/psql" -q "$url" -c "$holds" >/dev/null 2>&1 &
holder=$!
held() { "$bin/psql" -Atc "SELECT count(*) FROM pg_locks WHERE classid = 4849996 AND granted" "$url"; }
for _ in $(seq 1200); do [ "$(held)" = 1 ] && break || sleep 0.1; done
refuses 1 'chimere elsewhere:1/1 leads the nights of this store' "$CHIMERE" night run -q -m nano --db "$url" --night-dir nights -n 1
[ -z "$(ls nights/nights)" ] || fail "a night without the lead left a record"
kill "$holder"
wait "$holder" || true
"$bin/psql" -qAtc "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE classid = 4849996" "$url" >/dev/null

# ---- keys that two servers share, copied from a file ----
alice=$("$CHIMERE" key add alice --state-dir kept 2>/dev/null)
"$CHIMERE" store copy kept/chimere.db "$url" >said || fail "copy: $(cat said)"
refuses 2 'expected an empty store' "$CHIMERE" store copy kept/chimere.db "$url"
start() { # N
    "$CHIMERE" serve -q -m nano --port 0 --ctx 512 --store "$url" --no-odo --state-dir "state$1" --verbose >"served$1" 2>"log$1" &
    pids+=($!)
    for _ in $(seq 2400); do grep -q http:// "served$1" && break || sleep 0.05; done
    grep -om1 'http://[0-9.:]*' "served$1" | head -1 || fail "server $1 does not start: $(cat "log$1")"
}
start 1 >url1
start 2 >url2
one=$(cat url1) two=$(cat url2)
ask() { curl -sS -m 300 -o body -w '%{http_code}' -H "Authorization: Bearer $2" "$1/v1/completions" -d '{"prompt":"One, two,","max_tokens":4}'; }
[ "$(ask "$one" "$alice")" = 200 ] || fail "a copied key is refused: $(cat body)"
[ "$(ask "$two" "$alice")" = 200 ] || fail "a copied key is refused by the other: $(cat body)"
bob=$("$CHIMERE" key add bob --store "$url" 2>/dev/null)
for server in "$one" "$two"; do # by a notification, within a second
    for _ in $(seq 600); do [ "$(ask "$server" "$bob")" = 200 ] && break || sleep 0.1; done
    [ "$(ask "$server" "$bob")" = 200 ] || fail "a new key is refused: $(cat body)"
done

# ---- the database goes away and comes back ----
ready() { curl -sS -m 300 -o body -w '%{http_code}' "$1/health/ready"; }
becomes() { # STATUS URL
    for _ in $(seq 1200); do [ "$(ready "$2")" = "$1" ] && return || sleep 0.1; done
    fail "expected $1 of $2/health/ready: $(cat body)"
}
cluster stop -m immediate
becomes 503 "$one"
grep -q 'store away' body || fail "no reason: $(cat body)"
[ "$(ask "$one" "$bob")" = 200 ] || fail "answers need the database: $(cat body)" # its record waits
"$CHIMERE" drain --url "$one" --url-key x 2>/dev/null && fail "drain without a key"
started -c fsync=off
becomes 200 "$one"
becomes 200 "$two"
carol=$("$CHIMERE" key add carol --store "$url" 2>/dev/null)
for _ in $(seq 600); do [ "$(ask "$two" "$carol")" = 200 ] && break || sleep 0.1; done
[ "$(ask "$two" "$carol")" = 200 ] || fail "a key that was added later is refused: $(cat body)"
ended() {
    kill "${pids[@]}"
    for pid in "${pids[@]}"; do wait "$pid" || fail "a server ended badly: $(cat log*)"; done
    pids=()
}
ended

# ---- a volume of the database is full, and has room again: every request is recorded once ----
mkdir small
if mount -t tmpfs -o "size=32m,mode=700,uid=$(stat -c %u db)" tmpfs small 2>err; then
    trap 'kill "${pids[@]}" 2>/dev/null || true; cluster stop -m immediate || true; wait; umount "$work/small"; rm -rf "$work"' EXIT
    whole=$url
    "$bin/psql" -qAtc "CREATE TABLESPACE small LOCATION '$work/small'" -c 'CREATE DATABASE small TABLESPACE small' "$whole"
    url="postgres://chimere@/small?host=$work/db"
    start 3 >url3
    three=$(cat url3)
    dd if=/dev/zero of=small/filler bs=64k status=none 2>err && fail "32 MiB are not full"
    asked=0
    for _ in $(seq 300); do
        [ "$(curl -sS -m 300 -o body -w '%{http_code}' "$three/v1/completions" -d '{"prompt":"x","max_tokens":1}')" = 200 ] ||
            fail "answers need room in the database: $(cat body)"
        asked=$((asked + 1))
        [ "$(ready "$three")" = 200 ] || break
    done
    becomes 503 "$three"
    grep -q 'store full' body || fail "no reason: $(cat body)"
    grep -q 'recording waits: .*No space left on device' log3 || fail "no sentence: $(cat log3)"
    rm small/filler
    becomes 200 "$three"
    ended
    n=$("$bin/psql" -Atc "SELECT count(*) FROM requests WHERE api = '/v1/completions' AND status = 200" "$url")
    [ "$n" = "$asked" ] || fail "$asked requests, $n records"
    url=$whole
else
    echo "postgres: no full volume: mount: $(cat err)"
fi

# ---- everything that was answered is recorded once, also while the database was away; and back into a file ----
"$CHIMERE" store copy "$url" back.db >said || fail "copy back: $(cat said)"
python3 - <<'END' || exit 1
import sqlite3
db = sqlite3.connect("back.db")
keys = [r[0] for r in db.execute("SELECT name FROM api_keys ORDER BY name")]
assert keys == ["alice", "bob", "carol"], keys
n, ok = db.execute("SELECT count(*), sum(status = 200) FROM requests WHERE api = '/v1/completions'").fetchone()
assert n == ok and n >= 7, (n, ok)
END
echo "postgres: suite, copies, shared keys, a restart of the database, a full volume"
