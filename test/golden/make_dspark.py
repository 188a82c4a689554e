#!/usr/bin/env python3
"""Writes the golden reference of drafters with DSpark's heads: the greedy chain of a block and its confidences, by numpy.

Usage: make_dspark.py OUT_DIR   (reads qwen35moe.hidden and .json there, and dflash.logits, which this forward must repeat)

dspark.chain: little-endian f32 [2, 8, 2], of the blocks of make_dflash.py without a window: each slot's token and the
confidence in it. The first row drafts too. Weights of the heads come from the generator under their GGUF names.
"""
import json, sys
import numpy as np
from counter import values

out = sys.argv[1]
WIDTH, LAYERS, HEADS, KV, HEAD, FF, BLOCK, MASK, RANK, EPS, BASE = 32, 2, 4, 2, 16, 48, 8, 95, 6, 1e-6, 1e4
spec = json.load(open(f"{out}/qwen35moe.json"))
vocab, ids = spec["config"]["vocab_size"], spec["tokens"]
known = np.fromfile(f"{out}/qwen35moe.hidden", "<f4").reshape(len(ids), 3 * WIDTH).astype(float)
table = {t["name"]: t for t in spec["tensors"]}

def of_target(name):
    t = table[name]
    return values(name, t["shape"], t["offset"], t["scale"]).astype(float)

def matrix(name, rows, cols, loud=1.5): return values("dflash." + name, [rows, cols], 0.0, loud * 3 ** .5 * cols ** -.5).astype(float)
def norm(name, n): return values("dflash." + name, [n], 1.0, 0.5).astype(float)
def rms(x, w): return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w

def rotate(x, position):
    """x [n, heads, d]: pairs (i, i + d/2)."""
    half = x.shape[-1] // 2
    angle = position[:, None] * BASE ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    return np.concatenate([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)

def block(anchor):
    """Hidden rows [BLOCK, WIDTH] of the block that begins with the token at position anchor."""
    context = rms(known[:anchor] @ matrix("fc.weight", WIDTH, 3 * WIDTH).T, norm("enc.output_norm.weight", WIDTH))
    u = of_target("model.embed_tokens.weight")[[ids[anchor]] + [MASK] * (BLOCK - 1)]
    at = np.arange(anchor + BLOCK)
    for i in range(LAYERS):
        b = f"blk.{i}."
        h = rms(u, norm(b + "attn_norm.weight", WIDTH))
        both = np.concatenate([context, h])
        q = rms((h @ matrix(b + "attn_q.weight", HEADS * HEAD, WIDTH).T).reshape(BLOCK, HEADS, HEAD), norm(b + "attn_q_norm.weight", HEAD))
        k = rms((both @ matrix(b + "attn_k.weight", KV * HEAD, WIDTH).T).reshape(-1, KV, HEAD), norm(b + "attn_k_norm.weight", HEAD))
        v = (both @ matrix(b + "attn_v.weight", KV * HEAD, WIDTH).T).reshape(-1, KV, HEAD)
        q, k = rotate(q, at[anchor:]), rotate(k, at)
        a = np.empty((BLOCK, HEADS, HEAD))
        for j in range(HEADS):
            s = q[:, j] @ k[:, j // (HEADS // KV)].T * HEAD ** -.5
            p = np.exp(s - s.max(-1, keepdims=True))
            a[:, j] = p / p.sum(-1, keepdims=True) @ v[:, j // (HEADS // KV)]
        u = u + a.reshape(BLOCK, -1) @ matrix(b + "attn_output.weight", WIDTH, HEADS * HEAD).T
        h = rms(u, norm(b + "ffn_norm.weight", WIDTH))
        gate = h @ matrix(b + "ffn_gate.weight", FF, WIDTH).T
        u = u + (gate / (1 + np.exp(-gate)) * (h @ matrix(b + "ffn_up.weight", FF, WIDTH).T)) @ matrix(b + "ffn_down.weight", WIDTH, FF).T
    return rms(u, norm("output_norm.weight", WIDTH))

head = of_target("lm_head.weight")
torch = np.fromfile(f"{out}/dflash.logits", "<f4").reshape(2, 2, BLOCK - 1, vocab)[0]
before, after = matrix("markov_w1.weight", vocab, RANK, 3), matrix("markov_w2.weight", vocab, RANK, 3)
sure, bias = matrix("conf_proj.weight", 1, WIDTH + RANK)[0], norm("conf_proj.bias", 1)[0]
chain = np.empty((2, BLOCK, 2), "<f4")
for n, anchor in enumerate((100, 30)):
    rows = block(anchor)
    logits = rows @ head.T
    assert np.abs(logits[1:] - torch[n]).max() < 1e-4 * np.abs(torch[n]).max()
    prev = ids[anchor]
    for i in range(BLOCK):
        one = np.sort(logits[i] + after @ before[prev])
        assert one[-1] - one[-2] > 1e-3 * (one[-1] - one[0]), "a tie"
        best = int((logits[i] + after @ before[prev]).argmax())
        chain[n, i] = best, 1 / (1 + np.exp(-(sure @ np.concatenate([rows[i], before[prev]]) + bias)))
        prev = best
    print(chain[n, :, 0].astype(int), logits.argmax(-1), chain[n, :, 1])
chain.tofile(f"{out}/dspark.chain")
