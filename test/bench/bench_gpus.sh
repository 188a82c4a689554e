#!/usr/bin/env bash
# bench_gpus.sh [MODEL [CARDS [STREAMS]]]: a server on one card with STREAMS streams (16), then on all of CARDS (0,1)
# with as many streams a card; one row each. MODEL: a file, or a shape of `chimere synth` (qwen35moe-35b) as ramp3.
# $CHIMERE is the program, built with --preset cuda. CARDS=cpu,cpu tries the script without cards.
set -euo pipefail
model=${1:-qwen35moe-35b}
cards=${2:-0,1}
streams=${3:-16}
n=$(awk -F, '{ print NF }' <<<"$cards")
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
    "$CHIMERE" serve -m "$model" --port 0 -q --no-odo --no-speculate --ctx 1024 --parallel "$streams" "$@" \
        >"$work/said" 2>&1 &
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
rate() { # STREAMS: tokens a second of all streams, behind their first tokens
    "$CHIMERE" bench --url "$url" --json -p 64 -n 192 --concurrency "$1" --requests $((3 * $1)) |
        sed -n 's/.*"decode_tok_s": \([0-9.]*\).*/\1/p'
}

start --gpus "${cards%%,*}"
rate "$streams" >/dev/null # to warm up
one=$(rate "$streams")
stop
start --gpus "$cards" --split replica
rate $((n * streams)) >/dev/null
all=$(rate $((n * streams)))
shares=$(curl -s "$url/metrics" | sed -n 's/^chimere_card_jobs_given{.* //p' | paste -sd' ')
stop
printf '%-44s %10s tok/s\n' "one card, $streams streams" "$one" "$n cards, $((n * streams)) streams" "$all"
awk -v a="$one" -v b="$all" -v n="$n" -v s="$shares" 'BEGIN {
    printf "ratio %.3f, at least %.3f: %s; answers a card: %s\n", b / a, .975 * n, (b / a >= .975 * n ? "holds" : "MISSED"), s }'
