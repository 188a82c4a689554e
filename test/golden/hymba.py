"""Hymba in plain torch, from its paper (Dong et al., arXiv:2411.13676) and the published checkpoints' tensor
names and configuration. transformers has no class for it. Written for clarity: one sequence, no cache.

Per layer: h = norm(x); in_proj h = [q | k | v | u | gate], layers that read another's keys and values have
no k and v. Attention heads see the meta tokens, and of the rest everything (global layers) or the own
position and sliding_window before it. Mamba-1 heads: conv and SiLU of u; dt, B, C from it, each with a
norm; scan; times SiLU(gate). x += out_proj (norm1(attention) + norm2(mamba)) / 2; then a SwiGLU.
"""
import torch, torch.nn as nn, torch.nn.functional as F
from transformers import PretrainedConfig


class HymbaConfig(PretrainedConfig):
    model_type = 'hymba'


def rms(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


class Hymba(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        d, inner, kv = c.hidden_size, c.mamba_expand * c.hidden_size, c.num_key_value_heads / c.num_attention_heads
        self.readers = {i: g[0] for g in c.kv_reuse_group for i in g[1:]}
        shapes = {'model.embed_tokens.weight': (c.vocab_size, d), 'model.memory_tokens': (c.num_memory_tokens, d)}
        for i in range(c.num_hidden_layers):
            p, m = f'model.layers.{i}.', f'model.layers.{i}.mamba.'
            own = 0 if i in self.readers else int(kv * d) + int(kv * inner)
            shapes |= {p + 'input_layernorm.weight': (d,), m + 'in_proj.weight': (d + own + 2 * inner, d),
                       m + 'conv1d.weight': (inner, 1, c.mamba_d_conv), m + 'conv1d.bias': (inner,),
                       m + 'x_proj.0.weight': (c.mamba_dt_rank + 2 * c.mamba_d_state, inner),
                       m + 'dt_proj.0.weight': (inner, c.mamba_dt_rank), m + 'dt_proj.0.bias': (inner,),
                       m + 'A_log.0': (inner, c.mamba_d_state), m + 'D.0': (inner,),
                       m + 'dt_layernorm.weight': (c.mamba_dt_rank,), m + 'B_layernorm.weight': (c.mamba_d_state,),
                       m + 'C_layernorm.weight': (c.mamba_d_state,), m + 'pre_avg_layernorm1.weight': (inner,),
                       m + 'pre_avg_layernorm2.weight': (inner,), m + 'out_proj.weight': (d, inner),
                       p + 'pre_moe_layernorm.weight': (d,), p + 'moe.experts.0.gate_proj.weight': (c.intermediate_size, d),
                       p + 'moe.experts.0.up_proj.weight': (c.intermediate_size, d),
                       p + 'moe.experts.0.down_proj.weight': (d, c.intermediate_size)}
        shapes |= {'model.final_layernorm.weight': (d,), 'lm_head.weight': (c.vocab_size, d)}
        self.w = {k: torch.zeros(s) for k, s in shapes.items()}

    def state_dict(self):
        return self.w

    def scan(self, u, gate, m):
        """u, gate: [n, inner]; S[c, s] = exp(dt A) S + dt u B."""
        c, w, n = self.config, self.w, u.shape[0]
        padded = F.pad(u, (0, 0, c.mamba_d_conv - 1, 0))
        taps = w[m + 'conv1d.weight'][:, 0]
        u = F.silu(sum(padded[j:j + n] * taps[:, j] for j in range(c.mamba_d_conv)) + w[m + 'conv1d.bias'])
        dt, B, C = (u @ w[m + 'x_proj.0.weight'].T).split([c.mamba_dt_rank, c.mamba_d_state, c.mamba_d_state], -1)
        dt, B, C = (rms(t, w[m + k + '_layernorm.weight'], c.rms_norm_eps) for t, k in ((dt, 'dt'), (B, 'B'), (C, 'C')))
        dt = F.softplus(dt @ w[m + 'dt_proj.0.weight'].T + w[m + 'dt_proj.0.bias'])
        A, S, out = -torch.exp(w[m + 'A_log.0']), torch.zeros(u.shape[1], c.mamba_d_state), []
        for t in range(n):
            S = torch.exp(dt[t][:, None] * A) * S + (dt[t] * u[t])[:, None] * B[t]
            out.append(S @ C[t] + w[m + 'D.0'] * u[t])
        return torch.stack(out) * F.silu(gate)

    def rope(self, x):
        """x: [n, heads, dim], halves paired; 'ntk' stretches the base for twice the longer context."""
        c, dim = self.config, x.shape[-1]
        base = c.rope_theta
        if c.rope_type == 'ntk':
            base *= (2 * c.max_position_embeddings / c.orig_max_position_embeddings - 1) ** (dim / (dim - 2))
        angle = torch.arange(x.shape[0]).float()[:, None] * (1.0 / base ** (torch.arange(0, dim, 2).float() / dim))
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, ids):
        c, w = self.config, self.w
        d, inner, H, KV = c.hidden_size, c.mamba_expand * c.hidden_size, c.num_attention_heads, c.num_key_value_heads
        x = torch.cat([w['model.memory_tokens'], w['model.embed_tokens.weight'][ids[0]]])
        n, at = x.shape[0], torch.arange(x.shape[0])
        causal, near = at[:, None] >= at[None], at[:, None] - at[None] <= c.sliding_window
        local = causal & (near | (at[None] < c.num_memory_tokens))
        stored = {}
        for i in range(c.num_hidden_layers):
            p, m = f'model.layers.{i}.', f'model.layers.{i}.mamba.'
            h = rms(x, w[p + 'input_layernorm.weight'], c.rms_norm_eps) @ w[m + 'in_proj.weight'].T
            if i in self.readers:
                q, u, gate = h.split([d, inner, inner], -1)
                k, v = stored[self.readers[i]]
            else:
                q, k, v, u, gate = h.split([d, d * KV // H, inner * KV // H, inner, inner], -1)
                k, v = self.rope(k.reshape(n, KV, -1)), v.reshape(n, KV, -1)
                stored[i] = k, v
            q = self.rope(q.reshape(n, H, -1))
            k, v = k.repeat_interleave(H // KV, 1), v.repeat_interleave(H // KV, 1)
            s = torch.einsum('thd,shd->hts', q, k) * (d // H) ** -.5
            s = s.masked_fill(~(causal if i in c.global_attn_idx else local), float('-inf')).softmax(-1)
            a = torch.einsum('hts,shd->thd', s, v).reshape(n, inner)
            both = (rms(a, w[m + 'pre_avg_layernorm1.weight'], c.rms_norm_eps) +
                    rms(self.scan(u, gate, m), w[m + 'pre_avg_layernorm2.weight'], c.rms_norm_eps)) / 2
            x = x + both @ w[m + 'out_proj.weight'].T
            h, e = rms(x, w[p + 'pre_moe_layernorm.weight'], c.rms_norm_eps), p + 'moe.experts.0.'
            x = x + (F.silu(h @ w[e + 'gate_proj.weight'].T) * (h @ w[e + 'up_proj.weight'].T)) @ w[e + 'down_proj.weight'].T
        x = rms(x[c.num_memory_tokens:], w['model.final_layernorm.weight'], c.rms_norm_eps)
        return type('Output', (), {'logits': (x @ w['lm_head.weight'].T)[None]})
