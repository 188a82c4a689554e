"""Jina's second encoder in plain torch, from its published description: BERT with ALiBi instead of positions and a gated
GELU. transformers has no class of it."""
import torch, torch.nn as nn, torch.nn.functional as F
from types import SimpleNamespace


def slopes(n):
    """Of n heads: powers of 2^(-8/n); for other n than powers of two, interleaved with those of twice as many."""
    def powers(n): return [2 ** (-8 * (i + 1) / n) for i in range(n)]
    whole = 2 ** (n.bit_length() - 1)
    return powers(n) if whole == n else powers(whole) + powers(2 * whole)[0::2][:n - whole]


def parts(**named):
    """A module of modules by name, so that the checkpoint's names need no class each."""
    m = nn.Module()
    for name, part in named.items(): setattr(m, name, part)
    return m


class JinaBert(nn.Module):
    def __init__(self, c):
        super().__init__()
        c.model_type, c.position_embedding_type, c.feed_forward_type, c.emb_pooler = 'bert', 'alibi', 'geglu', 'mean'
        self.config, d, ff = c, c.hidden_size, c.intermediate_size
        norm = lambda: nn.LayerNorm(d, eps=c.layer_norm_eps)
        self.embeddings = parts(word_embeddings=nn.Embedding(c.vocab_size, d), token_type_embeddings=nn.Embedding(2, d), LayerNorm=norm())
        self.encoder = parts(layer=nn.ModuleList(parts(
            attention=parts(**{'self': parts(query=nn.Linear(d, d), key=nn.Linear(d, d), value=nn.Linear(d, d)),
                               'output': parts(dense=nn.Linear(d, d), LayerNorm=norm())}),
            mlp=parts(gated_layers=nn.Linear(d, 2 * ff, bias=False), wo=nn.Linear(ff, d), layernorm=norm()))
            for _ in range(c.num_hidden_layers)))

    def forward(self, ids, token_type_ids):
        n, h = ids.shape[1], self.config.num_attention_heads
        x = self.embeddings.LayerNorm(self.embeddings.word_embeddings(ids) + self.embeddings.token_type_embeddings(token_type_ids))
        distance = (torch.arange(n)[None] - torch.arange(n)[:, None]).abs()
        bias = -torch.tensor(slopes(h))[:, None, None] * distance
        for l in self.encoder.layer:
            own = getattr(l.attention, 'self')
            q, k, v = (p(x).view(1, n, h, -1).transpose(1, 2) for p in (own.query, own.key, own.value))
            a = (q @ k.transpose(2, 3) / q.shape[-1] ** .5 + bias).softmax(-1) @ v
            x = l.attention.output.LayerNorm(l.attention.output.dense(a.transpose(1, 2).reshape(1, n, -1)) + x)
            gate, up = l.mlp.gated_layers(x).chunk(2, -1)
            x = l.mlp.layernorm(l.mlp.wo(F.gelu(gate) * up) + x)
        return SimpleNamespace(last_hidden_state=x)
