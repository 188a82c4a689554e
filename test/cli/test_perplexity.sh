#!/usr/bin/env bash
# perplexity: figures against sums over the logits of each window, bases written and read, damage refused.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# close A B: equal to a relative 1e-4
close() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d <= 1e-4 * (b < 0 ? -b : b)) }'; }
field() { sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" "$2" | head -1; }

# a reading text, about 300 tokens of a vocabulary of 512
for i in $(seq 40); do echo "The $i cats sat on $((i * 7)) mats; none of them moved."; done >text
"$CHIMERE" synth qwen35moe-mini q8 m.gguf --layers 4 --experts 4 --vocab 512 >/dev/null
ctx=32
"$CHIMERE" tokenize -m m.gguf <text | tr -s ' ,' '\n\n' | grep . >ids
n_window=$(($(wc -l <ids) / ctx))
[ "$n_window" -ge 3 ] || fail "the text has $(wc -l <ids) tokens"

# the same sum from the logits command: windows of their own, rows ctx/2 .. ctx-2 predict the next token
for w in 0 1 2; do
    sed -n "$((w * ctx + 1)),$(((w + 1) * ctx))p" ids >window
    "$CHIMERE" logits -m m.gguf --tokens "$(paste -sd, window)" --all -q | od -An -v -tf4 -w2048 >rows
    awk -v ctx=$ctx 'NR == FNR { id[NR] = $1; next }
        FNR > ctx / 2 && FNR < ctx {
            top = $1; for (i = 2; i <= NF; i++) if ($i > top) top = $i
            s = 0; for (i = 1; i <= NF; i++) s += exp($i - top)
            print log(s) + top - $(id[FNR + 1] + 1) }' window rows
done >nll
"$CHIMERE" perplexity -m m.gguf -f text -q --ctx $ctx --chunks 3 --json --save-base base >got
read -r ppl se n < <(awk '{ s += $1; q += $1 * $1; n++ } END { m = s / n
    print exp(m), exp(m) * sqrt((q / n - m * m) / (n - 1)), n }' OFMT=%.9g nll)
close "$(field ppl got)" "$ppl" || fail "perplexity: expected $ppl, got $(field ppl got)"
close "$(field ppl_se got)" "$se" || fail "standard error: expected $se, got $(field ppl_se got)"
[ "$(field n_scored got)" = "$n" ] || fail "scored: expected $n, got $(field n_scored got)"
[ "$n" = 45 ] || fail "3 windows of 32 score 15 tokens each, got $n"

# windows together or alone: the same figure
"$CHIMERE" perplexity -m m.gguf -f text -q --ctx $ctx --chunks 3 --json --parallel 1 >alone
close "$(field ppl alone)" "$ppl" || fail "one window at a time gives $(field ppl alone)"

# against itself: no divergence beyond the file's rounding; the base's perplexity is this one
"$CHIMERE" perplexity -m m.gguf --kl-base base -q --json >self
awk -v k="$(field mean self)" 'BEGIN { exit !(k < 1e-5) }' || fail "KL to itself is $(field mean self)"
close "$(field same_top self)" 1 || fail "top tokens agree in $(field same_top self)"
close "$(field base_ppl self)" "$ppl" || fail "base perplexity: $(field base_ppl self)"
# against another model: by hand from both models' logits, first scored row of the first window
"$CHIMERE" quantize m.gguf q4.gguf Q4_0 >/dev/null
"$CHIMERE" perplexity -m q4.gguf --kl-base base -q --json --chunks 3 >other
for m in m q4; do
    for w in 0 1 2; do
        sed -n "$((w * ctx + 1)),$(((w + 1) * ctx))p" ids >window
        "$CHIMERE" logits -m $m.gguf --tokens "$(paste -sd, window)" --all -q | od -An -v -tf4 -w2048 |
            sed -n "$((ctx / 2 + 1)),$((ctx - 1))p"
    done >$m.rows
done
kl=$(paste -d' ' m.rows q4.rows | awk '{ h = NF / 2; a = 0; b = 0
    for (i = 1; i <= h; i++) { a += exp($i); b += exp($(i + h)) }
    for (i = 1; i <= h; i++) s += exp($i) / a * ($i - log(a) - $(i + h) + log(b)) } END { print s / NR }' OFMT=%.9g)
awk -v a="$(field mean other)" -v b="$kl" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d <= 0.02 * b && b > 0) }' ||
    fail "KL: expected $kl, got $(field mean other)"

refuses 2 "-f TEXT is missing" "$CHIMERE" perplexity -m m.gguf
refuses 2 "at least one window" "$CHIMERE" perplexity -m m.gguf -f text --ctx 100000
echo short >short
refuses 1 "is not the text of the base" "$CHIMERE" perplexity -m m.gguf -f <(tac text; cat text text) --kl-base base
"$CHIMERE" synth qwen35moe-mini q8 v.gguf --layers 4 --experts 4 --vocab 600 >/dev/null
refuses 1 "another vocabulary" "$CHIMERE" perplexity -m v.gguf --kl-base base
head -c 1000 base >cut
refuses 1 "expected 3 windows" "$CHIMERE" perplexity -m m.gguf --kl-base cut
refuses 1 "expected a base" "$CHIMERE" perplexity -m m.gguf --kl-base m.gguf
cp base bad
printf '\377' | dd of=bad bs=1 seek=13 conv=notrunc 2>/dev/null
refuses 1 "header is damaged" "$CHIMERE" perplexity -m m.gguf --kl-base bad
cp base bad
printf '\377\377\377\177' | dd of=bad bs=1 seek=52 conv=notrunc 2>/dev/null
refuses 1 "expected an id below 512" "$CHIMERE" perplexity -m m.gguf --kl-base bad
echo "perplexity: ok"
