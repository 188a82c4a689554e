#!/usr/bin/env bash
# refuse: files and questions that no model can run end in one sentence that names what is wrong.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

"$CHIMERE" synth qwen35moe-mini q4km m.gguf --layers 4 --experts 4 --vocab 512 >/dev/null
"$CHIMERE" quantize m.gguf bf16.gguf BF16 --allow-requantize >/dev/null 2>&1 ||
    "$CHIMERE" quantize m.gguf bf16.gguf BF16 >/dev/null

# edit FROM TO HOW ...: a copy of a model with some bytes changed
cat >edit.py <<'END'
import json, os, struct, subprocess, sys
source, target, how, *args = sys.argv[1:]
data = bytearray(open(source, "rb").read())
def tensor(name):
    out = subprocess.run([os.environ["CHIMERE"], "inspect", source, "--tensors", "--json"],
                         capture_output=True, check=True).stdout
    return next(t for t in json.loads(out)["tensors"] if t["name"] == name)
def replace(old, new):
    assert len(old) == len(new) and data.count(old) >= 1, (old, data.count(old))
    at = data.index(old)
    data[at:at + len(old)] = new
if how == "bytes":  # NAME OFFSET HEX: inside a tensor; negative: from its end
    t = tensor(args[0])
    at, new = int(args[1]), bytes.fromhex(args[2])
    at += t["offset"] + (t["bytes"] if at < 0 else 0)
    data[at:at + len(new)] = new
elif how == "text":  # OLD NEW
    replace(args[0].encode(), args[1].encode())
elif how == "u32":  # KEY VALUE
    key = args[0].encode()
    at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
    assert struct.unpack_from("<I", data, at)[0] == 4, "type"
    struct.pack_into("<I", data, at + 4, int(args[1]))
open(target, "wb").write(data)
END
edit() { CHIMERE=$CHIMERE python3 edit.py "$@"; }
# try WANT FROM HOW ...: that edit must be refused with that sentence, by every way to open a model
try() {
    local want=$1 from=$2
    shift 2
    edit "$from" bad.gguf "$@"
    refuses 1 "$want" "$CHIMERE" logits -m bad.gguf --tokens 1 -q
    refuses 1 "$want" "$CHIMERE" run -m bad.gguf --raw -p a -n 1 -q
}
finite='expected finite numbers, got NaN or infinity'

# NaN and infinity: in scales, minimums, at the last row, in tables, in vectors, in float matrices
try "tensor blk.1.ffn_down_exps.weight: $finite" m.gguf bytes blk.1.ffn_down_exps.weight 0 007e
try "tensor blk.1.ffn_gate_exps.weight: $finite" m.gguf bytes blk.1.ffn_gate_exps.weight -142 00fc
try "tensor blk.3.attn_v.weight: $finite" m.gguf bytes blk.3.attn_v.weight -2 ff7f
try "tensor blk.0.ssm_beta.weight: $finite" m.gguf bytes blk.0.ssm_beta.weight 34 007c
try "tensor token_embd.weight: $finite" m.gguf bytes token_embd.weight 146 007d
try "tensor output.weight: $finite" m.gguf bytes output.weight 208 00fe
try "tensor blk.0.attn_norm.weight: $finite" m.gguf bytes blk.0.attn_norm.weight 8 0000807f
try "tensor blk.2.ffn_gate_inp.weight: $finite" m.gguf bytes blk.2.ffn_gate_inp.weight 40 0000c07f
try "tensor blk.0.attn_qkv.weight: $finite" bf16.gguf bytes blk.0.attn_qkv.weight 1000 80ff
refuses 1 "tensor blk.0.attn_qkv.weight: $finite" "$CHIMERE" logits -m bad.gguf --tokens 1 -q --isa scalar

# a family that nobody knows, keys that lack or lie, tensors that do not match them
try "general.architecture: 'qwen99moe' is not a family we run" m.gguf text qwen35moe qwen99moe
try "key qwen35moe.embedding_length: expected in a qwen35moe model, got nothing" m.gguf \
    text qwen35moe.embedding_length qwen35moe.embedding_lenght
try "key qwen35moe.block_count: expected 1 to" m.gguf u32 qwen35moe.block_count 0
try "tensor token_embd.weight: expected shape [2048, 512, 1], got [1024, 512, 1]" m.gguf u32 qwen35moe.embedding_length 2048
try "tensor blk.4.attn_norm.weight: expected in a qwen35moe model, got nothing" m.gguf \
    u32 qwen35moe.block_count 5
try "key qwen35moe.expert_used_count: expected 1 to 4, got 5" m.gguf u32 qwen35moe.expert_used_count 5
try "tensor blk.1.attn_gate.weight: expected in a qwen35moe model, got nothing" m.gguf \
    text blk.1.attn_gate.weight blk.1.attn_grate.weigt

# questions beyond the model
refuses 2 "token: expected an id below 512, got 512" "$CHIMERE" logits -m m.gguf --tokens 1,512 -q
refuses 2 "expected token ids separated by commas, got '-2'" "$CHIMERE" logits -m m.gguf --tokens 1,-2 -q
refuses 1 "tokens > 63 maximum" "$CHIMERE" run -m m.gguf --raw -q -c 64 -f edit.py
refuses 1 "does not fit: 1 sequence of 900000000 tokens needs" \
    "$CHIMERE" run -m m.gguf --raw -p a -q -c 900000000
echo "refuse: ok"
