"""Write a checkpoint of chimere-mini as a Hugging Face directory: bfloat16 values of the four-bit grid, which Q4_0 holds exactly.

    python mini_export.py CKPT_DIR TOKENIZER_DIR OUT_DIR
    chimere convert OUT_DIR mini-bf16.gguf && chimere quantize --pure mini-bf16.gguf chimere-mini.gguf Q4_0
"""

import json
import os
import shutil
import sys

import torch
from safetensors.torch import save_file

import mini_model as mm
from mini_train import load_parts

from export import names   # nano's


def main():
    ckpt, tokenizer, out = sys.argv[1:4]
    os.makedirs(out, exist_ok=True)
    weights, place = load_parts(ckpt, exact=True)
    c = mm.config(bos_token_id=None)
    c.architectures, c.dtype = ["Qwen3_5MoeForCausalLM"], "bfloat16"
    c.save_pretrained(out)
    save_file({n: w.to(torch.bfloat16).contiguous() for n, w in names(weights).items()}, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(out, "generation_config.json"), "w") as f:
        json.dump({"eos_token_id": [mm.IM_END_ID, mm.ENDOFTEXT_ID], "pad_token_id": mm.ENDOFTEXT_ID, "do_sample": False}, f)
    for name in os.listdir(tokenizer):
        shutil.copy(os.path.join(tokenizer, name), out)
    print(f"{sum(w.numel() for w in weights.values())} weights, {place['tokens'] / 1e6:.0f} M tokens, {place['step']} steps")


if __name__ == "__main__":
    main()
