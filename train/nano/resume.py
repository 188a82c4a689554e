"""Back from a published file to a checkpoint that `train.py --resume` reads, and to the file's tokenizer.

    python resume.py chimere-nano-bf16.gguf CKPT_DIR TOKENIZER_DIR

Undoes what `chimere convert` does to a checkpoint: norms are stored as 1 + w, A as -exp(A_log), value heads
tiled over key heads, taps of the convolution squeezed, gate and up halves of the experts apart. Weights come
back as the bfloat16 values that were trained with; optimiser moments are gone, so the next leg warms up.
Exporting and converting the result again gives the same tensors, bit for bit.
"""

import argparse
import json
import os
import struct

import numpy as np
import torch

import model as m
from chatform import CONTROL_TOKENS, MARK_TOKENS
from tokenizer import save, untrained
from train import save_parts

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_F32, _BF16 = 0, 30


class Reader:
    """Keys and tensors of a GGUF file: float32 and bfloat16, as float32 tensors with rows first."""

    def __init__(self, path):
        self.bytes, self.at = np.memmap(path, dtype=np.uint8, mode="r"), 0
        magic, version, n_tensor, n_key = self.take("<4sIQQ")
        assert magic == b"GGUF" and version == 3, f"{path}: expected GGUF version 3"
        self.keys = {}
        for _ in range(n_key):
            name = self.string()
            self.keys[name] = self.value(*self.take("<I"))
        infos = []
        for _ in range(n_tensor):
            name, (n_dims,) = self.string(), self.take("<I")
            infos.append((name, self.take(f"<{n_dims}Q"), *self.take("<IQ")))
        align = self.keys.get("general.alignment", 32)
        base = -(-self.at // align) * align
        self.tensors = {name: self.tensor(base + at, dims, kind) for name, dims, kind, at in infos}

    def take(self, form):
        out = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return out

    def string(self):
        n, = self.take("<Q")
        self.at += n
        return bytes(self.bytes[self.at - n:self.at]).decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            item, n = self.take("<IQ")
            return [self.value(item) for _ in range(n)]
        return self.take("<" + _SCALARS[kind])[0]

    def tensor(self, at, dims, kind):
        n, size = int(np.prod(dims)), {_F32: 4, _BF16: 2}[kind]
        raw = torch.from_numpy(np.array(self.bytes[at:at + n * size]))
        return raw.view(torch.float32 if kind == _F32 else torch.bfloat16).float().view(*reversed(dims))


def _grouped(x, n_key, dim=0, width=1):
    """Value heads, `width` rows each, from tiled over key heads back to grouped by key head."""
    x = x.movedim(dim, 0)
    tiled = x.unflatten(0, (-1, n_key, width))                 # [per key, key, width, ..]
    return tiled.transpose(0, 1).flatten(0, 2).movedim(0, dim)


def checkpoint(file):
    """{name: float32 tensor} under the names of the training code."""
    c, t, out = m.config(), dict(file.tensors), {}
    n_key, d, n_trunk = c.linear_num_key_heads, c.linear_value_head_dim, c.num_hidden_layers
    qk = 2 * n_key * c.linear_key_head_dim

    def heads_behind(x):
        return torch.cat([x[:qk], _grouped(x[qk:], n_key, width=d)])

    same, minus = (lambda x: x), (lambda x: x - 1)
    rows = {"attn_norm.weight": ("input_layernorm.weight", minus), "post_attention_norm.weight": ("post_attention_layernorm.weight", minus),
            "attn_q.weight": ("self_attn.q_proj.weight", same), "attn_k.weight": ("self_attn.k_proj.weight", same),
            "attn_v.weight": ("self_attn.v_proj.weight", same), "attn_output.weight": ("self_attn.o_proj.weight", same),
            "attn_q_norm.weight": ("self_attn.q_norm.weight", minus), "attn_k_norm.weight": ("self_attn.k_norm.weight", minus),
            "attn_qkv.weight": ("linear_attn.in_proj_qkv.weight", heads_behind),
            "attn_gate.weight": ("linear_attn.in_proj_z.weight", lambda x: _grouped(x, n_key, width=d)),
            "ssm_beta.weight": ("linear_attn.in_proj_b.weight", lambda x: _grouped(x, n_key)),
            "ssm_alpha.weight": ("linear_attn.in_proj_a.weight", lambda x: _grouped(x, n_key)),
            "ssm_conv1d.weight": ("linear_attn.conv1d.weight", lambda x: heads_behind(x).unsqueeze(1)),
            "ssm_dt.bias": ("linear_attn.dt_bias", lambda x: _grouped(x, n_key)),
            "ssm_a": ("linear_attn.A_log", lambda x: _grouped((-x.double()).log().float(), n_key)),
            "ssm_norm.weight": ("linear_attn.norm.weight", same),
            "ssm_out.weight": ("linear_attn.out_proj.weight", lambda x: _grouped(x, n_key, dim=1, width=d)),
            "ffn_gate_inp.weight": ("mlp.gate.weight", same), "ffn_down_exps.weight": ("mlp.experts.down_proj", same),
            "ffn_gate_shexp.weight": ("mlp.shared_expert.gate_proj.weight", same), "ffn_up_shexp.weight": ("mlp.shared_expert.up_proj.weight", same),
            "ffn_down_shexp.weight": ("mlp.shared_expert.down_proj.weight", same),
            "ffn_gate_inp_shexp.weight": ("mlp.shared_expert_gate.weight", lambda x: x.view(1, -1)),
            "nextn.eh_proj.weight": ("fc.weight", same), "nextn.enorm.weight": ("pre_fc_norm_embedding.weight", minus),
            "nextn.hnorm.weight": ("pre_fc_norm_hidden.weight", minus), "nextn.shared_head_norm.weight": ("norm.weight", minus)}
    out["lm.model.embed_tokens.weight"] = t.pop("token_embd.weight")
    out["lm.model.norm.weight"] = t.pop("output_norm.weight") - 1
    for il in range(n_trunk + 1):
        layer, blk = f"lm.model.layers.{il}." if il < n_trunk else "mtp.layers.0.", f"blk.{il}."
        halves = [t.pop(blk + f"ffn_{h}_exps.weight") for h in ("gate", "up")]
        out[layer + "mlp.experts.gate_up_proj"] = torch.cat(halves, dim=1)
        for name, (published, undo) in rows.items():
            x = t.pop(blk + name, None)
            if x is not None:
                out[("mtp." if name.startswith("nextn.") else layer) + published] = undo(x)
    assert not t, f"tensors without a place: {list(t)}"
    return {n: w.to(torch.bfloat16).float() for n, w in out.items()}


def file_tokenizer(keys, out):
    tokens = keys["tokenizer.ggml.tokens"]
    n_plain = len(tokens) - len(CONTROL_TOKENS) - len(MARK_TOKENS)
    assert tokens[n_plain:] == CONTROL_TOKENS + MARK_TOKENS
    merges = [tuple(x.split(" ")) for x in keys["tokenizer.ggml.merges"]]
    save(untrained({x: i for i, x in enumerate(tokens[:n_plain])}, merges), out)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("file"), ap.add_argument("ckpt"), ap.add_argument("tokenizer")
    args = ap.parse_args()
    file = Reader(args.file)
    weights, shapes = checkpoint(file), {n: p.shape for n, p in m.Nano(m.config()).named_parameters()}
    assert weights.keys() == shapes.keys(), weights.keys() ^ shapes.keys()
    for n, shape in shapes.items():
        assert weights[n].shape == shape, (n, weights[n].shape, shape)
    save_parts(args.ckpt, {n: weights[n] for n in shapes}, {"x": 1.0, "step": 0, "tokens": 0, "factors": {}, "curve": [], "dev": []})
    file_tokenizer(file.keys, args.tokenizer)
    with open(os.path.join(args.tokenizer, "tokenizer_config.json")) as f:
        assert json.load(f)["chat_template"] == file.keys["tokenizer.chat_template"], "the file's template is not chatform.py's"
    print(f"{sum(w.numel() for w in weights.values())} weights, {len(file.keys['tokenizer.ggml.tokens'])} tokens")


if __name__ == "__main__":
    main()
