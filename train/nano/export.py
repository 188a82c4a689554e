"""Write a checkpoint as a Hugging Face directory, with reference logits and greedy text beside it.

    python export.py CKPT_DIR TOKENIZER_DIR OUT_DIR [--reference]

Weights are bfloat16, as trained with. The MTP block is stored as mtp.*, which transformers skips.
"""

import argparse
import json
import os
import shutil

import torch
from safetensors.torch import save_file

import model as m
from train import load_parts

PROMPTS = [
    {"messages": [{"role": "user", "content": "Hello!"}], "think": False},
    {"messages": [{"role": "user", "content": "What is 48 + 37?"}], "think": True},
    {"messages": [{"role": "user", "content": "Tell me a story about a fox."}], "think": False},
    {"messages": [{"role": "user", "content": "Sort these numbers from smallest to largest: 42, 7, 19"}], "think": False},
    {"messages": [{"role": "user", "content": "Sources:\n[1] Oskara is a town. Oskara was founded by Mirel Tavo.\n[2] Bendolin is a mountain. "
                                               "The top of Bendolin stands at 4210 metres.\n\nQuestion: How high is Bendolin?\n\nAnswer from the sources "
                                               "and cite them as [n]. If the answer is not there, say so."}], "think": False},
    {"messages": [{"role": "user", "content": "What is 734 * 58?"}], "think": False, "tools": [
        {"type": "function", "function": {"name": "calculator", "description": "Evaluate an arithmetic expression.",
         "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}]},
    {"text": "Once upon a time there was a king who"},
    {"text": "The river rises in the hills and"},
]


def names(weights):
    """Checkpoint names of this training code -> published names."""
    out = {}
    for n, w in weights.items():
        if n.startswith("lm."):
            if n != "lm.lm_head.weight":                    # tied
                out[n[3:]] = w
        else:
            out[n] = w
    return out


def reference(nano, tok_dir, out):
    from tokenizers import Tokenizer
    from chatform import render
    tok = Tokenizer.from_file(os.path.join(tok_dir, "tokenizer.json"))
    lm, rows = nano.lm.float().eval(), []
    for p in PROMPTS:
        text = p["text"] if "text" in p else render(p["messages"], p.get("tools"), p["think"])
        ids = tok.encode(text, add_special_tokens=False).ids
        with torch.no_grad():
            logits = lm(torch.tensor([ids])).logits[0]
            new, gaps, cache, feed = [], [], None, torch.tensor([ids])
            for _ in range(120):
                r = lm(feed, past_key_values=cache, use_cache=True, logits_to_keep=1)
                cache, top = r.past_key_values, r.logits[0, -1].topk(2)
                new.append(int(top.indices[0]))
                gaps.append(round(float(top.values[0] - top.values[1]), 4))
                if new[-1] in (8183, 8185):
                    break
                feed = torch.tensor([[new[-1]]])
        rows.append(p | {"prompt": text, "ids": ids, "greedy": new, "greedy_text": tok.decode(new, skip_special_tokens=False), "gaps": gaps,
                         "last_logits": [round(float(x), 5) for x in logits[-1]], "logit_range": round(float(logits.max() - logits.min()), 4)})
    with open(os.path.join(out, "reference.jsonl"), "w", encoding="utf-8") as f:
        for r in rows:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("ckpt"), ap.add_argument("tokenizer"), ap.add_argument("out")
    ap.add_argument("--reference", action="store_true")
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    weights, _ = load_parts(args.ckpt)
    c = m.config(bos_token_id=None, eos_token_id=8185, pad_token_id=8183)
    c.architectures, c.dtype = ["Qwen3_5MoeForCausalLM"], "bfloat16"
    c.save_pretrained(args.out)
    save_file({n: w.to(torch.bfloat16).contiguous() for n, w in names(weights).items()}, os.path.join(args.out, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(args.out, "generation_config.json"), "w") as f:
        json.dump({"eos_token_id": [8185, 8183], "pad_token_id": 8183, "do_sample": False}, f)
    for name in os.listdir(args.tokenizer):
        shutil.copy(os.path.join(args.tokenizer, name), args.out)
    if args.reference:
        m.use_fast_ops(False)
        nano = m.Nano(m.config())
        rounded = {n: w.to(torch.bfloat16).float() for n, w in weights.items()}
        nano.load_state_dict(rounded | {"lm.lm_head.weight": rounded["lm.model.embed_tokens.weight"]})
        nano.lm.set_experts_implementation("eager")
        reference(nano, args.tokenizer, args.out)


if __name__ == "__main__":
    main()
