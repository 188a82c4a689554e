#!/usr/bin/env bash
# dflash: the list of prompts is what its script writes; a Hugging Face folder is converted once and drafts; where torch is
# installed a drafter is trained from the model's own answers, resumes where it was cut off, is opened, and changes no text.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

dflash=$SOURCE_DIR/train/dflash
python3 "$dflash/prompts.py" >list
cmp -s list "$dflash/prompts.txt" || fail "prompts.txt is not what prompts.py writes"
n=$(sort -u list | wc -l)
[ "$n" -ge 4000 ] || fail "$n different prompts"

# a folder as published, of random weights, for a vocabulary of $1 tokens
folder() {
    mkdir -p folder
    python3 - "$1" <<'P'
import array, json, random, struct, sys
random.seed(1)
d, ff, head, heads, kv, taps = 256, 32, 32, 2, 1, [0, 2]
shapes = {"fc.weight": [d, d * len(taps)], "hidden_norm.weight": [d], "norm.weight": [d]}
for name, shape in {"input_layernorm.weight": [d], "post_attention_layernorm.weight": [d], "self_attn.q_norm.weight": [head],
                    "self_attn.k_norm.weight": [head], "self_attn.q_proj.weight": [heads * head, d],
                    "self_attn.k_proj.weight": [kv * head, d], "self_attn.v_proj.weight": [kv * head, d],
                    "self_attn.o_proj.weight": [d, heads * head], "mlp.gate_proj.weight": [ff, d],
                    "mlp.up_proj.weight": [ff, d], "mlp.down_proj.weight": [d, ff]}.items():
    shapes["layers.0." + name] = shape
directory, data = {}, array.array("f")
for name, shape in shapes.items():
    n, at = shape[0] * (shape[1] if len(shape) > 1 else 1), 4 * len(data)
    data.extend(random.gauss(0, 0.06) if len(shape) > 1 else 1 for _ in range(n))
    directory[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * n]}
text = json.dumps(directory).encode()
open("folder/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data.tobytes())
json.dump({"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": d, "intermediate_size": ff,
           "num_hidden_layers": 1, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": head,
           "vocab_size": int(sys.argv[1]), "block_size": 8, "num_target_layers": 4, "rms_norm_eps": 1e-6, "rope_theta": 1e7,
           "max_position_embeddings": 4096, "hidden_act": "silu", "layer_types": ["full_attention"],
           "dflash_config": {"mask_token_id": 1, "target_layer_ids": taps}}, open("folder/config.json", "w"))
P
}
cp "$(dirname "$CHIMERE")/chimere-nano.gguf" nano.gguf # quantised: its own hidden states are what is learned from
ask() { "$CHIMERE" run -m nano.gguf --raw -p "Once upon a time" -n 40 --temp 0 --ignore-eos -t 1 -q "$@"; }
ask --no-speculate >plain
folder 7
if ask --draft folder --models-dir fetched >drafted 2>log; then fail "drafts for 7 tokens"; fi
n=$(sed -n 's/.*drafts for 7 tokens, the model has \([0-9]*\).*/\1/p' log)
[ -n "$n" ] || fail "another vocabulary: $(cat log)"
folder "$n"
ask --draft folder --models-dir fetched >drafted 2>log || fail "a folder: $(cat log)"
cmp -s plain drafted || fail "another text with a folder: $(cat drafted)"
[ "$(find fetched -name 'drafter-*.gguf' | wc -l)" = 2 ] || fail "files of two folders: $(find fetched)"
touch -d 2020-01-01 fetched/*
ask --draft folder --models-dir fetched >drafted 2>log || fail "again: $(cat log)"
[ -z "$(find fetched -newermt 2021-01-01 -name '*.gguf')" ] || fail "converted again"
"$CHIMERE" convert folder folder.gguf --type q8_0 >drafted 2>log || fail "convert: $(cat log)"
ask --draft folder.gguf >drafted
cmp -s plain drafted || fail "another text with a converted file: $(cat drafted)"
truncate -s 1000 folder/model.safetensors
if ask --draft folder --models-dir fetched >drafted 2>log; then fail "a truncated folder"; fi
grep -q -- '--draft: ' log || fail "a truncated folder: $(cat log)"

python=$SOURCE_DIR/.venv/bin/python
[ -x "$python" ] || python=python3
"$python" -c 'import numpy, torch' 2>/dev/null || {
    echo "skip: dflash: training: no torch; script/setup --dev installs it"
    exit 77
}
train() {
    OMP_NUM_THREADS=1 "$python" "$dflash/train.py" --chimere "$CHIMERE" --model nano.gguf --out out --prompts 10 --answer 24 \
        --depth 1 --ff 64 --steps 2 --batch 1 --anchors 4 "$@" >log 2>&1 || fail "train.py: $(cat log)"
}
train
grep -q "tokens per round of 8 held out" log || fail "no figure: $(cat log)"
cp out/answers.jsonl answers
head -n 4 answers >out/answers.jsonl # cut off, by half a line
printf '{"i": 4, "tok' >>out/answers.jsonl
rm -r out/taps
train
cmp -s <(head -n 4 answers) <(head -n 4 out/answers.jsonl) || fail "answers that were there are others"
[ "$(wc -l <out/answers.jsonl)" = 10 ] || fail "$(wc -l <out/answers.jsonl) answers of 10"
ask --draft out/drafter.gguf >drafted
cmp -s plain drafted || fail "another text: $(cat drafted)"

# a night leaves it as it is and says so; it is trained again on the day's questions
long_day
"$CHIMERE" night run -m nano.gguf --db day.db -q -n 1 --steps drafts --draft out/drafter.gguf --night-dir nights >night
grep -q 'drafter   drafter.gguf stays as it is' night || fail "the report of a night: $(cat night)"
"$CHIMERE" night export --db day.db -q >day.jsonl
train --questions day.jsonl --out again
grep -q '"n_prompt"' again/answers.jsonl || fail "trained on the day: $(cat log)"
