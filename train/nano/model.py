"""chimere-nano: transformers' Qwen3_5MoeForCausalLM, a chunked delta rule that trains fast, and the MTP block.

transformers has the trunk and no MTP; the MTP block here follows the published structure: position p
predicts token p+2 from the trunk's normalised hidden state h_p and the embedding of token p+1,
    x = fc [ norm(E(t_{p+1})) ; norm(h_p) ],  one full-attention layer with MoE,  norm,  shared head.
Everything here is equal to transformers' own forward up to rounding (test_nano.py).
"""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as hf

N_CTX = 2048
GDN_CHUNK = 64


def config(**changes):
    values = dict(
        vocab_size=8192, hidden_size=256, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=64, linear_value_head_dim=64, linear_conv_kernel_dim=4,
        moe_intermediate_size=64, shared_expert_intermediate_size=64, num_experts=10, num_experts_per_tok=4,
        full_attention_interval=4, max_position_embeddings=N_CTX, rms_norm_eps=1e-6, tie_word_embeddings=True, initializer_range=0.02,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [6, 5, 5],
                         "mrope_interleaved": True},
        attention_bias=False, hidden_act="silu", router_aux_loss_coef=0.001, use_cache=True, bos_token_id=None, eos_token_id=8185, pad_token_id=8183)
    values.update(changes)
    c = Qwen3_5MoeTextConfig(**values)
    c.mtp_num_hidden_layers = 1
    c.mtp_use_dedicated_embeddings = False
    return c


# ---- the delta rule in chunks, all chunks at once but for one small product ------------------------

def unit_lower_inverse(a):
    """Inverse of I + a, a strictly lower [.., n, n] with n = 16 * 2^k: nilpotent series in blocks of 16, then merged.

    Computed without gradient; the closing Newton step restores precision and carries the exact derivative.
    """
    n = a.shape[-1]
    with torch.no_grad():
        blocks = a.unflatten(-2, (n // 16, 16)).unflatten(-1, (n // 16, 16))
        m = -torch.stack([blocks[..., i, :, i, :] for i in range(n // 16)], dim=-3)         # [.., n/16, 16, 16]
        eye16 = torch.eye(16, device=a.device, dtype=a.dtype)
        inv = eye16 + m
        for _ in range(3):
            m = m @ m
            inv = inv + inv @ m
        size = 16
        while size < n:
            half = a.unflatten(-2, (n // size, size)).unflatten(-1, (n // size, size))
            c = torch.stack([half[..., 2 * i + 1, :, 2 * i, :] for i in range(n // size // 2)], dim=-3)
            top, bottom = inv[..., 0::2, :, :], inv[..., 1::2, :, :]
            low = -(bottom @ c) @ top
            inv = torch.cat([torch.cat([top, torch.zeros_like(top)], -1), torch.cat([low, bottom], -1)], -2)
            size *= 2
        inv = inv.squeeze(-3)
    return 2 * inv - inv @ (inv + a @ inv)


def chunk_delta_rule(query, key, value, g, beta, chunk_size=GDN_CHUNK, initial_state=None, output_final_state=False,
                     use_qk_l2norm_in_kernel=False, **_):
    """Same contract as transformers' torch_chunk_gated_delta_rule. [n_seq, n_tok, n_head, d]."""
    out_type, mm = query.dtype, query.dtype
    n_seq, n_tok, n_head, d_k = query.shape
    if key.shape[2] != value.shape[2]:
        query, key = (x.repeat_interleave(value.shape[2] // x.shape[2], dim=2) for x in (query, key))
        n_head = value.shape[2]
    d_v = value.shape[-1]
    q, k, v, b, g = (x.transpose(1, 2).float() for x in (query, key, value, beta, g))
    if use_qk_l2norm_in_kernel:
        q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q = q * d_k ** -0.5
    pad = -n_tok % chunk_size
    if pad:
        q, k, v = (F.pad(x, (0, 0, 0, pad)) for x in (q, k, v))
        b, g = (F.pad(x, (0, pad)) for x in (b, g))
    q, k, v = (x.unflatten(2, (-1, chunk_size)) for x in (q, k, v))
    b, g = (x.unflatten(2, (-1, chunk_size)) for x in (b, g))
    g = g.cumsum(-1)
    upper = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=q.device).triu(1)
    decay = (g.unsqueeze(-1) - g.unsqueeze(-2)).masked_fill(upper, float("-inf")).exp()
    km = k.to(mm)
    kk = (km @ km.transpose(-1, -2)).float() * decay * b.unsqueeze(-1)
    inv = unit_lower_inverse(kk.tril(-1)).to(mm)
    u = inv @ (v * b.unsqueeze(-1)).to(mm)
    w = inv @ (k * (b * g.exp()).unsqueeze(-1)).to(mm)
    scores = ((q.to(mm) @ km.transpose(-1, -2)).float() * decay).to(mm)
    last = g[..., -1:]
    kd = (k * (last - g).exp().unsqueeze(-1)).to(mm).transpose(-1, -2)
    # state after a chunk = step @ state + add: the only sequential part
    step = torch.eye(d_k, device=q.device) * last.exp().unsqueeze(-1) - (kd @ w).float()
    add = (kd @ u).float()
    state = torch.zeros(n_seq * n_head, d_k, d_v, device=q.device) if initial_state is None else initial_state.float().reshape(-1, d_k, d_v)
    step, add = step.flatten(0, 1), add.flatten(0, 1)
    states = []
    for i in range(step.shape[1]):
        states.append(state)
        state = torch.baddbmm(add[:, i], step[:, i], state)
    before = torch.stack(states, 1).unflatten(0, (n_seq, n_head)).to(mm)
    read = ((q * g.exp().unsqueeze(-1)) - (scores @ w).float()).to(mm)
    o = read @ before + scores @ u
    o = o.flatten(2, 3)[:, :, :n_tok].transpose(1, 2).to(out_type)
    return o, (state.unflatten(0, (n_seq, n_head)) if output_final_state else None)


def causal_conv(hidden_states, weight, bias=None, activation=None, **_):
    """Depthwise causal convolution as shifted sums, which the compiler fuses. [n_seq, channels, n_tok]."""
    n, n_tok = weight.shape[-1], hidden_states.shape[-1]
    x = F.pad(hidden_states.transpose(1, 2), (0, 0, n - 1, 0))      # rows of channels: contiguous as it came
    out = sum(x[:, i:i + n_tok] * weight[:, i] for i in range(n))
    return F.silu(out).transpose(1, 2)


def dense_experts(self, hidden_states, top_k_index, top_k_weights):
    """All experts on all tokens, unselected ones weighted zero: for ten narrow experts faster than sorting."""
    n, e = hidden_states.shape[0], self.num_experts
    weights = torch.zeros(n, e, dtype=top_k_weights.dtype, device=hidden_states.device).scatter(1, top_k_index, top_k_weights)
    h = F.linear(hidden_states, self.gate_up_proj.flatten(0, 1)).view(n, e, 2, self.intermediate_dim)
    h = F.silu(h[:, :, 0]) * h[:, :, 1] * weights.unsqueeze(-1).to(h.dtype)
    return h.flatten(1) @ self.down_proj.transpose(1, 2).flatten(0, 1)


ALL_EXPERTS_FUNCTIONS.register("dense", dense_experts)


def use_fast_ops(on=True, _kept={}):
    """Swap the delta rule and the convolution in transformers' module; off restores them."""
    if not _kept:
        _kept.update(rule=hf.torch_chunk_gated_delta_rule, conv=hf.causal_conv1d_fn)
    hf.torch_chunk_gated_delta_rule = chunk_delta_rule if on else _kept["rule"]
    hf.causal_conv1d_fn = causal_conv if on else _kept["conv"]


# ---- the multi-token prediction block --------------------------------------------------------------

class MTP(nn.Module):
    """Names are those of published checkpoints under `mtp.`; position is that of the embedded token."""

    def __init__(self, c):
        super().__init__()
        full = c.layer_types.index("full_attention")
        self.pre_fc_norm_embedding = hf.Qwen3_5MoeRMSNorm(c.hidden_size, c.rms_norm_eps)
        self.pre_fc_norm_hidden = hf.Qwen3_5MoeRMSNorm(c.hidden_size, c.rms_norm_eps)
        self.fc = nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)
        self.layers = nn.ModuleList([hf.Qwen3_5MoeDecoderLayer(c, full)])
        self.norm = hf.Qwen3_5MoeRMSNorm(c.hidden_size, c.rms_norm_eps)


class Nano(nn.Module):
    """Trunk and MTP. Training calls `hidden`; everything else goes through transformers' own class."""

    def __init__(self, c):
        super().__init__()
        c._attn_implementation = "sdpa"
        c._experts_implementation = "dense"
        self.lm = Qwen3_5MoeForCausalLM(c)
        self.mtp = MTP(c)
        self.config = c
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self):
        c = self.config
        for name, p in self.named_parameters():
            if name.endswith(("A_log", "dt_bias")):
                continue
            if "norm" in name:
                p.fill_(1.0 if "linear_attn.norm" in name else 0.0)
            elif p.ndim >= 2 and "conv1d" not in name:
                std = c.initializer_range if "embed" in name or "gate.weight" in name else p.shape[-1] ** -0.5
                if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj", "down_proj.weight")):
                    std /= (2 * c.num_hidden_layers) ** 0.5
                p.normal_(0, std)
        for layer in self.lm.model.layers:
            if hasattr(layer, "linear_attn"):
                # time steps from 0.001 to 0.1, so that heads remember from ten tokens to thousands
                n = layer.linear_attn.num_v_heads
                layer.linear_attn.A_log.copy_(torch.empty(n).uniform_(0.5, 16).log())
                dt = torch.exp(torch.rand(n) * 4.6 - 6.9)
                layer.linear_attn.dt_bias.copy_(dt + torch.log(-torch.expm1(-dt)))

    def n_weights(self):
        return sum(p.numel() for p in self.parameters())

    def rope(self, n_tok, device, dtype, start=0):
        pos = torch.arange(start, start + n_tok, device=device).view(1, 1, -1).expand(3, 1, -1)
        return self.lm.model.rotary_emb(torch.zeros(1, device=device, dtype=dtype), pos)

    def mtp_input(self, h, tokens_next):
        e = self.lm.model.embed_tokens(tokens_next)
        return self.mtp.fc(torch.cat([self.mtp.pre_fc_norm_embedding(e), self.mtp.pre_fc_norm_hidden(h)], -1))


def layer_forward(layer, x, cos, sin):
    """One decoder layer and its load-balance term; compiled once per layer type."""
    h = layer.input_layernorm(x)
    if layer.block_type == "linear_attention" if hasattr(layer, "block_type") else layer.layer_type == "linear_attention":
        x = x + layer.linear_attn(hidden_states=h)
    else:
        x = x + layer.self_attn(hidden_states=h, position_embeddings=(cos, sin), attention_mask=None)[0]
    h = layer.post_attention_layernorm(x)
    flat = h.reshape(-1, h.shape[-1])
    moe = layer.mlp
    logits, weights, index = moe.gate(flat)
    y = moe.experts(flat, index, weights) + torch.sigmoid(moe.shared_expert_gate(flat)) * moe.shared_expert(flat)
    share = F.softmax(logits.float(), -1).mean(0)
    load = torch.zeros_like(share).scatter_add(0, index.reshape(-1), torch.ones_like(index.reshape(-1), dtype=share.dtype)) / index.shape[0]
    return x + y.reshape(x.shape), (share * load).sum() * share.shape[0]


def mtp_forward(nano, x, cos, sin):
    x, aux = layer_forward(nano.mtp.layers[0], x, cos, sin)
    return nano.mtp.norm(x), aux


def token_loss(h, head, targets, weights):
    """Sum of weighted nll, and how many of the weighted tokens are the argmax."""
    logits = (h @ head.t()).float()
    nll = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), reduction="none")
    w = weights.reshape(-1)
    hit = (logits.argmax(-1).reshape(-1) == targets.reshape(-1)).float()
    return (nll * w).sum(), (hit * (w > 0.9)).sum(), nll.detach()
