#!/usr/bin/env bash
# serve --shared-states: after kill -9 of one server, another one continues its conversation exactly as a server that was
# never interrupted; users are kept apart; a folder that is full or read-only costs only the gain.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl python3

pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
printf '%s\n' '0123456789abcdef ann' 'fedcba9876543210 bob' >keys
chmod 600 keys
start() { # NAME FOLDER
    : >"served$1"
    "$CHIMERE" serve -m nano --port 0 --no-odo --temp 0 --ignore-eos --parallel 1 --no-speculate --log-level info --api-key keys --shared-states "$2" >"served$1" 2>"log$1" &
    pid=$!
    pids+=("$pid")
    for _ in $(seq 2400); do grep -q 'listens on' "served$1" && break || sleep 0.05; done
    url=$(sed -n 's/.*listens on \(http[^ ]*\) .*/\1/p' "served$1")
    [ -n "$url" ] || fail "server $1 does not start: $(cat "log$1")"
}
# ask NAME URL TURN [KEY]: one turn of the conversation in talkNAME.json, whose answers stay there; prints cached tokens.
ask() {
    python3 - "$@" <<'PY'
import json, os, sys, urllib.request
name, url, turn, key = (sys.argv[1:] + ["0123456789abcdef"])[:4]
path = f"talk{name}.json"
talk = json.load(open(path)) if os.path.exists(path) else []
text = " ".join(f"Number {turn}{i} has its divisors, its neighbours and a year of that name." for i in range(40 if turn == "1" else 3))
talk.append({"role": "user", "content": text})
body = {"messages": talk, "max_tokens": 150, "temperature": 0}
r = json.load(urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": "Bearer " + key}), timeout=120))
talk.append({"role": "assistant", "content": r["choices"][0]["message"]["content"]})
json.dump(talk, open(path, "w"))
print(r["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0))
PY
}
states() { find "$1" -name '*-*-*.seq' | wc -l; }
settled() { # FOLDER N: so many states are there
    for _ in $(seq 1200); do [ "$(states "$1")" -lt "$2" ] || return 0; sleep 0.1; done
    fail "expected $2 states in $1: $(ls -l "$1")"
}

start a both
a=$pid a_url=$url
start c alone # never interrupted
c=$pid c_url=$url
[ "$(ask a "$a_url" 1)" = 0 ] || fail "cached before anything was asked"
[ "$(ask c "$c_url" 1)" = 0 ] || fail "cached before anything was asked"
cmp -s talka.json talkc.json || fail "two servers differ in the first answer"
settled both 2 # where the answer begins, and where it ends
settled alone 2
kill -9 "$a"
wait "$a" 2>/dev/null || true
[ -z "$(find both -type f ! -perm 600)" ] || fail "others may read: $(ls -l both)"

start b both
b=$pid b_url=$url
cp talka.json talkother.json
[ "$(ask other "$b_url" 2 fedcba9876543210)" = 0 ] || fail "another tenant's state was used"
got=$(ask a "$b_url" 2)
want=$(ask c "$c_url" 2)
[ "$got" -ge 256 ] || fail "the other server's state was not used: $got tokens cached: $(cat logb)"
[ "$got" = "$want" ] || fail "cached: $got of another server's tokens, $want of one's own"
cmp -s talka.json talkc.json || fail "the conversation goes on differently: $(tail -c 300 talka.json) and $(tail -c 300 talkc.json)"

# what both computed after the second turn is equal in all bits
kill -TERM "$b" "$c"
wait "$b" "$c" || fail "a server ended badly: $(tail -3 logb logc)"
python3 - <<'PY' || exit 1
import os
both, alone = ({n: open(os.path.join(d, n), "rb").read() for n in os.listdir(d) if n.endswith(".seq")} for d in ("both", "alone"))
equal = [n for n in alone if both.get(n) == alone[n]]
assert len(alone) >= 3, sorted(alone)
assert len(equal) == len(alone), f"{len(equal)} of {len(alone)} states are equal; {sorted(set(alone) - set(both))} are missing"
PY

# ---- a folder that cannot be used costs only the gain ----
if [ -d /sys/kernel ] && ! touch /sys/kernel/chimere 2>/dev/null; then
    start r /sys/kernel
    ask r "$url" 1 >/dev/null
    cmp -s talkr.json <(python3 -c 'import json; print(json.dumps(json.load(open("talkc.json"))[:2]), end="")') || fail "another answer: $(cat talkr.json)"
    grep -q 'shared states are read, but none are added: /sys/kernel: cannot write' logr || fail "a read-only folder is not named: $(cat logr)"
    kill -TERM "$pid"
    wait "$pid" || fail "a server ended badly: $(tail -3 logr)"
fi
if LD_PRELOAD=$FAULT_FULL FAULT_COUNT=$work/count "$CHIMERE" --version >/dev/null 2>&1 && [ -s count ]; then
    export LD_PRELOAD=$FAULT_FULL FAULT_NTH=1 FAULT_ERRNO=ENOSPC
    start f full
    unset LD_PRELOAD
    ask f "$url" 1 >/dev/null
    kill -TERM "$pid"
    wait "$pid" || fail "a server ended badly: $(tail -3 logf)"
    grep -q 'a state is not shared: .*No space left' logf || fail "a full volume is not named: $(cat logf)"
    [ -z "$(find full -name '*.seq*')" ] || fail "half a state was left: $(ls -l full)"
fi
# ---- what a key left there can be removed ----
identity=key-$(printf 0123456789abcdef | sha256sum | cut -c1-16)
mkdir -p both/answers
touch both/answers/notes.txt "both/answers/$(printf %064d 1).ids"
forget() { "$CHIMERE" night forget --user "$1" --states both --night-dir nights --db kept.db; }
forget key-0000000000000000 | grep '^0 shared states removed$' >/dev/null || fail "states of nobody"
n=$(states both)
forget "$identity" >said
grep -q '^[1-9][0-9]* shared states removed$' said || fail "forget: $(cat said)"
[ "$(states both)" -lt "$n" ] && [ -z "$(find both -name '*.ids')" ] && [ -e both/answers/notes.txt ] || fail "left: $(find both)"
forget "$identity" | grep '^0 shared states removed$' >/dev/null || fail "forgotten twice"

# who asks without a key owns the states of this machine's addresses, in a store and in a shared folder
kept() { python3 -c 'import sqlite3; print(sqlite3.connect("mine/chimere.db").execute("SELECT count(*) FROM states").fetchone()[0])'; }
for shared in '' '--shared-states ours'; do
    rm -f talkm.json
    # shellcheck disable=SC2086  # two words or none
    "$CHIMERE" serve -m nano --port 0 --no-odo --parallel 1 --no-speculate --state-dir mine $shared >servedm 2>logm &
    pid=$!
    pids+=("$pid")
    for _ in $(seq 2400); do grep -q 'listens on' servedm && break || sleep 0.05; done
    ask m "$(sed -n 's/.*listens on \(http[^ ]*\) .*/\1/p' servedm)" 1 >/dev/null
    [ -z "$shared" ] || settled ours 1
    kill -TERM "$pid"
    wait "$pid" || fail "a server ended badly: $(tail -3 logm)"
done
[ "$(kept)" -gt 0 ] || fail "no state was kept"
"$CHIMERE" night forget --user local --states ours --night-dir nights --db mine/chimere.db >said
[ "$(kept)" = 0 ] && [ "$(states ours)" = 0 ] || fail "left of who has no key: $(cat said; ls ours)"

touch file
refuses 1 'file' "$CHIMERE" serve -m nano --port 0 --no-odo -q --shared-states file
echo "shared: continued after kill -9, equal in all bits"
