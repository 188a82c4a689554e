#!/usr/bin/env bash
# What each way to spend tokens costs and gains: one row a strategy, the same items, paired with plain thinking; then the
# time of four branches beside one. $1: items of each kind (default 1000, hours; 50: minutes). They are answered in
# parts of 50 of each kind, every row's before the next part. $THINK_OUT keeps the parts and the figure: an
# interrupted bench goes on there, and what there is can be read at any time with $1 smaller. $THINK_ROWS: a
# regular expression of the rows wanted.
set -euo pipefail
cd "$(dirname "$0")/../.."
n=${1:-1000} size=50 seed=31
model=${THINK_MODEL:-models/chimere-nano-bf16.gguf}
command -v python3 >/dev/null || { echo "skip: python3 writes the items: apt-get install python3"; exit 0; }
[ -f "$model" ] || { echo "skip: $model is not there"; exit 0; }
out=${THINK_OUT:-$(mktemp -d)}
[ -n "${THINK_OUT:-}" ] || trap 'rm -rf "$out"' EXIT
mkdir -p "$out/parts" "$out/runs"
(cd train/nano && python3 hard.py "$out/items" --n 1000 --seed "$seed")
n_part=$(((n + size - 1) / size))

# name | arguments. ultra is everything; the rows behind it leave out one part each.
stop='"stop_when_sure": 0.97, "min_tokens": 8' suppress='"suppress": 0.9' extend='"extend": 2, "unsure": 0.7'
rows="think|--strategy think
fast|--strategy fast
auto|--strategy auto
stop+suppress+extend|--strategy think --think {$stop,$suppress,$extend}
without stop|--strategy think --think {$suppress,$extend}
without suppress|--strategy think --think {$stop,$extend}
without extend|--strategy think --think {$stop,$suppress}
majority of 8|--strategy think+majority:n=8,temperature=0.8
majority at equal tokens|--strategy think+majority:n=17,temperature=0.8
best of 8|--strategy think+best_of_n:n=8,temperature=0.8
weighted of 8|--strategy think+weighted:n=8,temperature=0.8
beam 8|--strategy think+beam:n=8,width=2,temperature=0.8
dvts 8|--strategy think+dvts:n=8,width=2,temperature=0.8"
rows=$(grep -E "^(${THINK_ROWS:-.*})\|" <<<"$rows")

file_of() { echo "${1//[ ,+]/_}"; }
for ((part = 0; part < n_part; part++)); do
    items=$out/items/$part
    mkdir -p "$items"
    for kind in hard_chain hard_problem; do
        sed -n "$((part * size + 1)),$((part * size + size < n ? part * size + size : n))p" "$out/items/$kind.jsonl" >"$items/$kind.jsonl"
    done
    while IFS='|' read -r name args; do
        file=$out/parts/$(file_of "$name").$part.json
        [ -s "$file" ] && continue
        read -r _ strategy rest <<<"$args"
        words=(--strategy "$strategy")
        [ -z "$rest" ] || words+=(--think "${rest#--think }")
        "$CHIMERE" eval -m "$model" --suite "$items" --parallel "${THINK_PARALLEL:-32}" --threads "${THINK_THREADS:-0}" \
            --seed $((seed + part)) -q --json "${words[@]}" >"$file.part"
        mv "$file.part" "$file"
    done <<<"$rows"
done

# One run of all parts of a row: RUN.json PART.json...
merge() {
    python3 - "$@" <<'PY'
import json, sys
runs = [json.load(open(f)) for f in sys.argv[2:]]
items = [i for r in runs for i in r["items"]]
n, k, z = len(items), sum(i["right"] for i in items), 1.959964
middle, half = (k + z * z / 2) / (n + z * z), z * (k * (n - k) / n + z * z / 4) ** 0.5 / (n + z * z)
total = dict(runs[0]["total"], n=n, right=k, score=k / n, low=middle - half, high=middle + half,
             seconds=sum(r["total"]["seconds"] for r in runs),
             **{x: sum(i[x] for i in items) / n for x in ("n_tokens", "n_thinking", "n_check", "ms")})
with open(sys.argv[1], "w") as f:
    json.dump({"model": runs[0]["model"], "total": total, "items": items}, f, indent=1)
PY
}
field() { sed -n "s/^  *\"$1\": \([-0-9.e+]*\).*/\1/p" "$2" | head -1; }
printf '%-22s %6s %7s %15s %9s %9s %8s %7s   %s\n' strategy items right '95 % interval' thinking tokens 'ms each' seconds 'points against think'
base=$out/runs/think.json
while IFS='|' read -r name args; do
    file=$out/runs/$(file_of "$name").json parts=()
    for ((part = 0; part < n_part; part++)); do parts+=("$out/parts/$(file_of "$name").$part.json"); done
    merge "$file" "${parts[@]}"
    against=
    [ ! -s "$base" ] || against=$("$CHIMERE" eval --compare "$base" "$file" | sed -n 's/^B - A: //p; s/^thinking an item: .*: \(.* fewer\), /, thinking \1 /p' | tr -d '\n')
    total=$(mktemp)
    sed -n '/"total"/,/}/p' "$file" >"$total"
    awk -v name="$name" -v n="$(field n "$total")" -v right="$(field score "$total")" -v low="$(field low "$total")" -v high="$(field high "$total")" \
        -v think="$(field n_thinking "$total")" -v tokens="$(field n_tokens "$total")" -v ms="$(field ms "$total")" \
        -v s="$(field seconds "$total")" -v against="$against" \
        'BEGIN { printf "%-22s %6d %6.1f%% %6.1f .. %5.1f%% %9.1f %9.1f %8.0f %7.0f   %s\n", name, n, 100 * right, 100 * low, 100 * high, think, tokens, ms, s, against }'
    rm -f "$total"
done <<<"$rows"
python3 train/nano/plot_runs.py "$out/thinking.svg" "$out"/runs/*.json
[ -z "${THINK_OUT:-}" ] || echo "figure: $out/thinking.svg"

# The same answer once and four times at once, alternately: seconds for all, the median of 5 ratios.
mkdir -p "$out/few"
head -n 12 "$out/items/hard_problem.jsonl" >"$out/few/hard_problem.jsonl"
for _ in 1 2 3 4 5; do
    for s in 1:greedy 4:majority:n=4,temperature=0; do
        "$CHIMERE" eval -m "$model" --suite "$out/few/hard_problem.jsonl" --strategy "${s#*:}" --parallel "${s%%:*}" -q --json >"$out/few/${s%%:*}.json"
    done
    echo "$(field seconds "$out/few/1.json") $(field seconds "$out/few/4.json")"
done | awk '{ print $1, $2, $2 / $1 }' | sort -k3n | sed -n 3p | awk '{ printf "12 answers one by one: %.2f s; four times each, at once: %.2f s; ratio %.2f\n", $1, $2, $3 }'
