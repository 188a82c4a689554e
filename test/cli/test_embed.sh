#!/usr/bin/env bash
# embed: one object a line, unit length, and the mean of a causal model's rows.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

vector() { sed -n "${2}s/.*\"embedding\": \[\(.*\)\].*/\1/p" "$1" | tr -s ', ' '\n\n'; }
norm() { vector "$1" "$2" | awk '{ s += $1 * $1 } END { print sqrt(s) }'; }

"$CHIMERE" synth qwen35moe-mini q8 m.gguf --layers 4 --experts 4 --vocab 512 >/dev/null
printf 'a line\n\nanother, longer line\r\na line' >lines
"$CHIMERE" embed -m m.gguf -q <lines >unit
"$CHIMERE" embed -m m.gguf -q --no-normalise <lines >raw
[ "$(wc -l <unit)" = 4 ] || fail "4 lines in, $(wc -l <unit) out"
[ "$(vector unit 1 | wc -l)" = 1024 ] || fail "a vector has $(vector unit 1 | wc -l) values"
[ "$(norm unit 1)" = 1 ] || fail "length $(norm unit 1)"
[ "$(norm unit 2)" = 0 ] || fail "an empty line has length $(norm unit 2)"
[ "$(vector unit 1)" = "$(vector unit 4)" ] || fail "the same text gives another vector"
[ "$(vector unit 1)" != "$(vector unit 3)" ] || fail "another text gives the same vector"
grep -q '"index": 3, ' unit || fail "indices: $(cut -c1-40 unit)"
paste <(vector unit 3) <(vector raw 3) | awk -v n="$(norm raw 3)" '
    { d = $1 * n - $2; if (d < 0) d = -d; if (d > 1e-4 * n) exit 1 }' || fail "directions differ"

# one token's row after the last norm, times the tied or own output matrix, gives its logits
printf 'a' | "$CHIMERE" embed -m m.gguf -q --no-normalise >one
id=$(printf 'a' | "$CHIMERE" tokenize -m m.gguf | tr -d ' \n')
out=output.weight
"$CHIMERE" dump m.gguf $out >w 2>/dev/null || "$CHIMERE" dump m.gguf token_embd.weight >w
od -An -v -tf4 -w4096 w >rows
"$CHIMERE" logits -m m.gguf --tokens "$id" -q | od -An -v -tf4 -w4 >logits
vector one 1 >x
awk 'FILENAME == "x" { x[++n] = $1; next }
     FILENAME == "logits" { l[++k] = $1; if ($1 * $1 > top) top = $1 * $1; next }
     { s = 0; for (i = 1; i <= NF; i++) s += $i * x[i]; d = s - l[++r]; if (d * d > 4e-4 * top) bad++ }
     END { exit !(r == 512 && !bad) }' x logits rows || fail "the vector is not the last hidden row"

# texts longer than the limit are cut, and it says so
printf 'a line that is longer than four tokens' | "$CHIMERE" embed -m m.gguf -q --ctx 4 >cut
grep -q '"n_tokens": 4, "cut": true' cut || fail "not cut: $(cut -c1-60 cut)"
echo "embed: ok"
