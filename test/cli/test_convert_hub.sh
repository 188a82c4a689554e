#!/usr/bin/env bash
# convert hf:OWNER/REPO: the files of a checkpoint from a stand-in hub, in shards, resumed after a kill, and what no
# checkpoint is.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl node python3

data=$SOURCE_DIR/test/data/hf
mkdir -p hub/they got
python3 "$SOURCE_DIR/test/cli/checkpoint.py" "$data/qwen3" "$data/tokenizer-qwen2" hub/they/tiny
mkdir -p hub/they/tiny/original hub/they/tiny/onnx hub/gguf/only
echo junk >hub/they/tiny/consolidated.safetensors
echo junk >hub/they/tiny/original/model.safetensors
echo junk >hub/they/tiny/onnx/model.onnx
echo junk >hub/they/tiny/pytorch_model.bin
echo '# Tiny' >hub/they/tiny/README.md
echo junk >hub/gguf/only/model-Q4_K_M.gguf
echo '{}' >hub/gguf/only/config.json

# Its standard input is ours: it ends when this script does.
exec 9> >(exec node "$SOURCE_DIR/test/net/standin.mjs" hub >port)
for _ in $(seq 2400); do [ -s port ] || sleep 0.05; done
url=http://127.0.0.1:$(cut -d' ' -f1 port)
export CHIMERE_HF_ENDPOINT=$url CHIMERE_MODELS_DIR=$work/models

# the same file as from the folder, and only the files that conversion reads
"$CHIMERE" convert hub/they/tiny got/local.gguf >/dev/null
"$CHIMERE" convert hf:they/tiny got/hub.gguf >out 2>err || fail "from the hub: $(cat err)"
cmp got/local.gguf got/hub.gguf || fail "another file"
[ ! -e models/they/tiny/pytorch_model.bin ] && [ ! -e models/they/tiny/consolidated.safetensors ] &&
    [ ! -e models/they/tiny/original ] && [ ! -e models/they/tiny/onnx ] || fail "fetched: $(find models)"
[ "$(find models -name '*.part' -o -name '*.state' | wc -l)" = 0 ] || fail "left over: $(find models)"

# what the model card and the folder's name say; a card that is not YAML is left out
cp -r hub/they/tiny Tiny2-0.5B-Instruct-v1.1
cat >Tiny2-0.5B-Instruct-v1.1/README.md <<'MD'
---
license: other
license_name: tiny-licence
license_link: https://example.org/licence
language:
- en
- fr
tags: [small, &x test]
pipeline_tag: text-generation
base_model: they/Big-7B
datasets:
- some/text
model-index:
- name: nested
  results: [{license: wrong, tags: [wrong]}]
---
# Tiny
license: wrong
MD
"$CHIMERE" convert Tiny2-0.5B-Instruct-v1.1 got/card.gguf >/dev/null
"$CHIMERE" inspect got/card.gguf --json >card.json
python3 - <<'PY' || fail "card: $(cat card.json)"
import json
keys = json.load(open("card.json"))["keys"]
want = dict(name="Tiny2-0.5B-Instruct-v1.1", basename="Tiny2", finetune="Instruct", version="v1.1", license="other")
want.update({"license.name": "tiny-licence", "license.link": "https://example.org/licence", "languages": ["en", "fr"],
    "tags": ["small", "test", "text-generation"], "base_model.count": 1, "base_model.0.name": "Big-7B",
    "base_model.0.organization": "they", "base_model.0.repo_url": "https://huggingface.co/they/Big-7B",
    "dataset.count": 1, "dataset.0.name": "text", "dataset.0.organization": "some",
    "dataset.0.repo_url": "https://huggingface.co/datasets/some/text", "file_type": 0})
got = {k[8:]: v for k, v in keys.items() if k.startswith("general.")}
size = got.pop("size_label")
assert size.endswith("K") and 50 < float(size[:-1]) < 500, size
for name in ("architecture", "type", "quantization_version"): del got[name]
assert got == want, (got, want)
PY
printf -- '---\nlicense: [\n---\n' >Tiny2-0.5B-Instruct-v1.1/README.md
"$CHIMERE" convert Tiny2-0.5B-Instruct-v1.1 got/card.gguf >/dev/null 2>err || fail "a bad card: $(cat err)"
[ "$(grep -c 'the model card is not YAML' err)" = 1 ] || fail "a bad card: $(cat err)"

# a prediction block that the family does not implement is named, once
cp -r "$data/qwen3" with_mtp
for part in a b c d e f g; do printf 'mtp.layers.0.%s.weight\t4,4\t1.0\t0.0\n' $part; done >>with_mtp/weights.tsv
python3 "$SOURCE_DIR/test/cli/checkpoint.py" with_mtp "$data/tokenizer-qwen2" with_mtp/hf
"$CHIMERE" convert with_mtp/hf got/mtp.gguf >/dev/null 2>err || fail "with a prediction block: $(cat err)"
grep -q '7 tensors of a prediction block (MTP) are left out: conversion does not keep it for qwen3' err || fail "$(cat err)"
[ "$(wc -l <err)" = 1 ] || fail "more than one line: $(cat err)"

# killed in the middle of a shard: resumes, and the result is the same
rm -r models
python3 - hub/they/tiny <<'PY'
import json, struct, sys
path = sys.argv[1] + "/model-00001-of-00002.safetensors"
data = open(path, "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
body = data[8 + n:]
head["vision_tower.unused"] = dict(dtype="U8", shape=[40000000], data_offsets=[len(body), len(body) + 40000000])
text = json.dumps(head).encode()
with open(path, "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + body + bytes(40000000))
index = sys.argv[1] + "/model.safetensors.index.json"
both = json.load(open(index))
both["weight_map"]["vision_tower.unused"] = "model-00001-of-00002.safetensors"
json.dump(both, open(index, "w"))
PY
"$CHIMERE" convert hf:they/tiny got/again.gguf >/dev/null 2>err &
pid=$!
part=models/they/tiny/model-00001-of-00002.safetensors
for _ in $(seq 400); do [ -s $part.part ] || [ -s $part ] || sleep 0.01; done
kill -9 $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
"$CHIMERE" convert hf:they/tiny got/again.gguf >/dev/null 2>err || fail "after kill -9: $(cat err)"
cmp got/local.gguf got/again.gguf || fail "another file after kill -9"
cmp hub/they/tiny/model-00001-of-00002.safetensors $part || fail "other bytes after kill -9"

# what no checkpoint is, and a missing shard: nothing is written
refuses 1 "expected safetensors files among 2 files" "$CHIMERE" convert hf:gguf/only got/no.gguf
refuses 1 "Repository not found" "$CHIMERE" convert hf:nobody/nothing got/no.gguf
refuses 2 "expected a repository" "$CHIMERE" convert hf:they/tiny:Q8_0 got/no.gguf
refuses 2 "expected hf:OWNER/REPO" "$CHIMERE" convert hf:they got/no.gguf
rm -r models hub/they/tiny/model-00002-of-00002.safetensors
refuses 1 "model-00002-of-00002.safetensors" "$CHIMERE" convert hf:they/tiny got/no.gguf
[ ! -e got/no.gguf ] || fail "a file in spite of an error"
echo "convert_hub: ok"
