#!/usr/bin/env python3
"""Writes test/data/hf/greedy.json: how transformers goes on, greedily, with the tiny models of make_hf.py.

Usage: make_greedy.py DATA_DIR     (DATA_DIR: test/data/hf; torch and transformers of requirements.txt)

The models have make_hf.py's hashed weights and the tokenizer of tokenizer-qwen35. Texts end before the first
token whose lead is below 1 % of the logits' range, or that the tokenizer has no text for, so that a
difference is a defect and no tie.
"""
import json, os, sys, tempfile
import torch
import transformers as T
from safetensors.torch import save_file
from make_hf import read_weights

MODELS = {'qwen35moe': 'Qwen3_5MoeForCausalLM', 'llama': 'LlamaForCausalLM'}
PROMPTS = ['The ferry to the island', 'def f(x): return x + 1', 'À la carte, 12 + 30 =', 'a', '"name": "value",', 'Hello world']
N_NEW = 24


def load(data, name):
    path = os.path.join(data, name)
    with tempfile.TemporaryDirectory() as tmp:
        tensors = {k: t.clone() for k, t in read_weights(path).items() if not k.startswith('mtp.')}
        save_file(tensors, os.path.join(tmp, 'model.safetensors'), metadata={'format': 'pt'})
        with open(os.path.join(path, 'config.json')) as f, open(os.path.join(tmp, 'config.json'), 'w') as g: g.write(f.read())
        return getattr(T, MODELS[name]).from_pretrained(tmp, dtype=torch.float32).eval()


def main(data):
    torch.set_num_threads(1)
    tok = T.PreTrainedTokenizerFast(tokenizer_file=os.path.join(data, 'tokenizer-qwen35', 'tokenizer.json'))
    rows = []
    for name in MODELS:
        model = load(data, name)
        for prompt in PROMPTS:
            ids = tok.encode(prompt, add_special_tokens=False)
            new = []
            with torch.no_grad():
                for _ in range(N_NEW):
                    row = model(torch.tensor([ids + new])).logits[0, -1]
                    top = row.topk(2)
                    lead = float((top.values[0] - top.values[1]) / (row.max() - row.min()))
                    if lead < 0.01 or int(top.indices[0]) >= 310: break
                    new.append(int(top.indices[0]))
            if len(new) < 4: continue
            rows.append({'model': name, 'prompt': prompt, 'n': len(new), 'text': tok.decode(new)})
            print(rows[-1], flush=True)
    with open(os.path.join(data, 'greedy.json'), 'w') as f:
        json.dump(rows, f, ensure_ascii=False, indent=1)
        f.write('\n')


main(sys.argv[1])
