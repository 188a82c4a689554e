#!/usr/bin/env bash
# imatrix: sums against a computation by hand, counts of experts, and a file that quantize takes.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

floats() { "$CHIMERE" dump "$1" "$2" | od -An -v -tf4 -w"$((4 * $3))"; }

for i in $(seq 40); do echo "The $i cats sat on $((i * 7)) mats; none of them moved."; done >text
"$CHIMERE" synth qwen35moe-mini q8 m.gguf --layers 4 --experts 8 --vocab 512 >/dev/null
"$CHIMERE" imatrix -m m.gguf -f text -o m.imatrix --ctx 64 --chunks 3 -q --process-output >/dev/null
"$CHIMERE" inspect m.imatrix --json >info
for key in '"general.type"' '"imatrix.datasets"' '"imatrix.chunk_count"' '"imatrix.chunk_size"'; do
    grep -q "$key" info || fail "no key $key"
done

# the first matrix's input is the normed embedding of each token: sums of squares by hand
"$CHIMERE" inspect m.gguf --json | tr -d ' \n' >keys
eps=$(grep -o 'layer_norm_rms_epsilon[^0-9]*[-0-9.e]*' keys | grep -o '[0-9][-0-9.e]*$')
n=$(grep -o 'embedding_length[^0-9]*[0-9]*' keys | grep -o '[0-9]*$')
[ -n "$eps" ] && [ -n "$n" ] || fail "width and epsilon are not in the file's keys"
"$CHIMERE" tokenize -m m.gguf <text | tr -s ' ,' '\n\n' | grep . | sed -n 1,192p >ids
floats m.gguf token_embd.weight "$n" >embd
floats m.gguf blk.0.attn_norm.weight "$n" >norm
floats m.imatrix blk.0.attn_qkv.weight.in_sum2 "$n" >got
awk -v eps="$eps" '
    FILENAME == "ids" { count[$1]++; next }
    FILENAME == "norm" { for (i = 1; i <= NF; i++) w[i] = $i; next }
    FILENAME == "embd" { if (!(row++ in count)) next
        q = 0; for (i = 1; i <= NF; i++) q += $i * $i
        for (i = 1; i <= NF; i++) s[i] += count[row - 1] * $i * $i * w[i] * w[i] / (q / NF + eps); next }
    { for (i = 1; i <= NF; i++) { d = $i - s[i]; if (d < 0) d = -d; if (d > 1e-4 * s[i]) bad++ }
      if (bad || !(s[1] > 0)) { print bad " of " NF " sums differ"; exit 1 } }' ids norm embd got ||
    fail "blk.0.attn_qkv.weight.in_sum2"
[ "$(floats m.imatrix blk.0.attn_qkv.weight.counts 1 | tr -d ' ')" = 192 ] || fail "rows of attn_qkv"

# every token reaches n_used experts; an expert's matrices see the same rows
used=$(grep -o 'expert_used_count[^0-9]*[0-9]*' keys | grep -o '[0-9]*$')
for what in gate up down; do floats m.imatrix blk.1.ffn_${what}_exps.weight.counts 8 >$what; done
[ "$(awk '{ for (i = 1; i <= NF; i++) s += $i; print s }' up)" = $((192 * used)) ] || fail "experts: $(cat up)"
cmp -s gate up && cmp -s up down || fail "counts differ: $(cat gate up down)"

# correlations: of the first two inputs by hand, ones with themselves, and quantize rounds by them
"$CHIMERE" imatrix -m m.gguf -f text -o c.imatrix --ctx 64 --chunks 3 -q --correlations >said
grep -q "correlations of [1-9]" said || fail "what is said of correlations: $(cat said)"
floats c.imatrix blk.0.attn_qkv.weight.in_corr 256 | sed -n 1,2p >corr
awk '
    FILENAME == "ids" { count[$1]++; next }
    FILENAME == "norm" { a = $1; b = $2; next }
    FILENAME == "embd" { if (!(row++ in count)) next
        q = 0; for (i = 1; i <= NF; i++) q += $i * $i
        c = count[row - 1] / (q / NF + 1e-6); xx += c * $1 * $1; yy += c * $2 * $2; xy += c * $1 * $2; next }
    { want = xy / sqrt(xx * yy) * (a * b < 0 ? -1 : 1); d = $(3 - ++n) - want; if (d < 0) d = -d
      if (d > 2e-3 || $n != 1) { print $1, $2, "expected", want; exit 1 } }' \
    ids norm embd corr || fail "blk.0.attn_qkv.weight.in_corr"

# the same file whatever the threads, and the same sums for matrices that share their inputs
"$CHIMERE" imatrix -m m.gguf -f text -o d.imatrix --ctx 64 --chunks 3 -q --correlations --threads 3 >/dev/null
cmp c.imatrix d.imatrix || fail "the number of threads changes the file"
for what in attn_qkv attn_gate ssm_alpha; do
    "$CHIMERE" dump c.imatrix "blk.0.$what.weight.in_sum2" >"$what"
done
cmp attn_qkv attn_gate && cmp attn_qkv ssm_alpha || fail "matrices of one input have other sums"
one=(--pure -q --tensor-type 'blk.0.attn_qkv=Q2_K' --tensor-type '.=Q8_0')
"$CHIMERE" quantize m.gguf plain.gguf Q8_0 --imatrix m.imatrix "${one[@]}" >/dev/null
"$CHIMERE" quantize m.gguf refined.gguf Q8_0 --imatrix c.imatrix "${one[@]}" >/dev/null
[ "$(wc -c <plain.gguf)" = "$(wc -c <refined.gguf)" ] || fail "rounding by correlation changes the size"
cmp -s plain.gguf refined.gguf && fail "correlations change no code"

# without a text, the one that comes with the program
"$CHIMERE" imatrix -m m.gguf -o own.imatrix --ctx 64 --chunks 3 -q >/dev/null
"$CHIMERE" inspect own.imatrix --json | grep '"calibration.txt"' >/dev/null || fail "its own text is not named"

# a type that needs the matrix takes it, and a matrix of another shape is refused
"$CHIMERE" quantize m.gguf q.gguf IQ2_XXS --imatrix m.imatrix >/dev/null
"$CHIMERE" synth qwen35moe-mini q8 other.gguf --layers 4 --experts 4 --vocab 512 >/dev/null
refuses 1 "blk.0.ffn" "$CHIMERE" quantize other.gguf q2.gguf IQ2_XXS --imatrix m.imatrix
refuses 2 "expected -o OUT" "$CHIMERE" imatrix -m m.gguf
refuses 2 "at least one window" "$CHIMERE" imatrix -m m.gguf -f text -o x --ctx 100000
refuses 1 "missing" "$CHIMERE" imatrix -m m.gguf -f missing -o x
[ ! -e x ] || fail "a refused run left a file"
echo "imatrix: ok"
