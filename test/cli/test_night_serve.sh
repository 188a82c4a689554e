#!/usr/bin/env bash
# night_serve: serve --night makes up for a night that was missed, stops for a user's request, and continues after it.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 curl

trap 'stop_server; rm -rf "$work"' EXIT
night() { "$CHIMERE" night "$@" --night-dir nights; }
# until SECONDS WHAT COMMAND...: the command succeeds within that time.
until_() {
    local left=$(($1 * 5)) what=$2
    shift 2
    until "$@"; do
        kill -0 "$server" || fail "the server ended: $(tail -5 said)"
        [ $((left -= 1)) -gt 0 ] || fail "not within the time: $what: $(tail -20 said)"
        sleep 0.2
    done
}
start() {
    start_server --db day.db --no-odo --night --night-dir nights --night-items 1 --log-level info "$@"
}
ask() {
    curl -sf -m 120 "$url/v1/chat/completions" -d '{"max_tokens":8,"messages":[{"role":"user","content":"Who are you?"}]}' >answer ||
        fail "a request during a night: $(cat answer)"
}

# ran JSON: the file appears whole; the server takes half of one for none, and writes its own
ran() { echo "$1" >nights/ran.new && mv nights/ran.new nights/ran.json; }

long_day
night schedule lora=off >/dev/null
ran '{"engram": 1000000000, "lora": 1000000000}' # long before the last 04:00
start --night-judge missing.gguf
until_ 200 "a night that was missed" grep -q 'night 1 ended: something better' said
grep -q 'night: --night-judge: .*missing.gguf' said || fail "a judge that is missing is not named"
night history | grep '^\*    1 .*engram promoted' >/dev/null || fail "history: $(night history)"
until_ 60 "the time of the night" python3 -c 'import json; exit(json.load(open("nights/ran.json"))["engram"] <= 1000000000)'
counts() { curl -sf -m 300 "$url/metrics" | grep "^chimere_nights_total{result=\"$1\"} 1$" >/dev/null; }
counts ended || fail "metrics: $(curl -s -m 300 "$url/metrics" | grep nights)"

# a new time takes effect without a restart; a request goes first
ran '{"lora": 1000000000}'
night schedule lora=03:00 engram=off >/dev/null
until_ 200 "training" grep -q 'a night begins: lora' said
asked() { ask && grep -q 'paused: somebody asks' said; }
until_ 200 "a pause" asked
until_ 200 "training after the pause" python3 -c 'exit("lora: step" not in open("said").read().split("paused: somebody asks")[-1])'
stop_server
grep -q '"lora": 1000000000' nights/ran.json || fail "a night that was cut off counts as done: $(cat nights/ran.json)"
[ "$(night status | sed -n 's/^nights *//p')" = 1 ] || fail "a night that was cut off left a record: $(night status)"
[ -e nights/live/night.engram ] || fail "what was promoted does not serve: $(night status)"
start
until_ 200 "the night again" python3 -c 'exit(open("said").read().count("a night begins: lora") < 2)'

# a night that fails is counted
stop_server
night schedule lora=off engram=04:00 >/dev/null
ran '{"engram": 1000000000}'
for object in nights/objects/*; do printf x >"$object"; done
start
until_ 200 "a night that fails" counts failed
