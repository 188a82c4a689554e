#!/usr/bin/env python3
"""Makes test/data/hf/quantised: one matrix [64, 128] in each form that quantised checkpoints use.

Usage: make_quantised.py [OUT_DIR]   (needs torch, safetensors, bitsandbytes, compressed-tensors)

FORM.safetensors holds the parts under the names that follow "o_proj." in a checkpoint, and `expected`:
rows 0..7 and 56..63 as the form's own library decodes them, or, for GPTQ and AWQ, the values from which
the codes were packed. FORM.json is the checkpoint's quantization_config.
"""
import json, os, sys
import torch
from safetensors.torch import save_file

R, C = 64, 128
torch.manual_seed(7)
W = torch.randn(R, C) * torch.linspace(0.2, 2, R)[:, None]


def save(out, name, parts, values, config):
    parts = {k: v.contiguous() for k, v in parts.items()}
    parts['expected'] = torch.cat([values[:8], values[-8:]]).float().contiguous()
    save_file(parts, f'{out}/{name}.safetensors')
    json.dump(config, open(f'{out}/{name}.json', 'w'))
    print(name, float((values.float() - W).abs().max()))


def fp8(out):
    def code(x): return x.to(torch.float8_e4m3fn)
    s = torch.full((1,), float(W.abs().max()) / 448)
    q = code(W / s)
    save(out, 'fp8-tensor', dict(weight=q, weight_scale=s), q.float() * s, dict(quant_method='modelopt', quant_algo='FP8'))
    s = W.abs().amax(1, keepdim=True) / 448
    q = code(W / s)
    save(out, 'fp8-channel', dict(weight=q, weight_scale=s.bfloat16()), q.float() * s.bfloat16().float(), dict(quant_method='fbgemm_fp8'))
    rows, cols = 48, 32
    s = torch.zeros((R + rows - 1) // rows, C // cols)
    full = torch.zeros(R, C)
    for i in range(s.shape[0]):
        for j in range(s.shape[1]):
            b = (slice(i * rows, (i + 1) * rows), slice(j * cols, (j + 1) * cols))
            s[i, j] = W[b].abs().max() / 448
            full[b] = s[i, j]
    q = code(W / full)
    save(out, 'fp8-block', dict(weight=q, weight_scale_inv=s), q.float() * full, dict(quant_method='fp8', weight_block_size=[rows, cols]))


def compressed(out):
    from compressed_tensors.compressors.pack_quantized import pack_to_int32
    config = lambda f: dict(quant_method='compressed-tensors', format=f)
    s = W.abs().amax(1, keepdim=True) / 127
    z = torch.randint(-9, 9, (R, 1), dtype=torch.int8)
    q = (W / s + z).round().clamp(-128, 127).to(torch.int8)
    save(out, 'int8-zero', dict(weight=q, weight_scale=s, weight_zero_point=z), (q.float() - z.float()) * s, config('int-quantized'))
    for name, bits, group, zeros in (('packed4', 4, 32, False), ('packed4-zero', 4, 64, True), ('packed8', 8, 128, False)):
        half = 2 ** (bits - 1)
        g = W.reshape(R, -1, group)
        s = g.abs().amax(2) / half
        z = torch.randint(-3, 3, s.shape, dtype=torch.int8) if zeros else torch.zeros_like(s, dtype=torch.int8)
        q = (g / s[..., None] + z[..., None]).round().clamp(-half, half - 1).to(torch.int8).reshape(R, C)
        parts = dict(weight_packed=pack_to_int32(q, bits), weight_scale=s, weight_shape=torch.tensor([R, C]))
        if zeros: parts['weight_zero_point'] = pack_to_int32(z, bits, packed_dim=0)
        values = (q.reshape(R, -1, group).float() - z[..., None].float()) * s[..., None]
        save(out, name, parts, values.reshape(R, C), config('pack-quantized'))


E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])


def fp4_codes(x):
    return (x.abs()[..., None] - E2M1).abs().argmin(-1).to(torch.uint8) | ((x < 0).to(torch.uint8) << 3)


def fp4_values(q):
    return E2M1[(q & 7).long()] * torch.where(q & 8 > 0, -1.0, 1.0)


def fp4(out):
    g = W.reshape(R, -1, 16)
    whole = W.abs().max() / (6 * 448)
    s = (g.abs().amax(2) / 6 / whole).to(torch.float8_e4m3fn)
    q = fp4_codes(g / (s.float() * whole)[..., None])
    values = (fp4_values(q) * (s.float() * whole)[..., None]).reshape(R, C)
    q = q.reshape(R, C)
    packed = q[:, 0::2] | q[:, 1::2] << 4
    save(out, 'nvfp4', dict(weight=packed, weight_scale=s, weight_scale_2=whole.reshape(1)), values, dict(quant_method='modelopt', quant_algo='NVFP4'))
    save(out, 'nvfp4-packed', dict(weight_packed=packed, weight_scale=s, weight_global_scale=(1 / whole).reshape(1)),
         (fp4_values(q).reshape(R, -1, 16) * (s.float() / (1 / whole))[..., None]).reshape(R, C), dict(quant_method='compressed-tensors', format='nvfp4-pack-quantized'))
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    g = W.reshape(R, -1, 32)
    e = (g.abs().amax(2) / 6).log2().ceil()
    q = fp4_codes(g / 2 ** e[..., None])
    blocks = q[..., 0::2] | q[..., 1::2] << 4
    scales = (e + 127).to(torch.uint8)
    values = convert_moe_packed_tensors(blocks[None], scales[None], dtype=torch.float32)[0]
    if values.shape != W.shape: values = values.T
    save(out, 'mxfp4', dict(weight_blocks=blocks, weight_scales=scales), values, dict(quant_method='mxfp4'))


def pack(q, bits):
    """Codes along dimension 0 into 32-bit words, the first in the lowest bits."""
    n = 32 // bits
    words = sum(q[i::n].long() << bits * i for i in range(n))
    return torch.where(words >= 2 ** 31, words - 2 ** 32, words).to(torch.int32)


def transposed(out):
    for name, bits, group, order, config in (
            ('gptq4', 4, 32, True, dict(quant_method='gptq', bits=4, group_size=32, desc_act=True)),
            ('gptq8-v2', 8, 64, False, dict(quant_method='gptq', bits=8, group_size=64, checkpoint_format='gptq_v2')),
            ('awq', 4, 32, False, dict(quant_method='awq', bits=4, group_size=32, version='gemm'))):
        g = torch.arange(C, dtype=torch.int32) // group
        if order: g = g[torch.randperm(C)]
        s = (torch.rand(C // group, R) + 0.5).half() / 2 ** (bits - 2)
        z = torch.randint(1, 2 ** bits, (C // group, R))
        q = (W.T / s[g.long()].float() + z[g.long()]).round().clamp(0, 2 ** bits - 1).long()
        values = ((q - z[g.long()]).float() * s[g.long()].float()).T
        if name == 'awq':
            order = [0, 2, 4, 6, 1, 3, 5, 7]  # place of each output within a word
            mix = lambda x: pack(x.T.reshape(R // 8, 8, -1)[:, order].reshape(R, -1), 4).T
            parts = dict(qweight=mix(q), qzeros=mix(z), scales=s)
        else:
            less = 0 if 'v2' in name else 1
            parts = dict(qweight=pack(q, bits), qzeros=pack((z - less).T, bits).T, scales=s, g_idx=g)
        save(out, name, parts, values, config)


def bnb(out):
    import bitsandbytes.functional as F
    for kind, nested in (('nf4', True), ('fp4', False)):
        q, state = F.quantize_4bit(W, blocksize=64, quant_type=kind, compress_statistics=nested)
        parts = {'weight': q}
        for k, v in state.as_dict(packed=True).items(): parts['weight.' + k] = v
        save(out, 'bnb-' + kind, parts, F.dequantize_4bit(q, state), dict(quant_method='bitsandbytes', load_in_4bit=True))
    s = W.abs().amax(1)
    q = (W / s[:, None] * 127).round().to(torch.int8)
    save(out, 'bnb-int8', dict(weight=q, SCB=s, weight_format=torch.tensor(0, dtype=torch.uint8)), q.float() * s[:, None] / 127, dict(quant_method='bitsandbytes', load_in_8bit=True))


if __name__ == '__main__':
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), '../data/hf/quantised')
    os.makedirs(out, exist_ok=True)
    for part in (fp8, compressed, fp4, transposed, bnb): part(out)
