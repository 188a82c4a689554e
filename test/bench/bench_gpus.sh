#!/usr/bin/env bash
# bench_gpus.sh [MODEL [CARDS [STREAMS [DEVICE]]]]: a server on the first of CARDS (0,1), then on all of them as
# replicas, as layers and as slices of layers, each with every number of STREAMS ("1 8 16"; replicas: of each card).
# Tokens per second of all streams, two runs each. MODEL: a file, or a shape of `chimere synth` (qwen35moe-35b) as ramp3.
# DEVICE, such as "2 H100 of one host": adds rows to bench/results/gpus.jsonl, ids gpus.ab.SPLIT.STREAMS. $CHIMERE is the
# program, built with --preset cuda. CARDS=cpu,cpu tries the script without cards.
set -euo pipefail
model=${1:-qwen35moe-35b}
cards=${2:-0,1}
streams=${3:-1 8 16}
device=${4:-}
name=$model
n=$(awk -F, '{ print NF }' <<<"$cards")
most=$(tr ' ' '\n' <<<"$streams" | sort -n | tail -1)
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT

if ! "$CHIMERE" serve --check -q --ctx 1024 --gpus "$cards" >/dev/null 2>"$work/why"; then
    echo "skip: several GPUs: $(head -1 "$work/why")"
    exit 0
fi
if [ ! -f "$model" ]; then
    "$CHIMERE" synth "$model" ramp3 "$work/model.gguf" >/dev/null
    model=$work/model.gguf
fi

start() { # SERVE_ARGS...
    "$CHIMERE" serve -m "$model" --port 0 -q --no-odo --no-speculate --ctx 1024 --parallel "$most" "$@" \
        >"$work/said" 2>&1 &
    pid=$!
    until grep -q 'http://' "$work/said"; do
        kill -0 $pid 2>/dev/null || return 1
        sleep 0.1
    done
    url=$(grep -o "http://[^ ?]*" "$work/said" | head -1)
}
stop() {
    kill $pid
    wait $pid || true
    pid=
}
rate() { # STREAMS: tokens a second of all streams, after their first tokens
    "$CHIMERE" bench --url "$url" --json -p 64 -n 192 --concurrency "$1" --requests $((3 * $1)) |
        sed -n 's/.*"decode_tok_s": \([0-9.]*\).*/\1/p'
}
row() { # SPLIT STREAMS VALUE NOTE
    printf '%-10s %8d streams %10s tokens per second  %s\n' "$1" "$2" "$3" "$4"
    [ -z "$device" ] || python3 tools/figures.py add --device "$device" --id "gpus.ab.$1.$2" \
        --command "script/bench gpus ($name, cards $cards)" --note "$4" \
        --folders src/engine src/kernels/cuda -- bench/results/gpus.jsonl "$name, $1, $2 streams" \
        "decode of all streams" "$3" "tokens per second"
}
measure() { # SPLIT TIMES SERVE_ARGS...
    local split=$1 times=$2 s first second
    shift 2
    if ! start "$@"; then
        printf '%-10s refused: %s\n' "$split" "$(grep -m 1 chimere: "$work/said")"
        wait $pid || true
        pid=
        return 0
    fi
    rate "$most" >/dev/null # to warm up
    for s in $streams; do
        first=$(rate $((times * s)))
        second=$(rate $((times * s)))
        row "$split" $((times * s)) "$(awk -v a="$first" -v b="$second" 'BEGIN { printf "%.0f", (a + b) / 2 }')" \
            "two runs: $first, $second"
    done
    stop
}

measure one 1 --gpus "${cards%%,*}"
measure replica "$n" --gpus "$cards" --split replica
measure layer 1 --gpus "$cards" --split layer
measure tensor 1 --gpus "$cards" --split tensor
