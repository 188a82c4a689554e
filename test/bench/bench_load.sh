#!/usr/bin/env bash
# bench_load.sh [SECONDS]: a server as people run it, under load from outside, against `chimere bench` on the same
# machine: pairs in turn, medians.
# SECONDS of 64 streams at the end: 60, or 600 for the full soak. Needs curl. $CHIMERE is the program.
set -euo pipefail
soak=${1:-60}
threads=$(nproc)
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
row() { printf '%-58s %12s %12s  %s\n' "$@"; }
verdict() { awk -v a="$1" -v b="$2" -v op="$3" 'BEGIN { print (op == "<=" ? a <= b : a >= b) ? "holds" : "MISSED" }'; }

start() { # MODEL_ARGS...: a server on a free port
    "$CHIMERE" serve --port 0 -q --no-speculate --parallel 64 "$@" >"$work/said" 2>&1 &
    pid=$!
    until grep -q 'http://' "$work/said"; do
        kill -0 $pid || { cat "$work/said" >&2; exit 1; }
        sleep 0.1
    done
    url=$(grep -o "http://[^ ?]*" "$work/said" | head -1)
}
stop() {
    kill $pid
    wait $pid || true
    pid=
}
load() { "$CHIMERE" bench --url "$url" --json "$@"; }
# Processor time in nanoseconds of all threads but the busiest, which is the engine's where it works alone.
other_ns() { cat /proc/$pid/task/*/schedstat | awk '{ s += $1; if ($1 > m) m = $1 } END { printf "%.0f\n", s - m }'; }
all_ns() { cat /proc/$pid/task/*/schedstat | awk '{ s += $1 } END { printf "%.0f\n", s }'; }
rss_kb() { awk '/^VmRSS/ { print $2 }' /proc/$pid/status; }

# decode, in pairs: the engine alone, then behind HTTP, from first tokens to last
pairs() { # NAME N_SEQ LEAST
    local name=$1 n=$2 least=$3 a b ratio
    for _ in 1 2 3; do
        a=$("$CHIMERE" bench -m "$model" -p 0 -n 128 -r 2 -t "$threads" --parallel "$n" --bandwidth 1 --json | field tok_s)
        b=$(load -p 8 -n 128 --concurrency "$n" --requests $((n * 2)) | field decode_tok_s)
        echo "$a $b $(awk -v a="$a" -v b="$b" 'BEGIN { print b / a }')"
    done >"$work/pairs"
    a=$(cut -d' ' -f1 "$work/pairs" | median)
    b=$(cut -d' ' -f2 "$work/pairs" | median)
    ratio=$(cut -d' ' -f3 "$work/pairs" | median)
    row "$name: tok/s alone, behind HTTP" "$a" "$b" "ratio $ratio, at least $least: $(verdict "$ratio" "$least" '>=')"
}

row "" "alone" "behind HTTP" ""
model=$work/mini.gguf
"$CHIMERE" synth qwen35moe-mini q4km "$model" >/dev/null 2>&1
start -m "$model" --ctx 512
pairs "qwen35moe-mini q4km, 1 stream" 1 0.98
pairs "qwen35moe-mini q4km, 8 streams" 8 0.90
stop
rm "$model"

# time to first token: the whole request as curl sees it, less what the engine says it took
start --ctx 512 -t 1
body='{"messages":[{"role":"user","content":"What is 12 plus 30?"}],"max_tokens":1,"temperature":0,"cache_prompt":false}'
for _ in $(seq 60); do
    curl -s -o "$work/answer" -w '%{time_total}\n' "$url/v1/chat/completions" -d "$body" >"$work/time"
    awk -v total="$(cat "$work/time")" -v q="$(sed 's/.*"queue_ms":\([0-9.]*\).*/\1/' "$work/answer")" \
        -v p="$(sed 's/.*"prompt_ms":\([0-9.]*\).*/\1/' "$work/answer")" \
        -v d="$(sed 's/.*"predicted_ms":\([0-9.]*\).*/\1/' "$work/answer")" 'BEGIN { print total * 1000 - p - d }'
done >"$work/over"
over=$(median <"$work/over")
row "nano: ms that a request takes beyond the engine's work" "" "$over" "at most 2: $(verdict "$over" 2 '<=')"

# processor time outside the engine's thread, which computes alone here
load -p 8 -n 64 --concurrency 4 --requests 8 >/dev/null
before=$(other_ns)
tokens=$(load -p 8 -n 256 --concurrency 4 --requests 24 | field tokens)
us=$(awk -v a="$before" -v b="$(other_ns)" -v n="$tokens" 'BEGIN { printf "%.1f\n", (b - a) / n / 1000 }')
row "nano: us of processor time a token, beside the engine" "" "$us" "at most 40: $(verdict "$us" 40 '<=')"

# idle connections
quiet_ns() { local a; a=$(all_ns); sleep 3; awk -v a="$a" -v b="$(all_ns)" 'BEGIN { printf "%.3f\n", (b - a) / 3e7 }'; }
rate() { for _ in 1 2 3; do load -p 8 -n 256 --concurrency 1 --requests 3 | field tok_s; done | median; }
idle=$(quiet_ns) a=$(rate) rss=$(rss_kb)
port=${url##*:}
for _ in $(seq 200); do
    exec {fd}<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET /health HTTP/1.1\r\nHost: x\r\n\r\n' >&"$fd"
done
sleep 0.5
idle200=$(quiet_ns) b=$(rate) rss200=$(rss_kb)
row "200 idle connections: tok/s without, with" "$a" "$b" "ratio $(awk -v a="$a" -v b="$b" 'BEGIN { print b / a }')"
row "200 idle connections: % of a core, idle" "$idle" "$idle200" "memory $rss -> $rss200 kB"

stop

# 64 streams: first until all budgets are full, then SECONDS in which nothing may grow
if CHIMERE=$(realpath "$CHIMERE") bash "$(dirname "$0")/../../bench/soak.sh" "$soak" >"$work/soak" 2>&1; then end=holds; else end=MISSED; fi
row "64 streams for $soak s: no error, memory grows at most 1 %" "" "" "$(grep -E '^memory|requests failed' "$work/soak" | tr '\n' ';') $end"
