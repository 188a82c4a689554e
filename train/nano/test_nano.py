"""Checks of the training code against transformers' own forward. Run: python test_nano.py [TOKENIZER_DIR]"""

import random
import sys

import torch

import model as m
from chatform import render
from curriculum import SKILLS
from world import Split


def test_delta_rule():
    torch.manual_seed(0)
    q, k = torch.randn(2, 150, 2, 32), torch.randn(2, 150, 2, 32)
    v, beta, g = torch.randn(2, 150, 4, 32), torch.rand(2, 150, 4), -torch.rand(2, 150, 4) * 0.2
    q, k = (x.repeat_interleave(2, 2) for x in (q, k))
    rule = getattr(m.hf.torch_chunk_gated_delta_rule, "__wrapped__", m.hf.torch_chunk_gated_delta_rule)
    ins = [x.clone().requires_grad_() for x in (q, k, v, g, beta)]
    want, state = rule(*ins[:3], ins[3], ins[4], output_final_state=True, use_qk_l2norm_in_kernel=True)
    want.square().sum().backward()
    grads = [x.grad.clone() for x in ins]
    ins = [x.detach().clone().requires_grad_() for x in ins]
    got, state2 = m.chunk_delta_rule(*ins[:3], ins[3], ins[4], output_final_state=True, use_qk_l2norm_in_kernel=True)
    got.square().sum().backward()
    assert (want - got).abs().max() < 1e-4 and (state - state2).abs().max() < 1e-4, (want - got).abs().max()
    for a, x in zip(grads, ins):
        assert (a - x.grad).abs().max() < 1e-3 * a.abs().max() + 1e-5, ((a - x.grad).abs().max(), a.abs().max())
    # worst case: equal keys, full writes
    a = torch.ones(64, 64).tril(-1)[None]
    assert (m.unit_lower_inverse(a) @ (torch.eye(64) + a) - torch.eye(64)).abs().max() < 1e-3


def test_forward():
    torch.manual_seed(1)
    nano = m.Nano(m.config()).eval()
    print("weights", nano.n_weights())
    assert nano.n_weights() <= 11_500_000
    ids = torch.randint(0, 8192, (2, 100))
    with torch.no_grad():
        m.use_fast_ops(False)
        nano.lm.set_experts_implementation("eager")
        want = nano.lm(ids).logits
        m.use_fast_ops(True)
        nano.lm.set_experts_implementation("dense")
        got = nano.lm(ids).logits
        x = nano.lm.model.embed_tokens(ids)
        cos, sin = nano.rope(100, ids.device, x.dtype)
        for layer in nano.lm.model.layers:
            x, aux = m.layer_forward(layer, x, cos, sin)
        mine = nano.lm.lm_head(nano.lm.model.norm(x))
    assert (want - got).abs().max() < 1e-3 * want.abs().max(), (want - got).abs().max()
    assert (want - mine).abs().max() < 1e-3 * want.abs().max(), (want - mine).abs().max()
    assert 0.9 < aux.item() / 4 < 1.5, aux


def test_template(tokenizer):
    from transformers import AutoTokenizer
    tok = AutoTokenizer.from_pretrained(tokenizer)
    rng = random.Random(0)
    for skill, make in SKILLS.items():
        for think in (True, False):
            it = make(rng, Split(rng, "train"))
            msgs = [dict(x) for x in it["messages"]]
            for x in msgs:
                if x.get("tool_calls"):
                    x["tool_calls"] = [{"type": "function", "function": c} for c in x["tool_calls"]]
            want = tok.apply_chat_template(msgs, tools=it["tools"], add_generation_prompt=True, enable_thinking=think, tokenize=False)
            assert want == render(it["messages"], it["tools"], think), skill


if __name__ == "__main__":
    test_delta_rule()
    test_forward()
    if len(sys.argv) > 1:
        test_template(sys.argv[1])
    print("ok")
