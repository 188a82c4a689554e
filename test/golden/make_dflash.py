#!/usr/bin/env python3
"""Writes the golden reference of drafters: the logits of two blocks by PyTorch (train/dflash/model.py).

Usage: make_dflash.py OUT_DIR   (torch; reads qwen35moe.hidden and .json there, which make.py wrote)

The target is the tiny qwen35moe; the drafter's weights come from the generator of make.py under their GGUF names.
dflash.logits: little-endian f32 [2, 7, n_vocab], of the blocks whose anchors are the tokens at positions 100 and 30; then
the same of a drafter whose first layer has a window of 20.
"""
import json, os, sys
import numpy as np, torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../train/dflash"))
from counter import values
from model import Drafter, tensors_of

out = sys.argv[1]
spec = json.load(open(f"{out}/qwen35moe.json"))
width, vocab, ids = 32, spec["config"]["vocab_size"], spec["tokens"]
known = torch.from_numpy(np.fromfile(f"{out}/qwen35moe.hidden", "<f4").reshape(len(ids), 3 * width))
table = {t["name"]: t for t in spec["tensors"]}

def of_target(name):
    t = table[name]
    return torch.from_numpy(values(name, t["shape"], t["offset"], t["scale"]).copy())

embed, head = of_target("model.embed_tokens.weight"), of_target("lm_head.weight")
anchors, blocks = torch.tensor([100, 30]), []
for windows in ([0, 0], [20, 0]):
    c = dict(width=width, layers=2, heads=4, kv_heads=2, head=16, ff=48, taps=[0, 2, 3], block=8, mask=95, base=10000.0, eps=1e-6,
             windows=windows)
    m = Drafter(c).eval()
    with torch.no_grad():
        for name, p in tensors_of(m):
            norm = p.dim() == 1
            p.copy_(torch.from_numpy(values("dflash." + name, list(p.shape), 1.0 if norm else 0.0, 0.5 if norm else 1.5 * 3 ** .5 * p.shape[-1] ** -.5)))
        rows = torch.stack([embed[[ids[a]] + [c["mask"]] * 7] for a in anchors.tolist()])
        blocks.append((m(known[:100], anchors, rows)[:, 1:] @ head.T).numpy())
np.stack(blocks).astype("<f4").tofile(f"{out}/dflash.logits")
