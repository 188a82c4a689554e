#!/usr/bin/env python3
"""Writes test/data/real.json: what transformers computes with published weights.

Usage: real.py MODELS_DIR OUT.json   (torch, transformers, gguf, accelerate, sentence-transformers; script/test-models
fills MODELS_DIR)

Decoders: logits of their dequantised file over a prompt and its greedy continuation, 48 ids per position with the best
one among them. Encoders: vectors.
"""
import json, sys
import torch, transformers as T

DECODERS = {'SmolLM2-135M-Instruct.Q4_1.gguf': "The capital of France is Paris. Water boils at a temperature of",
            'gemma-3-270m-q4_k_m.gguf': "The capital of France is"}
SENTENCES = ["The quick brown fox jumps over the lazy dog.", "Café prices rose by 12 % in Zürich last year!",
             "int main(void) { return 0; }", "A dog leaps over a sleeping fox " * 12]


def decoder(folder, file, text):
    m = T.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    tok = T.AutoTokenizer.from_pretrained(folder, gguf_file=file)
    with torch.no_grad():
        ids = m.generate(torch.tensor([tok(text).input_ids]), max_new_tokens=8, do_sample=False)[0].tolist()
        x = m(torch.tensor([ids])).logits[0]
    keep = [sorted({int(row.argmax()), *(int(i) for i in torch.linspace(0, x.shape[1] - 1, 47))}) for row in x]
    print(file, repr(tok.decode(ids)))
    return dict(file=file, tokens=ids, ids=keep, best=[int(row.argmax()) for row in x], range=float(x.max() - x.min()),
                logits=[[round(float(row[i]), 5) for i in k] for row, k in zip(x, keep)])


def encoder(folder, name):
    from sentence_transformers import SentenceTransformer
    m = SentenceTransformer(f'{folder}/{name}', device='cpu')
    return dict(folder=name, texts=SENTENCES, vectors=[[round(float(v), 7) for v in row] for row in m.encode(SENTENCES)])


if __name__ == '__main__':
    d = dict(decoders=[decoder(sys.argv[1], f, t) for f, t in DECODERS.items()], encoders=[encoder(sys.argv[1], 'all-MiniLM-L6-v2')])
    json.dump(d, open(sys.argv[2], 'w'), separators=(',', ':'))
