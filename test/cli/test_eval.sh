#!/usr/bin/env bash
# eval: a run over items of our own, its bookkeeping, comparison of runs, bits per byte by hand.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

field() { sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" "$2" | head -1; }

# comparison: hand-made runs, 1 against 9 pairs that differ, p = 2 (1 + 10) / 1024
row() { echo "{\"id\": \"s-$1\", \"skill\": \"$2\", \"right\": $3}"; }
rows() { # A's and B's answers: 5 both right, 1 only A, 9 only B, 5 neither
    for i in $(seq 20); do
        a=false b=false
        [ "$i" -gt 6 ] || a=true
        [ "$i" -eq 6 ] || [ "$i" -gt 15 ] || b=true
        [ "$i" -eq 1 ] || echo ,
        row "$i" "$([ "$i" -gt 10 ] && echo late || echo early)" "$([ "$1" = a ] && echo $a || echo $b)"
    done
}
echo "{\"items\": [$(rows a)]}" >a.json
echo "{\"items\": [$(rows b)]}" >b.json
"$CHIMERE" eval --compare a.json b.json --json | tr -d ' \n' >got
grep -q '"total":{"n":20,"a":0.3[0-9]*,"b":0.7[0-9]*,"only_a":1,"only_b":9,"p":0.02148437' got || fail "compare: $(cat got)"
grep -q '{"n":10,"a":0.6[0-9]*,"b":0.9[0-9]*,"only_a":1,"only_b":4,"p":0.375[0-9]*,[^}]*"skill":"early"}' got || fail "compare: $(cat got)"
# 8 of 20 more: 0.4 -+ 1.959964 sqrt(10 - 64 / 20) / 20
grep -q '"gain":0.4[0-9]*,"low":0.1444[0-9]*,"high":0.6555' got || fail "paired interval: $(cat got)"
"$CHIMERE" eval --compare a.json a.json | grep -E '^all .* 0 +0 +1\.0000$' >/dev/null || fail "a run against itself"
refuses 2 "expected A.json B.json" "$CHIMERE" eval --compare a.json
echo '{"items": [{"id": 3}]}' >bad.json
refuses 1 "expected id, skill and right" "$CHIMERE" eval --compare a.json bad.json
echo '{"items": []}' >none.json
refuses 1 "no item in common" "$CHIMERE" eval --compare a.json none.json
echo nonsense >nonsense.json
refuses 1 "expected a run" "$CHIMERE" eval --compare a.json nonsense.json

# bits per byte of a text within one window: every token but the first, from the logits command
"$CHIMERE" synth qwen35moe-mini q8 m.gguf --layers 4 --experts 4 --vocab 512 >/dev/null
printf 'The 12 cats sat on 84 mats; none of them moved.' >text
"$CHIMERE" tokenize -m m.gguf <text | tr -s ' ,' '\n\n' | grep . >ids
"$CHIMERE" logits -m m.gguf --tokens "$(paste -sd, ids)" --all -q | od -An -v -tf4 -w2048 >rows
first=$(head -1 ids | "$CHIMERE" detokenize -m m.gguf | wc -c)
want=$(awk -v n="$(wc -c <text)" -v first="$first" 'NR == FNR { id[NR] = $1; t = NR; next }
    FNR < t { s = 0; for (i = 1; i <= NF; i++) s += exp($i); bits += (log(s) - $(id[FNR + 1] + 1)) / log(2) }
    END { print bits / (n - first) }' OFMT=%.9g ids rows)
"$CHIMERE" eval -m m.gguf --text text -q --json >got
awk -v a="$(field bits_per_byte got)" -v b="$want" 'BEGIN { d = a - b; exit !(d * d <= 1e-8 * b * b) }' ||
    fail "bits per byte: expected $want, got $(field bits_per_byte got)"
# overlapping windows score the same tokens
for i in $(seq 30); do cat text; done >long
"$CHIMERE" eval -m m.gguf --text long -q --json >one
"$CHIMERE" eval -m m.gguf --text long -q --json --ctx 64 >many
[ "$(field n_tokens one)" = "$(field n_tokens many)" ] || fail "windows: $(field n_tokens many) tokens"

# items: damaged ones are refused by line before a model is opened
item='{"id": "i-0", "skill": "i", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, '
echo "$item\"check\": {\"kind\": \"exact\", \"answer\": [\"x\"]}}" >good.jsonl
{ cat good.jsonl; echo "$item\"check\": {\"kind\": \"guess\"}}"; } >bad.jsonl
refuses 1 "bad.jsonl:2" "$CHIMERE" eval -m missing.gguf --suite bad.jsonl
echo '{"id": "i-0"}' >bad.jsonl
refuses 1 "field skill" "$CHIMERE" eval -m missing.gguf --suite bad.jsonl
refuses 1 "no skill, file or folder named 'nope'" "$CHIMERE" eval -m missing.gguf --suite nope

# a run of the shipped model: the same answers alone and together, and totals that add up
model=$SOURCE_DIR/models/chimere-nano-bf16.gguf
[ -f "$model" ] || { echo "skip: no shipped model"; exit 0; }
run() { "$CHIMERE" eval -m "$model" --suite "$SOURCE_DIR/eval" -n 1 -q --json --ctx 1024 "$@"; }
run >together
run --parallel 1 >alone
cmp together alone || fail "answers change with the number of sequences"
n=$(cat "$SOURCE_DIR"/eval/*.jsonl | grep -o '"skill": "[a-z_]*"' | sort -u | wc -l)
[ "$(grep -c '"id"' together)" = "$n" ] || fail "$(grep -c '"id"' together) answers to $n items"
[ "$(grep -c '"right": true' together)" -ge $((n / 2)) ] || fail "the shipped model fails most items"

# strategies: greedy through one says what the engine says; unknown ones are refused by name
items=$SOURCE_DIR/eval/word_problem.jsonl
hard=$SOURCE_DIR/eval/hard/hard_problem.jsonl
"$CHIMERE" eval -m "$model" --suite "$items" -n 8 -q --json >engine
"$CHIMERE" eval -m "$model" --suite "$items" -n 8 -q --json --strategy greedy >strategy
"$CHIMERE" eval --compare engine strategy | grep -E '^all +8 .* 0 +0 +1\.0000$' >/dev/null || fail "greedy by a strategy"
"$CHIMERE" eval -m "$model" --suite "$hard" -n 6 -q --json --strategy think >think
"$CHIMERE" eval -m "$model" --suite "$hard" -n 6 -q --json --strategy fast >fast
"$CHIMERE" eval -m "$model" --suite "$hard" -n 6 -q --json --think '{"budget_tokens": 5}' >budget
awk -v t="$(field n_thinking think)" -v f="$(field n_thinking fast)" 'BEGIN { exit !(t > 10 && f == 0) }' ||
    fail "thinking: $(field n_thinking think), without: $(field n_thinking fast)"
"$CHIMERE" eval --compare think fast | grep '^thinking an item: .* 100.0% fewer' >/dev/null || fail "tokens saved"
# five tokens and the mark that ends them
grep -q '"n_thinking": 6,' budget || fail "a budget of five: $(grep n_thinking budget | sort | uniq -c)"
refuses 2 'expected a name, got "nope"' "$CHIMERE" eval -m "$model" --suite "$hard" --strategy nope
refuses 2 'think.window: expected' "$CHIMERE" eval -m "$model" --suite "$hard" --think '{"window": 0}'
echo "eval: ok"
