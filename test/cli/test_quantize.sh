#!/usr/bin/env bash
# quantize and dump from the shell: exit statuses, what is printed, and floats that come back.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

"$CHIMERE" synth qwen35moe-mini q8 in.gguf --layers 4 --experts 4 --vocab 512 >/dev/null

# the plan writes nothing; the file has the plan's types
"$CHIMERE" quantize in.gguf out.gguf ramp3 --dry-run >plan
[ ! -e out.gguf ] || fail "--dry-run wrote a file"
grep -qE 'blk\.0\.ffn_up_exps\.weight .*q8_0 +-> iq3_s ' plan || fail "ramp3 gives experts iq3_s: $(cat plan)"
grep -qE 'blk\.3\.attn_v\.weight .*-> q6_K ' plan || fail "ramp3 gives attn_v q6_K"
"$CHIMERE" quantize in.gguf out.gguf RAMP3 --tensor-type 'attn_v=f32' >said
grep -q 'bits per weight' said || fail "no summary: $(cat said)"

# dump: as many floats as elements; the f32 tensor is what the source decodes to, bit for bit
"$CHIMERE" dump in.gguf blk.3.attn_v.weight >a
"$CHIMERE" dump out.gguf blk.3.attn_v.weight >b
[ "$(stat -c %s a)" = $((1024 * 512 * 4)) ] || fail "dump wrote $(stat -c %s a) bytes"
cmp a b || fail "an f32 copy differs from its q8_0 source"
# a second pass to the same type changes nothing: blocks are copied
"$CHIMERE" quantize out.gguf again.gguf ramp3 --tensor-type 'attn_v=f32' --threads 1 >/dev/null
for t in blk.0.ffn_up_exps.weight token_embd.weight blk.0.ssm_a; do
    "$CHIMERE" dump out.gguf $t >a
    "$CHIMERE" dump again.gguf $t >b
    cmp a b || fail "$t changed although its type did not"
done

refuses 1 "no tensor named 'nope'" "$CHIMERE" dump in.gguf nope
refuses 2 "expected FILE and TENSOR" "$CHIMERE" dump in.gguf
refuses 1 "missing.gguf" "$CHIMERE" dump missing.gguf x
refuses 2 "no type or mix named 'Q4_X'" "$CHIMERE" quantize in.gguf out.gguf Q4_X
refuses 2 "expected IN, OUT and TYPE" "$CHIMERE" quantize in.gguf out.gguf
refuses 2 "would replace its source" "$CHIMERE" quantize in.gguf in.gguf Q8_0
refuses 2 "needs importance weights" "$CHIMERE" quantize in.gguf new.gguf IQ2_XXS
head -c 1000 in.gguf >cut.gguf
refuses 1 "cut.gguf" "$CHIMERE" quantize cut.gguf new.gguf Q8_0
head -c 100 in.gguf >cut.imatrix
refuses 1 "cut.imatrix" "$CHIMERE" quantize in.gguf new.gguf Q4_K_M --imatrix cut.imatrix
# no room for the result: the system's reason
(
    trap '' XFSZ
    ulimit -f 64
    refuses 1 "new.gguf: cannot write: File too large" "$CHIMERE" quantize in.gguf new.gguf Q8_0
)
[ ! -e new.gguf ] || fail "a refused run left a file"
[ -z "$(find . -name '*.tmp.*')" ] || fail "a refused run left temporary files"
if "$CHIMERE" dump in.gguf token_embd.weight >/dev/full 2>err; then fail "a full disk was not noticed"; fi
echo "quantize: ok"
