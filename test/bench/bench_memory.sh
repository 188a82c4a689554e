#!/usr/bin/env bash
# bench_memory.sh [SEED]: what the n-gram memory is worth on the shipped model: the tables of docs/engram.md.
#
# Articles, questions and items are generated from SEED (9001). CORPUS=FOLDER with domain-cyber.txt.xz,
# books-general.txt.xz, domain-kine.txt.xz, domain-code.txt.xz and textbooks.txt.xz adds perplexity on text
# on computer security. About ten minutes; every table says what it measures.
set -euo pipefail
seed=${1:-9001}
chimere=${CHIMERE:-$PWD/build/release/chimere}
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# cpu COMMAND...: its processor time in seconds, in $cpu; its output in the file out.
cpu() {
    local TIMEFORMAT='%U %S'
    cpu=$({ time "$@" >out 2>err; } 2>&1 | awk '{ print $1 + $2 }')
}
median() { sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
field() { sed -n "s/.*\"$1\": *\([-0-9.e]*\).*/\1/p" "$2" | head -n 1; }

echo "-- facts of the withheld part, exact match of 300 questions (seed $seed)"
(
    cd "$root/train/nano"
    python3 articles.py "$work/art" --seed "$seed" >/dev/null
    python3 make_eval.py "$work/items" --n 80 --seed $((seed + 10))
    python3 make_eval.py "$work/facts" --n 300 --seed $((seed + 6)) --skill fact_withheld
)
rm -f items/fact_withheld.jsonl
facts() { printf '%-42s %s\n' "$1" "$("$chimere" eval -q --suite facts/fact_withheld.jsonl "${@:2}" | tail -n 1)"; }
facts "without"
for kind in same mixed other; do
    "$chimere" engram build -q -o $kind.engram art/$kind art/noise >/dev/null
    facts "articles, wording: $kind" --engram $kind.engram
done

echo "-- facts that the articles do not contain: how often the answer is that it is not known"
"$chimere" engram build -q -o lacking.engram art/lacking art/noise >/dev/null
"$chimere" eval -q --suite art/lacking.jsonl | tail -n +2
"$chimere" eval -q --suite art/lacking.jsonl --engram lacking.engram | tail -n +2

echo "-- other skills, $(cat items/*.jsonl | wc -l) items, without (A) and with the articles (B)"
"$chimere" eval -q --suite items --parallel 8 --json >a.json
"$chimere" eval -q --suite items --parallel 8 --engram mixed.engram --json >b.json
"$chimere" eval --compare a.json b.json

echo "-- generated articles: a table of one wording, text of the other wording (disjoint documents)"
mkdir in
i=0
for f in art/other/*.txt; do
    cat "$f" >>in/articles.txt
    echo '<|doc|>' >>in/articles.txt
    i=$((i + 1))
done
"$chimere" engram eval -q same.engram --in in/articles.txt --other "$root/docs" --other "$root/texts/general" \
    --other "$root/texts/kine" --eval-tokens 6000 --fit | sed '/^weights/,$d'

if [ -n "${CORPUS:-}" ]; then
    echo "-- computer security: a table of four documents of five, text of the fifth; fitted on every other one"
    for t in domain-cyber books-general domain-kine domain-code textbooks; do xz -dc "$CORPUS/$t.txt.xz" >$t.txt; done
    awk 'BEGIN { n = 0 } /^<\|doc\|>$/ { n++; print >"cyber-table.txt"; print >"cyber-eval.txt"; next }
        { print >(n % 5 == 4 ? "cyber-eval.txt" : "cyber-table.txt") }' domain-cyber.txt
    "$chimere" engram build -q -o cyber.engram cyber-table.txt
    "$chimere" engram eval -q cyber.engram --in cyber-eval.txt --other books-general.txt --other domain-kine.txt \
        --other domain-code.txt --other textbooks.txt --eval-tokens 4000 --fit | sed '/^weights/,$d'
fi

echo "-- drafts at 2 threads: a table of this source; decode speed against no speculation"
"$chimere" engram build -q -o code.engram "$root/src/base" "$root/src/engram" >/dev/null
pair() { # NAME FILE BASE-OPTIONS... -- the table's drafts against it
    local ratios=() same='the same'
    for _ in 1 2 3; do
        "$chimere" run -m nano --raw -f "$2" -n 160 --temp 0 -t 2 -q --json --no-speculate --engram code.engram >a.json
        "$chimere" run -m nano --raw -f "$2" -n 160 --temp 0 -t 2 -q --json --draft-max 8 --engram code.engram >b.json
        [ "$(grep '"content"' a.json)" = "$(grep '"content"' b.json)" ] || same=another
        ratios+=("$(awk -v a="$(field decode_ms a.json)" -v b="$(field decode_ms b.json)" 'BEGIN { printf "%.2f", a / b }')")
    done
    printf '%-24s %5sx  %s text, %s of %s drafted tokens held\n' "$1" "$(printf '%s\n' "${ratios[@]}" | median)" "$same" \
        "$(field n_accepted b.json)" "$(field n_drafted b.json)"
}
for f in base/buf.c base/map.c engram/sort.c engram/mix.c engram/table.c; do
    head -c 700 "$root/src/$f" >start.txt
    pair "src/$f" start.txt
done
for _ in 1 2 3 4 5 6; do echo "The red fox jumps over the fence, and the dog sleeps in the shade of the old tree."; done >repeat.txt
"$chimere" engram build -q -o code.engram repeat.txt >/dev/null
head -c 200 repeat.txt >start.txt
pair "repeated text" start.txt
"$chimere" engram build -q -o code.engram "$root/src/base" >/dev/null
printf 'Once upon a time there was a cat who lived in a small house' >start.txt
pair "a story, not in it" start.txt

echo "-- the mixture's cost, synth qwen35moe-mini q4km: a table of what the model says, so that every token has a context"
"$chimere" synth qwen35moe-mini q4km mini.gguf >/dev/null
head -c 600 "$root/src/base/buf.c" >start.txt
"$chimere" run -m mini.gguf --raw -f start.txt -n 121 --temp 0 -t 1 -q --no-speculate >own.txt
cat start.txt own.txt >said.txt
"$chimere" engram build -q -m mini.gguf -o mini.engram said.txt >/dev/null
step() { # OPTIONS...: milliseconds of processor time a token: of 120, those of loading and of one token taken off
    cpu "$chimere" run -m mini.gguf --raw -f start.txt -n 1 --temp 0 -t 1 -q --no-speculate "$@"
    local one=$cpu
    cpu "$chimere" run -m mini.gguf --raw -f start.txt -n 121 --temp 0 -t 1 -q --no-speculate "$@"
    awk -v a="$one" -v b="$cpu" 'BEGIN { print 1000 * (b - a) / 120 }'
}
for _ in 1 2 3 4 5; do
    step >>without
    step --engram mini.engram >>with
done
least() { sort -n | head -n 1; }
awk -v a="$(least <without)" -v b="$(least <with)" \
    'BEGIN { printf "a token of one thread: without %.2f ms, with %.2f ms, least of five in turn: %+.2f %%\n", a, b, 100 * (b / a - 1) }'
# a busy machine's difference says little: beside it the share of what perf saw
if command -v perf >/dev/null &&
    perf record -q -e cpu-clock:u -F 4000 -o perf.data "$chimere" run -m mini.gguf --raw -f start.txt -n 121 --temp 0 -t 1 -q \
        --no-speculate --engram mini.engram >/dev/null 2>&1; then
    perf report -i perf.data --no-children --stdio -g none 2>/dev/null | awk -v ms="$(least <without)" '
        /Event count/ { ns = $NF } /engram_|memory_/ { share += $1 }
        END { us = ns * share / 100 / 121 / 1000; printf "of samples: %.0f us a token, %.2f %%\n", us, us / ms / 10 }'
else
    echo "skip: share of samples: no perf: apt-get install linux-perf"
fi

echo "-- commands, processor time"
mkdir text
cp -r "$root/src" "$root/docs" "$root/train" "$root/test/unit" text/
bytes=$(find text -type f -not -path '*/.*' -print0 | xargs -0 cat | wc -c)
timed() {
    cpu "$chimere" engram "${@:2}"
    printf '%-44s %6.2f s   %s\n' "$1" "$cpu" "$(tail -n 1 out | cut -c1-90 | sed "s#$work/##g")"
}
timed "sync, $((bytes / 1000)) kB, new" sync --engram-dir . --domain t text
timed "sync, nothing changed" sync --engram-dir . --domain t text
echo "one more line" >>text/docs/engram.md
timed "sync, one file changed" sync --engram-dir . --domain t text
timed build build -q -o u.engram text
sed -n 's/.*(\([0-9.]*\) MB\/s)/\1/p' out | awk '{ print "build: MB of text a second of one core: " $1 ", at least 2: " ($1 >= 2 ? "holds" : "MISSED") }'
timed "merge of two" merge -o v.engram t.engram u.engram
timed decay decay u.engram -o w.engram
timed forget forget u.engram --source text/docs/engram.md -o w.engram
timed query query t.engram 'static int'
timed stats stats t.engram
timed verify verify t.engram
