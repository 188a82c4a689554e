#!/usr/bin/env bash
# greedy: tiny Hugging Face models, converted and run, go on with their prompts as transformers does
# (test/data/hf/greedy.json, made by test/golden/make_greedy.py).
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

# a checkpoint with the hashed weights of test/golden/make_hf.py
cat >checkpoint.py <<'END'
import array, json, os, shutil, struct, sys
source, target = sys.argv[1:]
MASK = (1 << 64) - 1
def values(name, n, scale, offset):
    h = 0xcbf29ce484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001b3 & MASK
    x = h + 0x9e3779b97f4a7c15 & MASK
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd & MASK
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53 & MASK
    x = (x ^ x >> 33) + 0x9e3779b97f4a7c15
    out = array.array("f")
    for _ in range(n):
        z = x & MASK
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & MASK
        z = (z ^ z >> 27) * 0x94d049bb133111eb & MASK
        out.append((((z ^ z >> 31) >> 40) * 2.0 ** -23 - 1.0) * scale + offset)
        x += 0xd1342543de82ef95
    return out
os.mkdir(target)
shutil.copy(os.path.join(source, "config.json"), target)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(os.path.join(source, "../tokenizer-qwen35", name), target)
header, body = {}, bytearray()
for line in open(os.path.join(source, "weights.tsv")):
    name, shape, scale, offset = line.rstrip("\n").split("\t")
    shape = [int(n) for n in shape.split(",")]
    n = 1
    for d in shape:
        n *= d
    data = values(name, n, float(scale), float(offset)).tobytes()
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
    body += data
head = json.dumps(header).encode()
with open(os.path.join(target, "model.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head + body)
END

cat >compare.py <<'END'
import json, subprocess, sys
chimere, rows = sys.argv[1:]
wrong = n = 0
for row in json.load(open(rows)):
    got = subprocess.run([chimere, "run", "-m", row["model"] + ".gguf", "--raw", "--temp", "0", "-q", "--ignore-eos",
                          "-n", str(row["n"]), "-p", row["prompt"]], capture_output=True, check=True).stdout
    n += 1
    if got != row["text"].encode():
        wrong += 1
        print("%s, %r: expected %r, got %r" % (row["model"], row["prompt"], row["text"], got.decode()), file=sys.stderr)
assert n >= 8, n
sys.exit(wrong > 0)
END

for model in qwen35moe llama; do
    python3 checkpoint.py "$TEST_DATA/hf/$model" $model
    "$CHIMERE" convert $model $model.gguf --type F32 >/dev/null
done
python3 compare.py "$CHIMERE" "$TEST_DATA/hf/greedy.json" || fail "other texts than transformers'"
echo "greedy: ok"
