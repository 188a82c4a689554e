#!/usr/bin/env bash
# bench/families.sh [SHAPE...]: speed of a small synthetic model per family, one line each.
#
# With DEVICE=cuda: tokens per second of chimere bench, prefill of 2,048 tokens and decoding of 64. Otherwise tokens per
# second of processor time on one thread, prefill of 128 and decoding of 16, which other work on the machine disturbs
# less; and beside it llama.cpp's if LLAMA_SPEED is set, a build of bench/llama_speed.c: both run by turns in ROUNDS (3)
# rounds, of which the least times count. MIX (q4km), CHIMERE and WORK (a folder for the models) may be set.
set -euo pipefail
cd "$(dirname "$0")/.."
chimere=${CHIMERE:-build/release/chimere} device=${DEVICE:-cpu} mix=${MIX:-q4km} rounds=${ROUNDS:-3}
work=${WORK:-$(mktemp -d)}
[ $# -gt 0 ] || set -- granite-mini granite-moe-mini ministral-mini lfm2-mini lfm2-moe-mini nemotron-super-mini \
    gpt-oss-mini gemma3-mini gemma4-mini gemma4-moe-mini olmo-hybrid-mini glm-flash-mini

seconds() { # COMMAND...: its processor time; nothing if it fails
    local TIMEFORMAT=%U
    { time "$@" >/dev/null 2>&1 || return 1; } 2>&1
}
per_second() { # TOKENS LONG SHORT: the repetitions by which the runs differ
    awk -v n="$1" -v a="$2" -v b="$3" 'BEGIN { if (a > b) printf "%.1f", n / (a - b); else printf "-" }'
}
least() { # A B: the smaller; A may be empty
    awk -v a="$1" -v b="$2" 'BEGIN { print (a == "" || b < a) ? b : a }'
}
ours() { # N_PROMPT N_GEN REPETITIONS
    seconds "$chimere" bench -q -m "$file" --device cpu -t 1 --bandwidth 10 -p "$1" -n "$2" -r "$3"
}
on_cpu() {
    local -A t=()
    local round name s
    for ((round = 0; round < rounds; round++)); do
        for name in ours.128.0.1 ours.128.0.2 ours.0.16.1 ours.0.16.3 \
            ${LLAMA_SPEED:+llama.128.0.1 llama.128.0.2 llama.0.16.1 llama.0.16.3}; do
            IFS=. read -r who p n r <<<"$name"
            if [ "$who" = ours ]; then s=$(ours "$p" "$n" "$r"); else s=$(seconds "$LLAMA_SPEED" "$file" "$p" "$n" "$r") || continue; fi
            t[$name]=$(least "${t[$name]:-}" "$s")
        done
    done
    printf '%s prefill %s decode %s' "$shape" "$(per_second 128 "${t[ours.128.0.2]}" "${t[ours.128.0.1]}")" \
        "$(per_second 32 "${t[ours.0.16.3]}" "${t[ours.0.16.1]}")"
    if [ -n "${t[llama.0.16.3]:-}" ]; then
        printf ' llama.cpp prefill %s decode %s' "$(per_second 128 "${t[llama.128.0.2]}" "${t[llama.128.0.1]}")" \
            "$(per_second 32 "${t[llama.0.16.3]}" "${t[llama.0.16.1]}")"
    elif [ -n "${LLAMA_SPEED:-}" ]; then printf ' llama.cpp does not open it'; fi
    echo
}
on_card() {
    "$chimere" bench -q -m "$file" --device "$device" --bandwidth 10 -p 2048 -n 64 -r 2 --json |
        awk -v s="$shape" '/"test"/ { gsub(/[",]/, ""); t = $2 } /"tok_s":/ { gsub(/,/, ""); v[t] = $2 }
            END { printf "%s prefill %s decode %s\n", s, v["prefill"], v["decode"] }'
}
for shape; do
    file=$work/$shape.gguf
    [ -s "$file" ] || "$chimere" synth "$shape" "$mix" "$file" >/dev/null
    if [ "$device" = cpu ]; then on_cpu; else on_card; fi
    [ -n "${WORK:-}" ] || rm "$file"
done
