#!/usr/bin/env bash
# think: the control of thinking over HTTP with the real nano model: streamed or not, and odo's mode "auto".
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl
model=$SOURCE_DIR/models/chimere-nano-bf16.gguf
[ -f "$model" ] || { echo "skip: no shipped model"; exit 77; }
n_whole=0
export XDG_CONFIG_HOME=$work/config

"$CHIMERE" serve -m "$model" --port 0 -q --ctx 2048 --intent-ms 20000 --db "$work/odo.db" >served 2>log &
server=$!
trap 'kill $server 2>/dev/null || true; wait; rm -rf "$work"' EXIT
for _ in $(seq 600); do grep -q listens served && break; sleep 0.2; done
url=$(sed -n 's/.*listens on \(http:[^ ]*\).*/\1/p' served)
[ -n "$url" ] || fail "no address: $(cat served log)"
question='"messages": [{"role": "user", "content": "Felix buys 9 boxes of lamps. Each box holds 27 lamps. Felix gives 7 lamps to Farid. How many lamps are left? Explain each step."}], "temperature": 0, "max_tokens": 150'
ask() { curl -sS "$url/v1/chat/completions" -H 'content-type: application/json' -d "{\"model\": \"$1\", $question, $2}"; }
name=$(curl -sS "$url/v1/models" | grep -o '"id": *"[^"]*"' | head -1 | sed 's/.*"\([^"]*\)"$/\1/')

# five tokens of thinking; stopped when sure; the same text streamed and not
for think in '{"budget_tokens": 5}' '{"stop_when_sure": 0.5, "min_tokens": 8}' '"ultra"' '{"unsure": 1, "extend": 1}'; do
    ask "$name" "\"think\": $think" >whole
    ask "$name" "\"think\": $think, \"stream\": true" >frames
    grep -o '"\(content\|reasoning_content\)": *"\([^"\\]\|\\.\)*"' whole | sed 's/^[^:]*: *"//; s/"$//' | tr -d '\n' >a
    # the frames' reasoning, then their content, in the order of the whole answer
    first=$(grep -o '"\(content\|reasoning_content\)"' whole | head -1 | tr -d '"')
    for key in "$first" "$([ "$first" = content ] && echo reasoning_content || echo content)"; do
        grep -o "\"$key\": *\"\([^\"\\\\]\|\\\\.\)*\"" frames | sed 's/^[^:]*: *"//; s/"$//' | tr -d '\n'
    done >b
    cmp -s a b || fail "think $think: streamed $(cat b), at once $(cat a)"
    [ -s a ] || fail "think $think: no text: $(cat whole)"
    cp whole "whole.$((++n_whole))"
done
grep -q '"reasoning_tokens": *6[,}]' whole.1 || fail "a budget of five, and the mark: $(cat whole.1)"
thought() { grep -o '"reasoning_tokens": *[0-9]*' "$1" | grep -o '[0-9]*$'; }
[ "$(thought whole.2)" -lt "$(thought whole.3)" ] || fail "stopping saves nothing: $(cat whole.2 whole.3)"
grep -q Wait whole.4 || fail "an end that is never sure enough goes on: $(cat whole.4)"

ask "$name" '"think": {"window": 0}' >out
grep -q '"param": *"think.window"' out || fail "refused by name: $(cat out)"
curl -sS "$url/v1/messages" -H 'content-type: application/json' -d "{\"model\": \"$name\", $question, \"think\": {\"no\": 1}}" >out
grep -q 'think.no' out || fail "refused by name: $(cat out)"

ask odo '"odo": {"mode": "auto", "tools": false}' >out
grep -q '"probe": *[0-9]' out || fail "no probe in the record: $(cat out)"
ask odo '"odo": {"mode": "sometimes"}' >out
grep -q 'expected auto, fast, quality or ultra' out || fail "odo.mode: $(cat out)"
echo "think: ok"
