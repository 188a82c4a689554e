#!/usr/bin/env bash
# Rows that are no multiple of 256, in two tensors: written by quantize, listed by inspect, decoded by dump, multiplied.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

"$CHIMERE" synth nemotron-30b q8 in.gguf --layers 2 --experts 2 --vocab 512 >/dev/null
"$CHIMERE" quantize in.gguf out.gguf Q6_K --pure --tails --dry-run >plan
grep -qE '^ +64 of these columns +-> q8_0 ' plan || fail "no tail in the plan: $(cat plan)"
"$CHIMERE" quantize in.gguf out.gguf Q6_K --pure --tails -q >/dev/null

"$CHIMERE" inspect out.gguf --tensors >tensors
grep -qE 'blk\.1\.ffn_down_exps\.weight +q6_K +1792 x 2688 x 2' tensors || fail "first part: $(cat tensors)"
grep -qE 'blk\.1\.ffn_down_exps\.weight\.tail +q8_0 +64 x 2688 x 2' tensors || fail "last part: $(cat tensors)"
grep -qE 'token_embd\.weight\.tail +q8_0 +128 x 512' tensors || fail "a table's last part"

# both parts together are the source's rows; the model computes nearly the same
"$CHIMERE" dump in.gguf output.weight >whole
"$CHIMERE" dump out.gguf output.weight >first
"$CHIMERE" dump out.gguf output.weight.tail >last
"$CHIMERE" logits -m in.gguf --tokens 5,6,7,9 >a
"$CHIMERE" logits -m out.gguf --tokens 5,6,7,9 >b
python3 - <<'END'
from array import array
def read(path):
    a = array("f")
    a.frombytes(open(path, "rb").read())
    return a
def apart(a, b):
    return (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)) ** .5
whole, first, last = read("whole"), read("first"), read("last")
assert len(whole) == 512 * 2688 and len(first) == 512 * 2560 and len(last) == 512 * 128
for row in range(0, 512, 37):
    both = first[row * 2560:(row + 1) * 2560] + last[row * 128:(row + 1) * 128]
    e = apart(whole[row * 2688:(row + 1) * 2688], both)
    assert e < .02, (row, e)
e = apart(read("a"), read("b"))
assert 0 < e < .2, e
END

# experts in two parts must be in the memory of what multiplies them: the plan says so
refuses 1 "does not fit" "$CHIMERE" inspect out.gguf --memory --ram 60M
grep -qF 'the file has tensors in two parts (*.tail), so the device must hold all experts' err || fail "hint: $(cat err)"

# a file whose parts do not make a row
python3 - <<'END'
data = open("out.gguf", "rb").read()
name = b"blk.1.ffn_down_exps.weight.tail"
at = data.index(name) + len(name) + 4 # number of dimensions, then ne[0]
assert data[at] == 64
open("bad.gguf", "wb").write(data[:at] + bytes([32]) + data[at + 1:])
END
refuses 1 "ffn_down_exps.weight.tail: expected shape [64, 2688, 2]" "$CHIMERE" logits -m bad.gguf --tokens 5

# ramp in chimere mode divides such rows too: queries of 384 columns, 128 of them in a type of blocks of 32
"$CHIMERE" synth glm-flash-mini q8 glm.gguf --layers 1 --experts 2 --vocab 512 >/dev/null
"$CHIMERE" ramp glm.gguf r.gguf --bpw 6.4 --mode chimere --predict --sample 256 -q --threads 1 >/dev/null 2>&1
python3 - <<'END'
import json, os
# the plan counts the directory and a kilobyte of metadata, so that a uniform file's own size is enough for its type
over = json.load(open("r.gguf.ramp/plan.json"))["bytes"] - os.path.getsize("r.gguf")
assert 0 <= over < 1024 + 64, over
END
"$CHIMERE" inspect r.gguf --tensors >tensors
grep -qE 'attn_q_b\.weight +[A-Za-z0-9_]+ +256 x 2048' tensors || fail "first part: $(cat tensors)"
grep -qE 'attn_q_b\.weight\.tail +[A-Za-z0-9_]+ +128 x 2048' tensors || fail "last part: $(cat tensors)"
bits=$(grep -o '[0-9.]* bits per weight' tensors | cut -d' ' -f1)
python3 -c "assert 6.2 < $bits <= 6.4, $bits" || fail "expected just below 6.4 bits, got $bits"
"$CHIMERE" logits -m r.gguf --tokens 5,6,7 >/dev/null
echo "tails: ok"
