#!/usr/bin/env bash
# Several engines behind one server: --gpus, with the processor in the place of cards.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl jq

pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null; wait; rm -rf "$work"' EXIT

# ---- bad lists: sentences ----
check() { "$CHIMERE" serve --check -q --ctx 256 "$@"; }
refuses 2 '--gpus: card 1 is named twice; name each once' check --gpus 1,0,1
refuses 2 "--gpus: expected numbers of cards such as 0,1, got 'x'" check --gpus 0,x
refuses 2 "got ''" check --gpus 0,
refuses 2 'at most 8 cards' check --gpus 0,1,2,3,4,5,6,7,8
refuses 2 '--gpus and --device exclude each other' check --gpus 0 --device cpu
refuses 2 '--split replica: name the GPUs with --gpus' check --split replica
refuses 2 '--split layer: name the GPUs with --gpus' check --split layer
refuses 2 '--split tensor: name the GPUs with --gpus' check --split tensor
refuses 2 'split' check --gpus cpu --split sideways
check --gpus cpu,cpu >out || fail "two engines on the processor are refused"
grep -q '4 answers at once on the first card' out || fail "$(cat out)"
# --split is checked as it would be opened
for split in layer tensor; do
    check --gpus cpu,cpu --split $split >out || fail "--split $split is refused"
    grep -q '[0-9] answers at once, context' out || fail "$(cat out)"
done
refuses 1 '5 cards, but layer 3 of the model has 4 heads' check --gpus cpu,cpu,cpu,cpu,cpu --split tensor
refuses 1 'x.gguf: ' check --gpus cpu,cpu --split tensor --lora x.gguf
# a card that is not there: why
status=0
check --gpus cpu,9 >out 2>err || status=$?
[ "$status" != 0 ] || fail "card 9 is accepted"
grep -q 'cuda:9: gpu: ' err || fail "$(cat err)"
# what each holds must fit beside the others
refuses 1 'does not fit' check --gpus cpu,cpu,cpu,cpu --ram 40M
# unequal cards: the first can hold the model, what is left for the second cannot
unequal=(--gpus cpu,cpu --ram 80M --ctx 1024 --parallel 2 -t 1)
refuses 1 'chimere: cpu: chimere-nano does not fit' check "${unequal[@]}" --split replica
check "${unequal[@]}" >out 2>err || fail "unequal cards are refused: $(cat err)"
grep -q 'on the first card' out || fail "the second card should be left out: $(cat out)"

# ---- one server, two engines ----
restarted=()
faults=()
start() {
    : >line # the server may empty it only after this shell has looked for the address
    env "${faults[@]}" "$CHIMERE" serve "${restarted[@]}" --port 0 --no-odo --ctx 1024 --parallel 2 -t 1 "$@" >line 2>plan &
    pid=$!
    for _ in $(seq 600); do
        grep -q 'listens on' line && break
        kill -0 $pid 2>/dev/null || fail "serve: $(cat plan)"
        sleep 0.1
    done
    grep -q 'listens on' line || fail "the server does not start: $(cat plan)"
    url=$(sed -n 's/.*listens on \([^ ]*\) .*/\1/p' line)
}
stop() {
    kill $pid
    wait $pid || fail "serve ended with $?"
    pid=
}
ask() { # TEXT
    jq -n --arg t "$1" '{messages: [{role: "user", content: $t}], temperature: 0, max_tokens: 12}' |
        curl -sf "$url/v1/chat/completions" -d @- | jq -r '.choices[0].message.content'
}
kept() { # a prompt that was asked before begins with what was kept of it
    local text first again
    text=$(for i in $(seq 40); do printf 'Word %s. ' "$i"; done)
    first=$(ask "$text")
    again=$(jq -n --arg t "$text" '{messages: [{role: "user", content: $t}], temperature: 0, max_tokens: 12}' |
        curl -sf "$url/v1/chat/completions" -d @-)
    [ "$first" = "$(jq -r '.choices[0].message.content' <<<"$again")" ] || fail "a kept state says something else"
    [ "$(jq .usage.prompt_tokens_details.cached_tokens <<<"$again")" -ge 64 ] || fail "nothing was kept: $again"
}
together() { # N NAME: so many questions at once; the answers are in NAME.1 to NAME.N
    local i asked=()
    for i in $(seq "$1"); do
        ask "Tell me about number $i" >"$2.$i" &
        asked+=($!)
    done
    wait "${asked[@]}"
}
questions() { for i in 1 2 3 4 5 6; do ask "Question $i: what is $i plus $i?"; done; }

start
questions >one
grep -q card_ <(curl -sf "$url/metrics") && fail "cards of one engine"
stop
start --gpus cpu,cpu
grep -q '(model [^,]*, 4 answers at once)' line || fail "$(cat line)"
grep -q '^2 cards, a replica on each' plan || fail "the plan: $(cat plan)"
grep -q '^auto: replicas, because each card can hold' plan || fail "the plan: $(cat plan)"
[ "$(grep -c 'in all' plan)" = 2 ] || fail "a plan a card: $(cat plan)"
questions >two
cmp one two || fail "two engines say something else"
curl -sf "$url/metrics" >metrics
for card in 0 1; do
    n=$(sed -n "s/^chimere_card_jobs_given{.*card=\"$card\".*} //p" metrics)
    [ "$n" -ge 1 ] || fail "card $card answered $n of 6"
    grep -q "^chimere_card_lost{.*card=\"$card\",device=\"cpu\"} 0" metrics || fail "$(grep card metrics)"
done
curl -sf "$url/v1/status" | jq -e '.models[0].cards | length == 2' >/dev/null || fail "status"
# many at once: both work, all are answered
together 12 answer
for i in $(seq 12); do [ -s "answer.$i" ] || fail "answer $i is missing"; done
stop
# --split layer: half of the layers each, two engines that take turns, the same words
start --gpus cpu,cpu --split layer
grep -q ', 2 answers at once)' line || fail "$(cat line)"
grep -q '^2 cards, a part of the layers on each' plan || fail "the plan: $(cat plan)"
grep -q '^cpu: layers 0 to ' plan || fail "the plan: $(cat plan)"
questions >layers
cmp one layers || fail "layers on two devices say something else"
together 6 layer
for i in $(seq 6); do cmp "answer.$i" "layer.$i" || fail "answer $i differs"; done
curl -sf "$url/metrics" >metrics
for turn in 0 1; do
    n=$(sed -n "s/^chimere_card_jobs_given{.*device=\"turn $turn\".*} //p" metrics)
    [ "$n" -ge 1 ] || fail "engine $turn answered $n of 12"
done
kept
stop
# --split tensor: a slice of every layer each, one engine, the same words
start --gpus cpu,cpu --split tensor
grep -q ', 2 answers at once)' line || fail "$(cat line)"
grep -q '^2 cards, a slice of every layer on each' plan || fail "the plan: $(cat plan)"
questions >slices
cmp one slices || fail "slices on two devices say something else"
together 6 slice
for i in $(seq 6); do cmp "answer.$i" "slice.$i" || fail "answer $i differs"; done
grep -q '^link: through the host' plan || fail "the plan: $(cat plan)"
curl -sf "$url/metrics" >metrics
for card in 0 1; do
    n=$(sed -n "s/^chimere_card_link_bytes{.*card=\"$card\"} //p" metrics)
    [ "${n%%.*}" -ge 1000 ] || fail "card $card exchanged $n bytes"
done
kept
# SIGUSR1, which the server also sends itself if a card is lost, starts the program again: same process, same port
starts_again() {
    for _ in $(seq 600); do
        [ "$(grep -c 'listens on' line)" != 2 ] || break
        kill -0 $pid 2>/dev/null || fail "the server ended: $(cat plan)"
        sleep 0.1
    done
    [ "$(sed -n '$!d; s/.*listens on \([^ ]*\) .*/\1/p' <(grep 'listens on' line))" = "$url" ] || fail "$(cat line)"
    [ "$(grep -c '^2 cards, a slice of every layer' plan)" = 2 ] || fail "the plan: $(cat plan)"
    questions >again
    cmp one again || fail "after the program was started again, it says something else"
    stop
}
if [ -n "${CHIMERE_EXE:-}" ]; then # without signals of POSIX the end of this test starts the program again
    stop
else
    kill -USR1 $pid
    starts_again
fi
# a card of the split misses the deadline of a sum (test/faults/card.c): the answer in progress fails with a sentence, the
# probes report it, and the server starts again by itself
head -c 8 /dev/zero >fault
faults=("LD_PRELOAD=${FAULT_CARD:-}" "FAULT_FILE=$work/fault")
if [ -n "${FAULT_CARD:-}" ] && env "${faults[@]}" "$CHIMERE" --version >/dev/null 2>&1; then
    start --gpus cpu,cpu --split tensor
    jq -n '{messages: [{role: "user", content: "Count."}], temperature: 0, max_tokens: 100}' >count.json
    for _ in $(seq 20); do # the other card may answer in the same moment
        printf '\x00\x22\xe2\x33\x0e\x00\x00\x00' | dd of=fault conv=notrunc status=none # 61 s
        # readiness is asked for by the same program: a second later the server starts again
        read -r status ready < <(curl -s -o lost -w '%{http_code} ' "$url/v1/chat/completions" -d @count.json \
            --next -s -o health -w '%{http_code}\n' "$url/health/ready")
        [ "$status" = 200 ] || break
    done
    [ "$status" != 200 ] || fail "an answer without a card: $(cat lost)"
    grep -q 'card [12] of 2 did not answer within 60 s' lost || fail "no reason: $status $(cat lost)"
    [ "$ready" = 503 ] || fail "ready without a card: $ready $(cat health)"
    starts_again
    grep -q 'a card is lost: the server starts again in 1 s' plan || fail "$(cat plan)"
else
    echo "no lost card: LD_PRELOAD has no effect on a build with sanitizers, and Windows has none"
fi
faults=()
# a state that one split has saved serves the next one, and an n-gram table adds to its logits
text=$(for i in $(seq 40); do printf 'Number %s. ' "$i"; done)
for _ in $(seq 200); do echo 'The muscles of the otter are the muscles of the badger.'; done >otter.txt
mkdir tables
"$CHIMERE" engram build -m nano -o tables/otter.engram otter.txt >/dev/null 2>&1 || fail 'no n-gram table'
for split in none layer tensor none; do
    start --gpus cpu,cpu --split $split --state-dir kept --engram-dir tables
    answer=$(jq -n --arg t "$text" '{messages: [{role: "user", content: $t}], temperature: 0, max_tokens: 12}' |
        curl -sf "$url/v1/chat/completions" -d @-)
    jq -r '.choices[0].message.content' <<<"$answer" >"kept.$split"
    n=$(jq .usage.prompt_tokens_details.cached_tokens <<<"$answer")
    [ ! -s kept.first ] || [ "$n" -ge 64 ] || fail "--split $split used nothing of a saved state: $answer"
    [ -s kept.first ] || cp "kept.$split" kept.first
    cmp kept.first "kept.$split" || fail "--split $split with a saved state says something else"
    curl -sf "$url/v1/completions" -d '{"prompt": "The muscles of the", "temperature": 0, "max_tokens": 8,
        "engram": {"tables": ["otter"], "alpha": 1}}' | jq -r '.choices[0].text' >table
    grep -q 'otter are the muscles' table || fail "--split $split does not read the table: $(cat table)"
    stop
done
# after a restart, a card that does not answer is left out
restarted=(--restarted 1:0)
start --gpus cpu,9 --split tensor
restarted=()
grep -q 'cuda:9 is left out: gpu: ' plan || fail "$(cat plan)"
questions >again
cmp one again || fail "one card alone says something else"
stop
# none answers: another attempt after a pause, by the same arguments; a signal ends it; five attempts in quick succession are
# the last
"$CHIMERE" serve --restarted 1:0 --port 0 -q --no-odo -t 1 --name 'two "words" \' --gpus 9 >line 2>plan &
pid=$!
for _ in $(seq 1200); do
    grep -q 'the next attempt is in 4 s' plan && break
    sleep 0.1
done
grep -q 'gpu: .*; the next attempt is in 2 s' plan || fail "$(cat plan)"
grep -q 'the next attempt is in 4 s' plan || fail "no further attempt: $(cat plan)"
status=0
kill $pid
wait $pid || status=$?
pid=
[ "$status" = 1 ] || fail "ended with $status: $(cat plan)"
refuses 1 'gpu: ' "$CHIMERE" serve --restarted 5:0 --port 0 -q --no-odo -t 1 --gpus 9
refuses 1 "--link peer: these cards do not access each other's memory directly" "$CHIMERE" serve --port 0 -q --no-odo \
    --ctx 256 -t 1 --gpus cpu,cpu --split tensor --link peer
# bench: slices without a server, and what they exchange
"$CHIMERE" bench -q -p 64 -n 8 -r 1 -t 1 --bandwidth 10 --gpus cpu,cpu >out || fail "bench --gpus: $(cat out)"
[ "$(grep -c 'exchanged .* sums, .* MB, .* us: .* through the host' out)" = 2 ] || fail "bench --gpus: $(cat out)"
refuses 2 '--gpus: expected several GPUs' "$CHIMERE" bench -q -p 8 -n 0 --gpus cpu
refuses 2 '--gpus: expected neither --verify nor --sms' "$CHIMERE" bench -q -p 8 -n 0 --gpus cpu,cpu --verify
refuses 2 '--gpus and --n-cpu-moe exclude each other' "$CHIMERE" bench -q -p 8 -n 0 --gpus cpu,cpu --n-cpu-moe 1
# more cards than heads
refuses 1 '5 cards, but layer 3 of the model has 4 heads' "$CHIMERE" serve --port 0 -q --no-odo \
    --ctx 256 -t 1 --gpus cpu,cpu,cpu,cpu,cpu --split tensor
# --split none: the first alone
start --gpus cpu,cpu --split none
grep -q ', 2 answers at once)' line || fail "$(cat line)"
stop
