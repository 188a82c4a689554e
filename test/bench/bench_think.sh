#!/usr/bin/env bash
# What each way to spend tokens costs and gains: one row a strategy, the same items, paired with plain thinking.
# $1: items of each kind (default 1000); hours shrink to minutes with 50. $THINK_OUT keeps the runs and the figure.
set -euo pipefail
cd "$(dirname "$0")/../.."
n=${1:-1000}
model=${THINK_MODEL:-models/chimere-nano-bf16.gguf}
command -v python3 >/dev/null || { echo "skip: python3 writes the items: apt-get install python3"; exit 0; }
[ -f "$model" ] || { echo "skip: $model is not there"; exit 0; }
out=${THINK_OUT:-$(mktemp -d)}
[ -n "${THINK_OUT:-}" ] || trap 'rm -rf "$out"' EXIT
mkdir -p "$out/runs"
(cd train/nano && python3 hard.py "$out/items" --n "$n" --seed 31)

# name | arguments. ultra is everything; the rows behind it leave out one part each.
stop='"stop_when_sure": 0.97, "min_tokens": 8' suppress='"suppress": 0.9' extend='"extend": 2, "unsure": 0.7'
rows="think|--strategy think
fast|--strategy fast
auto|--strategy auto
stop+suppress+extend|--strategy think --think {$stop,$suppress,$extend}
without stop|--strategy think --think {$suppress,$extend}
without suppress|--strategy think --think {$stop,$extend}
without extend|--strategy think --think {$stop,$suppress}
majority of 8|--strategy think+majority:n=8
best of 8|--strategy think+best_of_n:n=8
weighted of 8|--strategy think+weighted:n=8
beam 8|--strategy think+beam:n=8
dvts 8|--strategy think+dvts:n=8
auto, majority of 8|--strategy auto+majority:n=8"

field() { sed -n "s/^  *\"$1\": \([-0-9.e+]*\).*/\1/p" "$2" | head -1; }
printf '%-22s %7s %15s %9s %9s %8s %7s   %s\n' strategy right '95 % interval' thinking tokens 'ms each' seconds 'points against think'
while IFS='|' read -r name args; do
    file=$out/runs/${name//[ ,+]/_}.json
    read -r _ strategy rest <<<"$args"
    words=(--strategy "$strategy")
    [ -z "$rest" ] || words+=(--think "${rest#--think }")
    if [ ! -s "$file" ]; then # a run that is there is kept: an interrupted bench goes on
        "$CHIMERE" eval -m "$model" --suite "$out/items" --parallel "${THINK_PARALLEL:-32}" -q --json "${words[@]}" >"$file.part" || {
            echo "$name: skipped, see above"
            continue
        }
        mv "$file.part" "$file"
    fi
    total=$(mktemp)
    sed -n '/"total"/,/}/p' "$file" >"$total"
    against=$("$CHIMERE" eval --compare "$out/runs/think.json" "$file" | sed -n 's/^B - A: //p; s/^thinking an item: .*: \(.* fewer\), /, thinking \1 /p' | tr -d '\n')
    awk -v name="$name" -v right="$(field score "$total")" -v low="$(field low "$total")" -v high="$(field high "$total")" \
        -v think="$(field n_thinking "$total")" -v tokens="$(field n_tokens "$total")" -v ms="$(field ms "$total")" \
        -v s="$(field seconds "$total")" -v against="$against" \
        'BEGIN { printf "%-22s %6.1f%% %6.1f .. %5.1f%% %9.1f %9.1f %8.0f %7.0f   %s\n", name, 100 * right, 100 * low, 100 * high, think, tokens, ms, s, against }'
    rm -f "$total"
done <<<"$rows"
python3 train/nano/plot_runs.py "$out/thinking.svg" "$out"/runs/*.json
[ -z "${THINK_OUT:-}" ] || echo "figure: $out/thinking.svg"
