#!/usr/bin/env bash
# server: script/server builds, starts the shipped model, prints its plan and says what to type next; that answers.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl setsid
case $CHIMERE in
*/build/release/chimere) ;;
*)
    echo "skip: server: script/server starts the release build, and this is another"
    exit 77
    ;;
esac
XDG_DATA_HOME=$work setsid "$SOURCE_DIR/script/server" --port 0 >said 2>&1 </dev/null &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
for ((i = 0; i < 3000; i++)); do # it may have to build first
    grep -q '^  curl ' said && break
    kill -0 "$server" 2>/dev/null || fail "script/server ended: $(tail -5 said)"
    sleep 0.2
done
grep -q 'listens on http://127.0.0.1:' said || fail "no address of this machine alone: $(tail -5 said)"
for part in weights cache "in all"; do
    grep -q "^ *$part " said || fail "the plan does not say '$part': $(cat said)"
done
# what it says to type, typed
line=$(sed -n 's/^  curl /curl -s -m 300 /p' said | head -1)
bash -c "$line" >answer
grep -q '"role":"assistant","content":"[^"]' answer || fail "'$line' got: $(cat answer)"
kill -TERM "$server"
wait "$server" || fail "stopping ended with $?"
trap 'rm -rf "$work"' EXIT
