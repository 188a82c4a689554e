"""The drafter of docs/speculation.md in PyTorch: packed training blocks, the loss, the file that `--draft` opens."""
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, position, base):
    """x [.., n, heads, d]: pairs (i, i + d/2) turn by position [n]."""
    half = x.shape[-1] // 2
    inverse = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = position.double()[:, None] * inverse.to(position.device)
    cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, q, kv = c["width"], c["heads"] * c["head"], c["kv_heads"] * c["head"]
        self.attn_norm = nn.Parameter(torch.ones(d))
        self.attn_q = nn.Linear(d, q, bias=False)
        self.attn_k = nn.Linear(d, kv, bias=False)
        self.attn_v = nn.Linear(d, kv, bias=False)
        self.attn_output = nn.Linear(q, d, bias=False)
        self.attn_q_norm = nn.Parameter(torch.ones(c["head"]))
        self.attn_k_norm = nn.Parameter(torch.ones(c["head"]))
        self.ffn_norm = nn.Parameter(torch.ones(d))
        self.ffn_gate = nn.Linear(d, c["ff"], bias=False)
        self.ffn_up = nn.Linear(d, c["ff"], bias=False)
        self.ffn_down = nn.Linear(c["ff"], d, bias=False)


class Drafter(nn.Module):
    """c: width, layers, heads, kv_heads, head, ff, taps (layers of the target), block, mask, base, eps, windows ([layers])."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.fc = nn.Linear(len(c["taps"]) * c["width"], c["width"], bias=False)
        self.enc_norm = nn.Parameter(torch.ones(c["width"]))
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.output_norm = nn.Parameter(torch.ones(c["width"]))

    def seen(self, n_context, anchors, window):
        """[N B, S + N B]: a row of a block sees the context before its anchor, within the window, and its own block."""
        n, b = len(anchors), self.c["block"]
        at = (anchors[:, None] + torch.arange(b, device=anchors.device)).reshape(-1)
        context = torch.arange(n_context, device=anchors.device)[None]
        sees = context < anchors.repeat_interleave(b)[:, None]
        if window: sees = sees & (at[:, None] - context < window)
        own = torch.arange(n, device=anchors.device).repeat_interleave(b)
        return torch.cat([sees, own[:, None] == own[None]], 1)

    def forward(self, context, anchors, rows):
        """context [S, taps * width] of positions 0.., anchors [N], rows [N, B, width] embedded; hidden rows [N, B, width]."""
        c, eps = self.c, self.c["eps"]
        n, b, d = rows.shape
        s = context.shape[0]
        known = rms(self.fc(context), self.enc_norm, eps)
        at = (anchors[:, None] + torch.arange(b, device=anchors.device)).reshape(-1)
        position = torch.cat([torch.arange(s, device=anchors.device), at])
        u = rows.reshape(n * b, d)
        for i, l in enumerate(self.layers):
            h = rms(u, l.attn_norm, eps)
            q = rms(l.attn_q(h).view(n * b, c["heads"], c["head"]), l.attn_q_norm, eps)
            both = torch.cat([known, h])
            k = rms(l.attn_k(both).view(s + n * b, c["kv_heads"], c["head"]), l.attn_k_norm, eps)
            v = l.attn_v(both).view(s + n * b, c["kv_heads"], c["head"])
            q, k = rotate(q, at, c["base"]), rotate(k, position, c["base"])
            share = c["heads"] // c["kv_heads"]
            k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
            mask = self.seen(s, anchors, c["windows"][i])
            a = F.scaled_dot_product_attention(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), attn_mask=mask)
            u = u + l.attn_output(a.transpose(0, 1).reshape(n * b, -1))
            h = rms(u, l.ffn_norm, eps)
            u = u + l.ffn_down(F.silu(l.ffn_gate(h)) * l.ffn_up(h))
        return rms(u, self.output_norm, eps).view(n, b, d)


def dpace(logits, labels, smooth=0.5):
    """Cross entropy of [N, K, V] against labels [N, K] (-1: none), each slot weighted by what it adds to the expected
    number of accepted tokens: the sum of the products of probabilities up to it and up to each later slot (D-PACE)."""
    there = labels >= 0
    loss = F.cross_entropy(logits.flatten(0, 1), labels.clamp(min=0).flatten(), reduction="none").view(labels.shape)
    p = torch.exp(-loss.detach()) * there
    prefix = torch.cumprod((1 - smooth) * p + smooth * there, 1)
    weight = torch.flip(torch.cumsum(torch.flip(prefix, [1]), 1), [1]) * there
    return (loss * weight).sum() / weight.sum().clamp(min=1e-9)


def tokens_per_round(logits, labels):
    """The token that the target gives itself, and those drafted in front of the first wrong one; of blocks [N, K]."""
    right = (logits.argmax(-1) == labels) & (labels >= 0)
    return 1 + torch.cumprod(right.long(), 1).sum(1).float()


# ---- the file ----

def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def key(name, kind, value):
    """kind: u32, f32, str, bool, or a list of them."""
    types = {"u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<B")}
    head = text(name)
    if kind == "str": return head + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        number, form = types[kind]
        return head + struct.pack("<IIQ", 9, number, len(value)) + b"".join(struct.pack(form, v) for v in value)
    number, form = types[kind]
    return head + struct.pack("<I", number) + struct.pack(form, value)


def tensors_of(model):
    yield "fc.weight", model.fc.weight
    yield "enc.output_norm.weight", model.enc_norm
    yield "output_norm.weight", model.output_norm
    for i, l in enumerate(model.layers):
        for name, p in l.named_parameters():
            yield f"blk.{i}.{name.removesuffix('.weight')}.weight", p


def export(model, path, name="drafter"):
    """A GGUF file in llama.cpp's dialect: norms in f32, matrices in bf16."""
    c = model.c
    keys = [key("general.architecture", "str", "dflash"), key("general.name", "str", name),
            key("dflash.block_count", "u32", c["layers"]), key("dflash.embedding_length", "u32", c["width"]),
            key("dflash.feed_forward_length", "u32", c["ff"]), key("dflash.context_length", "u32", c.get("context", 2048)),
            key("dflash.attention.head_count", "u32", c["heads"]), key("dflash.attention.head_count_kv", "u32", c["kv_heads"]),
            key("dflash.attention.key_length", "u32", c["head"]), key("dflash.attention.value_length", "u32", c["head"]),
            key("dflash.attention.layer_norm_rms_epsilon", "f32", c["eps"]), key("dflash.rope.freq_base", "f32", c["base"]),
            key("dflash.block_size", "u32", c["block"]), key("dflash.target_layers", "i32", [t + 1 for t in c["taps"]]),
            key("tokenizer.ggml.mask_token_id", "u32", c["mask"])]
    if any(c["windows"]):
        keys += [key("dflash.attention.sliding_window", "u32", max(c["windows"])),
                 key("dflash.attention.sliding_window_pattern", "bool", [int(w > 0) for w in c["windows"]])]
    directory, data = b"", b""
    tensors = list(tensors_of(model))
    for tensor, p in tensors:
        p = p.detach().float().cpu().contiguous()
        data += bytes(-len(data) % 32)
        wide = p.dim() == 1
        directory += text(tensor) + struct.pack("<I", p.dim()) + b"".join(struct.pack("<Q", n) for n in reversed(p.shape))
        directory += struct.pack("<IQ", 0 if wide else 30, len(data))
        data += (p.numpy().tobytes() if wide else p.to(torch.bfloat16).view(torch.int16).numpy().tobytes())
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + directory
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)
