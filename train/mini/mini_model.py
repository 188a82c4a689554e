"""chimere-mini: nano's architecture (qwen35moe), larger: 64 experts of which 8 are used, and a prediction block trained two deep.

Weights lie on a grid that Q4_0 holds exactly: the second part of training rounds them in the forward pass (`on_grid`),
and gradients pass as if it had not. A block of 32 has the scale of its largest magnitude, kept to five significant bits,
so that scale times integer is exact in bfloat16 too.
"""

import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "nano"))
import model as nano_model  # noqa: E402

N_VOCAB, N_CTX = 16384, 4096
ENDOFTEXT_ID, IM_END_ID = N_VOCAB - 9, N_VOCAB - 7
BLOCK = 32


def config(**changes):
    values = dict(vocab_size=N_VOCAB, hidden_size=384, num_hidden_layers=7, full_attention_interval=2, num_attention_heads=6, num_key_value_heads=2,
                  num_experts=64, num_experts_per_tok=8, moe_intermediate_size=64, shared_expert_intermediate_size=64,
                  max_position_embeddings=N_CTX, eos_token_id=IM_END_ID, pad_token_id=ENDOFTEXT_ID,
                  rope_parameters={"rope_type": "default", "rope_theta": 100000.0, "partial_rotary_factor": 0.5, "mrope_section": [6, 5, 5], "mrope_interleaved": True})
    values.update(changes)
    return nano_model.config(**values)


def rounds(name, w):
    """Whether a weight is stored as Q4_0: matrices, but for the router and the few rows of the delta net's gates."""
    return w.ndim >= 2 and w.shape[-1] % BLOCK == 0 and not any(x in name for x in ("conv1d", "mlp.gate.weight", "in_proj_a", "in_proj_b", "shared_expert_gate"))


def scales(blocks):
    """Scale of every row of 32: the element of largest magnitude becomes -8."""
    at = blocks.abs().argmax(-1, keepdim=True)
    d = blocks.gather(-1, at) / -8
    mantissa, exponent = torch.frexp(d)
    return torch.ldexp((mantissa * 32).round() / 32, exponent)


def on_grid(flat):
    """Nearest values of the grid, for a flat float32 tensor of whole blocks."""
    blocks = flat.view(-1, BLOCK)
    d = scales(blocks)
    q = (blocks / torch.where(d == 0, 1.0, d)).round().clamp(-8, 7)
    return (q * d).view(-1)


def pack(flat):
    """(scales, integers, remainders in sixteenths of a scale): the grid, and enough of the rest to train on from."""
    blocks = flat.view(-1, BLOCK)
    d = scales(blocks)
    x = blocks / torch.where(d == 0, 1.0, d)
    q = x.round().clamp(-8, 7)
    r = ((x - q) * 16 + 7.5).round().clamp(0, 15)
    return d.squeeze(-1), (q + 8).to(torch.uint8), r.to(torch.uint8)


def unpack(d, q, r=None):
    x = q.float() - 8
    if r is not None:
        x = x + (r.float() - 7.5) / 16
    return (x * d.float().unsqueeze(-1)).view(-1)
