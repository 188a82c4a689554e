#!/bin/bash
# test_inspect.sh: synth writes what inspect reads; bad files are refused with one line and status 1.
set -eu
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

"$CHIMERE" synth qwen35moe-mini q4km "m.gguf" --layers 4 --experts 8 --vocab 512 > "out"
grep -q 'weights' "out" || fail "synth says nothing"
"$CHIMERE" inspect "m.gguf" --tensors --memory > "text"
grep -q 'qwen35moe.block_count  *4$' "text" || fail "key missing"
grep -q 'blk.3.attn_q.weight .*q6_K .*1024 x 4096' "text" || fail "tensor missing"
grep -q 'key/value cache' "text" || fail "plan missing"
"$CHIMERE" inspect "$SOURCE_DIR/models/chimere-mini.gguf" --memory > "mini"
grep -q '4096 positions' "mini" || fail "the plan has another context than the model: $(grep positions "mini")"
"$CHIMERE" inspect "m.gguf" --json --tensors --memory > "json"
python3 - "json" <<'PY' || fail "JSON"
import json, sys
j = json.load(open(sys.argv[1]))
assert j["keys"]["qwen35moe.rope.dimension_sections"] == [11, 11, 10, 0]
assert j["keys"]["tokenizer.ggml.tokens"] == {"items": 512, "type": "str"}
assert j["keys"]["qwen35moe.attention.layer_norm_rms_epsilon"] == 1e-06
assert sum(t["bytes"] for t in j["tensors"]) == j["tensor_bytes"] == sum(t["bytes"] for t in j["types"].values())
m = j["memory"]
# one attention layer: 2 key heads of 256 + 256 halves; three of 16 x 128 x 128 floats and a window of 3 x 4096
assert m["cache_per_token"] == 2 * 512 * 2, m
assert m["state_per_sequence"] >= 3 * 4 * (16 * 128 * 128 + 3 * 4096), m
PY

mkdir "hf"
header='{"model.embed_tokens.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}'
printf '%b' "$(printf '\\x%02x' ${#header})\\0\\0\\0\\0\\0\\0\\0" > "hf/model.safetensors"
printf '%s123456789012' "$header" >> "hf/model.safetensors"
"$CHIMERE" inspect "hf" --json --tensors > "json"
grep -q '"format":"safetensors".*"BF16":{"n_tensors":1,"n_weights":6,"bytes":12}.*"shape":\[2,3\]' "json" ||
  fail "safetensors: $(cat "json")"

printf 'GGUF\3\0\0\0' > "short.gguf"
: > "empty.gguf"
head -c 100000 "m.gguf" > "cut.gguf"
for f in short empty cut none; do
  status=0
  "$CHIMERE" inspect "$f.gguf" > "out" 2> "err" || status=$?
  [ $status = 1 ] || fail "$f: status $status"
  [ ! -s "out" ] || fail "$f: output"
  grep -q "^chimere: .*$f.gguf" "err" || fail "$f: $(cat "err")"
done
status=0
"$CHIMERE" inspect > /dev/null 2>&1 || status=$?
[ $status = 2 ] || fail "usage: status $status"

# --check: tensors that the family does not read
"$CHIMERE" synth qwen35moe-mini q8 whole.gguf --layers 4 --experts 4 --vocab 512 >/dev/null
"$CHIMERE" inspect whole.gguf --check >out || fail "a whole file: $(cat out)"
grep -q ': 0 of [0-9]* keys and 0 of [0-9]* tensors' out || fail "a whole file: $(cat out)"
LC_ALL=C sed 's/blk\.0\.attn_gate\.weight/blk.0.attn_gote.weight/' whole.gguf >strange.gguf
"$CHIMERE" inspect strange.gguf --check >out && fail "a strange tensor: $(cat out)"
grep -q 'not read: tensor blk.0.attn_gote.weight' out || fail "a strange tensor: $(cat out)"
# and keys that neither the family nor the tokenizer reads
LC_ALL=C sed 's/full_attention_interval/full_attention_intervul/;s/add_bos_token/add_bis_token/' whole.gguf >odd.gguf
"$CHIMERE" inspect odd.gguf --check >out && fail "strange keys: $(cat out)"
grep -q 'not read: key qwen35moe.full_attention_intervul' out || fail "a strange key: $(cat out)"
grep -q 'not read: key tokenizer.ggml.add_bis_token' out || fail "a strange key: $(cat out)"
grep -q ': 2 of [0-9]* keys and 0 of' out || fail "strange keys: $(cat out)"
# a file with a prediction block that the family does not implement: the block is not read, the model is
"$CHIMERE" synth glm-flash-mini q8 trunk.gguf --vocab 512 --layers 2 --experts 8 >/dev/null
python3 - <<'PY'
import struct
def text(s): return struct.pack("<Q", len(s)) + s
data = open("trunk.gguf", "rb").read()
n_kv = struct.unpack_from("<Q", data, 16)[0]
key = text(b"deepseek2.block_count") + struct.pack("<I", 4)
at = data.index(key) + len(key)
more = text(b"deepseek2.nextn_predict_layers") + struct.pack("<II", 4, 1)
more += text(b"note") + struct.pack("<I", 8) + text(bytes(96 - len(more) - 24))  # tensors stay aligned
assert len(more) == 96
data = data[:at] + struct.pack("<I", 3) + data[at + 4:]
open("mtp.gguf", "wb").write(data[:16] + struct.pack("<Q", n_kv + 2) + more + data[24:])
PY
"$CHIMERE" inspect mtp.gguf --check >out 2>&1 || fail "a prediction block: $(cat out)"
grep -q ' 0 of [0-9]* tensors' out || fail "a prediction block: $(cat out)"
"$CHIMERE" logits -m trunk.gguf --tokens 1,2,3 -q >one && "$CHIMERE" logits -m mtp.gguf --tokens 1,2,3 -q >two
cmp one two || fail "a prediction block changes the logits"
echo ok
