#!/usr/bin/env bash
# bench_strategy.sh [N] [SEED]: what strategies add to greedy answers, for how many tokens: score with 95 %
# interval, tokens and seconds, then greedy and each in pairs (McNemar). Items: N generated word problems and
# chains that training held out, on chimere-nano as it ships (the hard levels) and on a copy of it in 2 bits (the
# plain ones), which errs at random where the other errs always. CHIMERE names the program, PYTHON a python 3.
set -euo pipefail
n=${1:-2000} seed=${2:-31}
root=$(cd "$(dirname "$0")/../.." && pwd)
chimere=${CHIMERE:-$root/build/release/chimere}
model=${MODEL:-$root/models/chimere-nano-bf16.gguf}
python=${PYTHON:-python3}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

half=$(((n + 1) / 2))
"$python" "$root/train/nano/hard.py" "$tmp/hard" --n "$half" --seed "$seed"
"$python" "$root/train/nano/make_eval.py" "$tmp/plain" --n "$half" --seed "$seed" --skill word_problem --skill sum_chain
"$chimere" quantize "$model" "$tmp/q2.gguf" Q2_K --quiet

strategies="greedy majority:n=8,temperature=0.8 best_of_n:n=8,temperature=0.8 weighted:n=8,temperature=0.8 dvts:n=8,width=2,temperature=0.8"
run() { # NAME MODEL ITEMS
    echo "== $1"
    for s in $strategies; do
        "$chimere" eval -m "$2" --suite "$3" --strategy "$s" --seed "$seed" --json --quiet >"$tmp/$1.${s%%:*}"
        echo "-- $s"
        "$python" - "$tmp/$1.${s%%:*}" <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))["total"]
print(" ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in t.items()))
PY
    done
    for s in $strategies; do
        [ "$s" = greedy ] && continue
        echo "-- greedy (A) and $s (B)"
        "$chimere" eval --compare "$tmp/$1.greedy" "$tmp/$1.${s%%:*}"
    done
}
run hard "$model" "$tmp/hard"
run plain-in-2-bits "$tmp/q2.gguf" "$tmp/plain"

# Four branches beside one: the same answer once and four times at once, alternately; medians of 5.
echo "== one branch and four"
head -n 40 "$tmp/plain/word_problem.jsonl" >"$tmp/few.jsonl"
for _ in 1 2 3 4 5; do
    for s in greedy majority:n=4,temperature=0; do
        "$chimere" eval -m "$model" --suite "$tmp/few.jsonl" --strategy "$s" --parallel 4 --json --quiet |
            "$python" -c 'import json, sys; t = json.load(sys.stdin)["items"]; print(sum(r["ms"] for r in t) / len(t))' >>"$tmp/ms.${s%%:*}"
    done
done
"$python" - "$tmp/ms.greedy" "$tmp/ms.majority" <<'PY'
import statistics, sys
one, four = ([float(x) for x in open(p)] for p in sys.argv[1:])
r = statistics.median(b / a for a, b in zip(one, four))
print(f"one {statistics.median(one):.1f} ms, four {statistics.median(four):.1f} ms, ratio {r:.2f}")
PY
