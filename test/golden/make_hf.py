#!/usr/bin/env python3
"""Makes test/data/hf: what transformers computes for tiny models, and how tokenizers split text.

Usage: make_hf.py [OUT_DIR [PART ...]]     (PART: models_all, tokenizers_all, pairs, embedding, judge; needs torch, transformers, tokenizers; run when a family is added)

Weights are not stored: value i of tensor NAME is a hash of both (see value() here and in
test/unit/test_convert.c), spread by a scale and an offset. Each model folder holds
  config.json   as transformers saves it
  weights.tsv   name, shape, scale, offset of each tensor of the checkpoint
  expected.f32  logits of TOKENS, or the mean of an encoder's last hidden states
  pairs.json    of a cross-encoder: question, text and score
  judge.json    of a decoder that answers yes or no: question, text, number of tokens, and the logits' difference
  embed.json    text, ids and vector of an embedding model: the last token's, unit length
and each tokenizer folder tokenizer.json, tokenizer_config.json and cases.json: text and ids.
"""
import json, os, sys
import numpy as np
import torch
import transformers as T
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TOKENS = [5, 17, 299, 42, 7, 100, 200, 33, 3, 9, 250, 11]
V = 320
M64 = (1 << 64) - 1


def fnv1a(s):
    h = 0xcbf29ce484222325
    for b in s.encode():
        h = (h ^ b) * 0x100000001b3 & M64
    return h


def value(name, n, scale, offset):
    """rng_at(fnv1a(name), i) of src/base/rng.c as floats in [-scale, scale] + offset."""
    x = fnv1a(name) + 0x9e3779b97f4a7c15 & M64
    x = (x ^ x >> 33) * 0xff51afd7ed558ccd & M64
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53 & M64
    x ^= x >> 33
    with np.errstate(over='ignore'):
        z = np.arange(n, dtype=np.uint64) * np.uint64(0xd1342543de82ef95) + np.uint64(x) + np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        z ^= z >> np.uint64(31)
    u = (z >> np.uint64(40)).astype(np.float64) * 2.0 ** -23 - 1.0
    return (u * scale + offset).astype(np.float32)


def spread(name, shape, zero_centred):
    """Scale and offset that keep activations alive."""
    if name.endswith('A_log'): return 1.0, 0.5
    if name.endswith('dt_bias'): return 0.75, 0.0
    if 'norm' in name.lower() and len(shape) == 1 and not name.endswith('bias'):
        return 0.375, 0.0 if zero_centred and 'linear_attn.norm' not in name else 1.0
    if len(shape) == 1: return 0.125, 0.0
    if 'embed' in name: return 1.75, 0.0
    return float(np.float32((3.0 / shape[-1]) ** 0.5)), 0.0


def model(out, name, m, zero_centred=False, extra=()):
    path = os.path.join(out, name)
    os.makedirs(path, exist_ok=True)
    m = m.float().eval()
    rows = []
    m.save_pretrained(path)
    from safetensors import safe_open
    with safe_open(path + '/model.safetensors', 'pt') as f:
        shapes = {k: list(f.get_slice(k).get_shape()) for k in f.keys()}
    os.remove(path + '/model.safetensors')
    for junk in ('generation_config.json',):
        if os.path.exists(path + '/' + junk): os.remove(path + '/' + junk)
    state = m.state_dict()
    for k, shape in list(shapes.items()) + list(extra):
        scale, offset = spread(k, shape, zero_centred)
        rows.append(f"{k}\t{','.join(map(str, shape))}\t{scale!r}\t{offset!r}\n")
        shapes[k] = (shape, scale, offset)
    # checkpoints name fused experts one by one; the model holds them fused
    from safetensors.torch import save_file
    tmp = path + '/tmp'
    os.makedirs(tmp, exist_ok=True)
    save_file({k: torch.from_numpy(value(k, int(np.prod(v[0])), v[1], v[2]).reshape(v[0]).copy()) for k, v in shapes.items()
               if not any(k == e[0] for e in extra)}, tmp + '/model.safetensors', metadata={'format': 'pt'})
    m.config.save_pretrained(tmp)
    m = type(m).from_pretrained(tmp, dtype=torch.float32).eval()
    for f in os.listdir(tmp): os.remove(tmp + '/' + f)
    os.rmdir(tmp)
    with open(path + '/weights.tsv', 'w') as f: f.writelines(rows)
    with torch.no_grad(): o = m(torch.tensor([TOKENS]))
    x = o.logits[0] if hasattr(o, 'logits') else o.last_hidden_state[0].mean(0, keepdim=True)
    x.numpy().astype('<f4').tofile(path + '/expected.f32')
    print(name, tuple(x.shape), float(x.abs().max()))


def models_all(out):
    base = dict(vocab_size=V, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False)
    gdn = dict(linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2)
    moe = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
    shared = dict(shared_expert_intermediate_size=32)
    mtp = []
    for k, s in [('fc.weight', [64, 128]), ('pre_fc_norm_embedding.weight', [64]), ('pre_fc_norm_hidden.weight', [64]),
                 ('norm.weight', [64]), ('layers.0.input_layernorm.weight', [64]),
                 ('layers.0.post_attention_layernorm.weight', [64]), ('layers.0.self_attn.q_proj.weight', [256, 64]),
                 ('layers.0.self_attn.k_proj.weight', [64, 64]), ('layers.0.self_attn.v_proj.weight', [64, 64]),
                 ('layers.0.self_attn.o_proj.weight', [64, 128]), ('layers.0.self_attn.q_norm.weight', [32]),
                 ('layers.0.self_attn.k_norm.weight', [32]), ('layers.0.mlp.gate.weight', [4, 64]),
                 ('layers.0.mlp.experts.gate_up_proj', [4, 64, 64]), ('layers.0.mlp.experts.down_proj', [4, 64, 32]),
                 ('layers.0.mlp.shared_expert.gate_proj.weight', [32, 64]),
                 ('layers.0.mlp.shared_expert.up_proj.weight', [32, 64]),
                 ('layers.0.mlp.shared_expert.down_proj.weight', [64, 32]), ('layers.0.mlp.shared_expert_gate.weight', [1, 64])]:
        mtp.append(('mtp.' + k, s))
    model(out, 'qwen35moe', T.Qwen3_5MoeForCausalLM(T.Qwen3_5MoeTextConfig(
        **base, **gdn, **moe, **shared, head_dim=32, linear_num_value_heads=6, full_attention_interval=4)), True, mtp)
    model(out, 'qwen35', T.Qwen3_5ForCausalLM(T.Qwen3_5TextConfig(
        **base, **gdn, head_dim=32, linear_num_value_heads=4, intermediate_size=96)), True)
    model(out, 'qwen3next', T.Qwen3NextForCausalLM(T.Qwen3NextConfig(
        **base, **gdn, **moe, **shared, head_dim=32, linear_num_value_heads=4, intermediate_size=96, partial_rotary_factor=0.25)), True)
    model(out, 'llama', T.LlamaForCausalLM(T.LlamaConfig(
        **base, head_dim=32, intermediate_size=96,
        rope_parameters=dict(rope_type='llama3', rope_theta=500000., factor=8., low_freq_factor=1., high_freq_factor=4.,
                             original_max_position_embeddings=64))))
    model(out, 'qwen2', T.Qwen2ForCausalLM(T.Qwen2Config(**base, intermediate_size=96)))
    model(out, 'qwen3', T.Qwen3ForCausalLM(T.Qwen3Config(**dict(base, tie_word_embeddings=True), head_dim=32, intermediate_size=96)))
    model(out, 'qwen3moe', T.Qwen3MoeForCausalLM(T.Qwen3MoeConfig(
        **base, **moe, head_dim=32, intermediate_size=96, norm_topk_prob=True)))
    model(out, 'bert', T.BertModel(T.BertConfig(vocab_size=V, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                                intermediate_size=96, max_position_embeddings=64)))


# ---- tokenizers ----

CORPUS = ["the quick brown fox jumps over the lazy dog and the cat in the hat", "Hello there, it's 2026 and we're here.",
          "café naïve über Straße", "数学和物理 语言", "for (int i = 0; i < 10; i++) { x += i; }"] * 4
TEXTS = ["", "the quick brown fox", " leading and  double  spaces ", "it's we're IT'S", "x = 12345 + 3.14;\n\n\tdone\r\n",
         "café naïve Straße", "数学 and 物理", "emoji \U0001F600 here", "<think>the cat</think>", "e\u0301 combining a\u0300",
         "a<|im_start|>b", "tab\tand nbsp\u00a0end"]
ABBR = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = ABBR + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST
LLAMA3 = ABBR + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
QWEN35 = ABBR + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def save(out, name, tok, **kw):
    path = os.path.join(out, 'tokenizer-' + name)
    os.makedirs(path, exist_ok=True)
    tok.save(path + '/tokenizer.json', pretty=False)
    with open(path + '/tokenizer_config.json', 'w') as f:
        json.dump(dict(kw, model_max_length=10 ** 30), f)
    cases = []
    for t in TEXTS:
        special = '<|' in t
        ids = Tokenizer.from_file(path + '/tokenizer.json').encode(t, add_special_tokens=True).ids
        cases.append(dict(text=t, special=special, ids=ids))
    with open(path + '/cases.json', 'w') as f:
        json.dump(cases, f, ensure_ascii=False, indent=0)
    print(name, tok.get_vocab_size())


def specials(tok):
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tok.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])


def byte_level(out, name, pre, ignore_merges=False, template=None, **kw):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=310, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    specials(tok)
    if template:
        tok.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<|endoftext|>", tok.token_to_id("<|endoftext|>"))])
    save(out, name, tok, eos_token="<|im_end|>", pad_token="<|endoftext|>", **kw)


def split(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), 'isolated'),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def tokenizers_all(out):
    byte_level(out, 'qwen2', split(QWEN2))
    byte_level(out, 'qwen35', split(QWEN35), chat_template="{% for m in messages %}{{ m.content }}{% endfor %}")
    byte_level(out, 'llama3', split(LLAMA3), True, "<|endoftext|> $A", bos_token="<|endoftext|>")
    byte_level(out, 'gpt2', pre_tokenizers.ByteLevel(add_prefix_space=False))
    byte_level(out, 'starcoder', pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                          pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    tok = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    first = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
    tok.train_from_iterator([w for t in CORPUS for w in t.split(' ')], trainers.BpeTrainer(vocab_size=60, limit_alphabet=30, special_tokens=first[:3]))
    spec = json.loads(tok.to_str())
    pieces = first + [p for p in sorted(spec['model']['vocab'], key=spec['model']['vocab'].get) if p not in first]
    spec['model']['vocab'] = {p: i for i, p in enumerate(pieces)}
    spec['added_tokens'] = [a for a in spec['added_tokens'] if a['id'] < 3]
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    save(out, 'spm', tok, bos_token="<s>", eos_token="</s>", unk_token="<unk>", add_bos_token=True, add_eos_token=False)
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    save(out, 'wordpiece', tok, cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", pad_token="[PAD]", mask_token="[MASK]")


def read_weights(path):
    """{name: tensor} of the checkpoint that path/weights.tsv describes."""
    state = {}
    for line in open(os.path.join(path, 'weights.tsv')):
        name, shape, scale, offset = line.rstrip('\n').split('\t')
        shape = [int(x) for x in shape.split(',')]
        state[name] = torch.from_numpy(value(name, int(np.prod(shape)), float(scale), float(offset)).reshape(shape))
    return state


def pairs(out):
    """A cross-encoder's scores of pairs, as its tokenizer joins them."""
    model(out, 'bertpair', T.BertForSequenceClassification(T.BertConfig(
        vocab_size=V, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=64, num_labels=1)))
    path = out + '/bertpair'
    tok = Tokenizer.from_file(out + '/tokenizer-wordpiece/tokenizer.json')
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    m = T.BertForSequenceClassification(T.BertConfig.from_pretrained(path)).float().eval()
    missing = m.load_state_dict(read_weights(path), strict=False).missing_keys
    assert all('position_ids' in k or 'token_type_ids' in k for k in missing), missing
    rows = []
    for a, b in [(TEXTS[1], TEXTS[2]), (TEXTS[1], "the cat in the hat and the lazy dog"), (TEXTS[5], TEXTS[6]),
                 (TEXTS[4], TEXTS[1]), ("fox", "dog")]:
        x = tok.encode(a, b)
        with torch.no_grad():
            score = m(torch.tensor([x.ids]), token_type_ids=torch.tensor([x.type_ids])).logits[0, 0]
        rows.append(dict(question=a, text=b, score=float(score)))
    with open(path + '/pairs.json', 'w') as f:
        json.dump(rows, f, ensure_ascii=False, indent=0)
    os.remove(path + '/expected.f32')
    print('bertpair', [r['score'] for r in rows])


def embedding(out):
    """Vectors of a decoder whose tokenizer appends a token that does not end an answer (Qwen3-Embedding)."""
    path = out + '/qwen3'
    tok = Tokenizer.from_file(out + '/tokenizer-qwen2/tokenizer.json')
    end = tok.token_to_id("<|endoftext|>")
    tok.post_processor = processors.TemplateProcessing(single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", end)])
    m = T.Qwen3ForCausalLM(T.Qwen3Config.from_pretrained(path)).float().eval()
    missing = m.load_state_dict(read_weights(path), strict=False).missing_keys
    assert missing in ([], ['lm_head.weight']), missing
    rows = []
    for text in TEXTS[1:4]:
        ids = tok.encode(text).ids
        assert ids[-1] == end
        with torch.no_grad(): x = m.model(torch.tensor([ids])).last_hidden_state[0, -1]
        rows.append(dict(text=text, ids=ids, vector=[float(v) for v in x / x.norm()]))
    with open(path + '/embed.json', 'w') as f:
        json.dump(rows, f, ensure_ascii=False)
    print('embedding', [len(r['ids']) for r in rows])


def judge(out):
    """Scores of a decoder that answers yes or no (Qwen3-Reranker), by its published form of question."""
    path = out + '/qwen3'
    spec = json.load(open(out + '/tokenizer-qwen2/tokenizer.json'))
    first = max(t['id'] for t in spec['added_tokens']) + 1
    for i, word in enumerate(('yes', 'no')):
        spec['added_tokens'].append(dict(spec['added_tokens'][-1], id=first + i, content=word, special=False))
    tok = Tokenizer.from_str(json.dumps(spec))
    m = T.Qwen3ForCausalLM(T.Qwen3Config.from_pretrained(path)).float().eval()
    missing = m.load_state_dict(read_weights(path), strict=False).missing_keys
    assert missing in ([], ['lm_head.weight']), missing
    head = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. '
            'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
    body = '<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: %s\n<Document>: %s'
    tail = '<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n'
    rows = []
    for a, b in [(TEXTS[1], TEXTS[2]), ('why?\n', 'the cat in the hat'), (TEXTS[5], TEXTS[6])]:
        ids = [i for part in (head, body % (a, b), tail) for i in tok.encode(part).ids]
        with torch.no_grad(): x = m(torch.tensor([ids])).logits[0, -1]
        rows.append(dict(question=a, text=b, n=len(ids), score=float(x[first] - x[first + 1])))
    with open(path + '/judge.json', 'w') as f:
        json.dump(rows, f, ensure_ascii=False, indent=0)
    print('judge', [(r['n'], r['score']) for r in rows])


if __name__ == '__main__':
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), '../data/hf')
    parts = dict(models_all=models_all, tokenizers_all=tokenizers_all, pairs=pairs, embedding=embedding, judge=judge)
    for name in sys.argv[2:] or parts: parts[name](out)
