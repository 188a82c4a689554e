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
echo ok
