#!/usr/bin/env python3
"""Compares vectors and relevance scores with those of sentence-transformers.

Usage: sentence.py CHIMERE [NAME ...]     (packages of requirements.txt)

Each model is a folder as it is published: config.json, scaled down with all other fields kept (make.py), modules.json,
the settings of its modules, a tokenizer of the published kind. Weights are those of make.py. chimere converts the folder
and computes f32 vectors of the texts below; of encoders without a Normalize module, vectors of their own length. Printed is
the largest difference of a component; for vectors that are not normalized, divided by the largest component. Cross-encoders
score pairs with chimere serve; their order must be that of sentence-transformers. Exits with 1 if a difference is above 1e-5.
"""
import json, os, subprocess, sys, tempfile, time, urllib.request
import numpy as np, torch, transformers as T
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
import make

CORPUS = ["the quick brown fox jumps over the lazy dog and the cat in the hat", "Hello there, it's 2026 and we're here.",
          "café naïve über Straße", "数学和物理 语言", "for (int i = 0; i < 10; i++) { x += i; }", "search_query: query: title: none | text:"] * 4
LONG = "the quick brown fox jumps over the lazy dog and " * 12 + "the end"
TEXTS = ["fox", "The quick brown fox jumps over the lazy dog.", "it's we're here, it's 2026", "x = 12345 + 3.14; i++", "café naïve Straße", "数学和物理", LONG]
PAIRS = [("fox", "dog"), ("the quick fox", "the cat in the hat and the lazy dog"), ("the quick fox", "x = 12345"), ("fox", LONG[:200]),
         ("Hello there", "it's 2026 and we're here."), ("Hello there", "the lazy dog"), ("the quick fox", "café naïve Straße")]

# ---- tokenizers of the published kinds: (tokenizer, fields of tokenizer_config.json) ----

def closed(tok, first, last, pair=True):
    """Texts begin and end with these tokens; '' is none."""
    ids = [(t, tok.token_to_id(t)) for t in (first, last) if t]
    one = ' '.join(x for x in (first, '$A', last) if x)
    two = f'{first} $A {last} $B:1 {last}:1' if first == '[CLS]' else f'{first} $A {last} {last} $B {last}'
    tok.post_processor = processors.TemplateProcessing(single=one, pair=two if first and last and pair else None, special_tokens=ids)
    return tok

def names(first, last, pad, unk=None, **more):
    return dict(bos_token=first, cls_token=first, eos_token=last, sep_token=last, pad_token=pad, **(dict(unk_token=unk) if unk else {}), **more)

def wordpiece(first, last, pad, lower=True, **more):
    tok = Tokenizer(models.WordPiece(unk_token='[UNK]'))
    tok.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ['<s>', '<pad>', '</s>', '[UNK]'] if first == '<s>' else ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
    tok.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=specials))
    ends = dict(bos_token=first, eos_token=last) if first == '<s>' else {}
    return closed(tok, first, last), dict(cls_token=first, sep_token=last, pad_token=pad, unk_token='[UNK]', **ends, **more)

def byte_level(specials, first, last, pad, split=None):
    tok = Tokenizer(models.BPE())
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    tok.pre_tokenizer = plain if split is None else pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), 'isolated'), plain])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=330, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return closed(tok, first, last), names(first or None, last, pad, '<unk>' if '<unk>' in specials else None)

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
def bert_words(**more): return wordpiece('[CLS]', '[SEP]', '[PAD]', **{'model_input_names': ['input_ids', 'token_type_ids', 'attention_mask'], **more})
def roberta_bytes(): return byte_level(['<s>', '<pad>', '</s>', '<unk>', '<mask>'], '<s>', '</s>', '<pad>')
def modern_bytes(): return byte_level(['[PAD]', '[CLS]', '[SEP]', '[UNK]'], '[CLS]', '[SEP]', '[PAD]')
def qwen_bytes():
    tok, more = byte_level(['<|endoftext|>', '<|im_start|>', '<|im_end|>'], '', '<|endoftext|>', '<|endoftext|>', QWEN2)
    return tok, dict(eos_token='<|im_end|>', pad_token='<|endoftext|>', add_bos_token=False)

def unigram():
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Replace(Regex(' {2,}'), ' ')
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement='▁', prepend_scheme='always')
    tok.decoder = decoders.Metaspace()
    tok.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=180, special_tokens=['<s>', '<pad>', '</s>', '<unk>'], unk_token='<unk>'))
    return closed(tok, '<s>', '</s>'), names('<s>', '</s>', '<pad>', '<unk>')

def pieces(specials, first, last, prefix):
    """SentencePiece's BPE with bytes for what it lacks (Llama, Gemma)."""
    tok = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token='<unk>'))
    steps = [normalizers.Prepend('▁')] * prefix + [normalizers.Replace(' ', '▁')]
    tok.normalizer = normalizers.Sequence(steps)
    tok.decoder = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse()])
    fixed = specials + ['<0x%02X>' % i for i in range(256)]
    tok.train_from_iterator([' ' * (1 - prefix) + w for t in CORPUS for w in t.split(' ')], trainers.BpeTrainer(vocab_size=90, limit_alphabet=40, special_tokens=specials))
    spec = json.loads(tok.to_str())
    vocab = spec['model']['vocab']
    spec['model']['vocab'] = {p: i for i, p in enumerate(fixed + [p for p in sorted(vocab, key=vocab.get) if p not in fixed])}
    spec['added_tokens'] = [dict(a, id=fixed.index(a['content'])) for a in spec['added_tokens'] if a['content'] in specials]
    return closed(Tokenizer.from_str(json.dumps(spec)), first, last), dict(bos_token=first, eos_token=last, unk_token='<unk>', pad_token=specials[0], add_bos_token=True, add_eos_token=True)

def mistral_pieces():
    tok, more = pieces(['<unk>', '<s>', '</s>'], '<s>', '</s>', 1)
    return tok, dict(more, pad_token='</s>')
def gemma_pieces(): return pieces(['<pad>', '<eos>', '<bos>', '<unk>'], '<bos>', '<eos>', 0)

# ---- published configurations ----

bert = dict(architectures=['BertModel'], attention_probs_dropout_prob=0.1, classifier_dropout=None, gradient_checkpointing=False, hidden_act='gelu', hidden_dropout_prob=0.1, hidden_size=384,
            initializer_range=0.02, intermediate_size=1536, layer_norm_eps=1e-12, max_position_embeddings=512, model_type='bert', num_attention_heads=12, num_hidden_layers=6, pad_token_id=0,
            position_embedding_type='absolute', transformers_version='4.8.2', type_vocab_size=2, use_cache=True, vocab_size=30522)
xlmr = dict(bert, architectures=['XLMRobertaModel'], bos_token_id=0, eos_token_id=2, hidden_size=1024, intermediate_size=4096, layer_norm_eps=1e-5, max_position_embeddings=8194,
            model_type='xlm-roberta', num_attention_heads=16, num_hidden_layers=24, output_past=True, pad_token_id=1, type_vocab_size=1, vocab_size=250002)
one_label = dict(id2label={'0': 'LABEL_0'}, label2id={'LABEL_0': 0})
modern = dict(architectures=['ModernBertModel'], attention_bias=False, attention_dropout=0.0, bos_token_id=50281, classifier_activation='gelu', classifier_bias=False, classifier_dropout=0.0,
              classifier_pooling='mean', cls_token_id=50281, decoder_bias=True, deterministic_flash_attn=False, embedding_dropout=0.0, eos_token_id=50282, global_attn_every_n_layers=3,
              global_rope_theta=160000.0, gradient_checkpointing=False, hidden_activation='gelu', hidden_size=768, initializer_cutoff_factor=2.0, initializer_range=0.02, intermediate_size=1152,
              layer_norm_eps=1e-5, local_attention=128, local_rope_theta=10000.0, max_position_embeddings=8192, mlp_bias=False, mlp_dropout=0.0, model_type='modernbert', norm_bias=False, norm_eps=1e-5,
              num_attention_heads=12, num_hidden_layers=22, pad_token_id=50283, position_embedding_type='absolute', sep_token_id=50282, tie_word_embeddings=True, vocab_size=50368)
qwen3 = dict(architectures=['Qwen3ForCausalLM'], attention_bias=False, attention_dropout=0.0, bos_token_id=151643, eos_token_id=151643, head_dim=128, hidden_act='silu', hidden_size=1024,
             initializer_range=0.02, intermediate_size=3072, max_position_embeddings=32768, max_window_layers=28, model_type='qwen3', num_attention_heads=16, num_hidden_layers=28,
             num_key_value_heads=8, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000000, sliding_window=None, tie_word_embeddings=True, use_cache=True, use_sliding_window=False, vocab_size=151669)
e5_mistral = dict(architectures=['MistralModel'], bos_token_id=1, eos_token_id=2, hidden_act='silu', hidden_size=4096, initializer_range=0.02, intermediate_size=14336, max_position_embeddings=32768,
                  model_type='mistral', num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, pad_token_id=2, rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=4096,
                  tie_word_embeddings=False, use_cache=False, vocab_size=32000)
nomic = dict(activation_function='swiglu', architectures=['NomicBertModel'], attn_pdrop=0.0, bos_token_id=None, causal=False, dense_seq_output=True, embd_pdrop=0.0, eos_token_id=None, fused_bias_fc=True,
             fused_dropout_add_ln=True, initializer_range=0.02, layer_norm_epsilon=1e-12, max_trained_positions=2048, mlp_fc1_bias=False, mlp_fc2_bias=False, model_type='nomic_bert', n_embd=768, n_head=12,
             n_inner=3072, n_layer=12, n_positions=8192, pad_vocab_size_multiple=64, parallel_block=False, parallel_block_tied_norm=False, prenorm=False, qkv_proj_bias=False,
             reorder_and_upcast_attn=False, resid_pdrop=0.0, rotary_emb_base=1000, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_scaling_factor=None,
             scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True, summary_activation=None, summary_first_dropout=0.0, summary_proj_to_labels=True, summary_type='cls_index',
             summary_use_proj=True, type_vocab_size=2, use_cache=True, use_flash_attn=True, use_rms_norm=False, use_xentropy=True, vocab_size=30528)
mpnet = dict(architectures=['MPNetForMaskedLM'], attention_probs_dropout_prob=0.1, bos_token_id=0, eos_token_id=2, hidden_act='gelu', hidden_dropout_prob=0.1, hidden_size=768, initializer_range=0.02,
             intermediate_size=3072, layer_norm_eps=1e-5, max_position_embeddings=514, model_type='mpnet', num_attention_heads=12, num_hidden_layers=12, pad_token_id=1,
             relative_attention_num_buckets=32, transformers_version='4.8.2', vocab_size=30527)
distil = dict(activation='gelu', architectures=['DistilBertModel'], attention_dropout=0.1, dim=768, dropout=0.1, hidden_dim=3072, initializer_range=0.02, max_position_embeddings=512,
              model_type='distilbert', n_heads=12, n_layers=6, pad_token_id=0, qa_dropout=0.1, seq_classif_dropout=0.2, sinusoidal_pos_embds=False, tie_weights_=True, vocab_size=30522)
jina3 = dict(architectures=['JinaEmbeddingsV3Model'], attention_probs_dropout_prob=0.1, bos_token_id=0, eos_token_id=2, hidden_act='gelu', hidden_dropout_prob=0.1, hidden_size=1024,
             initializer_range=0.02, intermediate_size=4096, layer_norm_eps=1e-5, max_position_embeddings=8194, model_type='jina_embeddings_v3', num_attention_heads=16, num_hidden_layers=24,
             pad_token_id=1, position_embedding_type='rotary', rope_parameters=dict(rope_type='default', rope_theta=20000.0), type_vocab_size=1, vocab_size=250002)
local, full = 'sliding_attention', 'full_attention'
gemma = dict(_sliding_window_pattern=6, architectures=['Gemma3TextModel'], attention_bias=False, attention_dropout=0.0, attn_logit_softcapping=None, bos_token_id=2, eos_token_id=1,
             final_logit_softcapping=None, head_dim=256, hidden_activation='gelu_pytorch_tanh', hidden_size=768, initializer_range=0.02, intermediate_size=1152, layer_types=([local] * 5 + [full]) * 4,
             max_position_embeddings=2048, model_type='gemma3_text', num_attention_heads=3, num_hidden_layers=24, num_key_value_heads=1, pad_token_id=0, query_pre_attn_scalar=256, rms_norm_eps=1e-6,
             rope_local_base_freq=10000.0, rope_scaling=None, rope_theta=1000000.0, sliding_window=512, use_bidirectional_attention=True, use_cache=True, vocab_size=262144)

# name: configuration, tokenizer, pooling, whether normalized, Dense modules [(outputs, bias, activation)], prefix of a text
ENCODERS = {
    'all-MiniLM-L6-v2': (bert, bert_words, 'mean_tokens', True, [], ''),
    'bge-small-en-v1.5': (bert, bert_words, 'cls_token', True, [], ''),
    'LaBSE': (dict(bert, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, vocab_size=501153), lambda: bert_words(lower=False), 'cls_token', True, [(0, True, 'torch.nn.modules.activation.Tanh')], ''),
    'distiluse-base-multilingual-cased-v2': (distil, lambda: bert_words(lower=False, model_input_names=['input_ids', 'attention_mask']), 'mean_tokens', False, [(48, True, 'torch.nn.modules.activation.Tanh')], ''),
    'msmarco-distilbert-base-v4': (distil, lambda: bert_words(model_input_names=['input_ids', 'attention_mask']), 'mean_tokens', False, [], ''),
    'all-distilroberta-v1': (dict(xlmr, architectures=['RobertaForMaskedLM'], model_type='roberta', hidden_size=768, max_position_embeddings=514, vocab_size=50265), roberta_bytes, 'mean_tokens', True, [], ''),
    'multilingual-e5-base': (dict(xlmr, max_position_embeddings=514), unigram, 'mean_tokens', True, [], 'query: '),
    'bge-m3': (xlmr, unigram, 'cls_token', True, [], ''),
    'all-mpnet-base-v2': (mpnet, lambda: wordpiece('<s>', '</s>', '<pad>'), 'mean_tokens', True, [], ''),
    'gte-modernbert-base': (modern, modern_bytes, 'cls_token', False, [], ''),
    'nomic-embed-text-v1.5': (nomic, bert_words, 'mean_tokens', False, [], 'search_query: '),
    'jina-embeddings-v3': (jina3, unigram, 'mean_tokens', True, [], ''),
    'Qwen3-Embedding-0.6B': (qwen3, qwen_bytes, 'lasttoken', True, [], 'Instruct: find the fox Query:'),
    'e5-mistral-7b-instruct': (e5_mistral, mistral_pieces, 'lasttoken', True, [], ''),
    'embeddinggemma-300m': (gemma, gemma_pieces, 'mean_tokens', True, [(256, False, 'torch.nn.modules.linear.Identity'), (0, False, 'torch.nn.modules.linear.Identity')], 'title: none | text: '),
}
RANKERS = {
    'ms-marco-MiniLM-L6-v2': (dict(bert, architectures=['BertForSequenceClassification'], sbert_ce_default_activation_function='torch.nn.modules.linear.Identity', **one_label), bert_words),
    'bge-reranker-v2-m3': (dict(xlmr, architectures=['XLMRobertaForSequenceClassification'], **one_label), unigram),
    'distilbert cross-encoder': (dict(distil, architectures=['DistilBertForSequenceClassification'], **one_label), lambda: bert_words(model_input_names=['input_ids', 'attention_mask'])),
    'gte-reranker-modernbert-base': (dict(modern, architectures=['ModernBertForSequenceClassification'], **one_label), modern_bytes),
}

# ---- folders ----

def save(folder, config, tokenizer):
    """Weights, config.json and the tokenizer."""
    tok, more = tokenizer()
    n = tok.get_vocab_size()
    sizes = dict(vocab_size=n, local_attention=16, n_embd=64, n_head=8, n_inner=96, n_layer=4)
    c = {k: v for k, v in make.shrink(config).items() if k in config} | {k: v for k, v in sizes.items() if k in config}
    if 'n_embd' in c:  # names that transformers' own class does not read
        c.update(hidden_size=64, num_attention_heads=8, intermediate_size=96, num_hidden_layers=4, layer_norm_eps=c['layer_norm_epsilon'],
                 max_position_embeddings=c['max_trained_positions'], rope_parameters=dict(rope_type='default', rope_theta=c['rotary_emb_base']))
    if config['model_type'] == 'gemma3_text': c.update(hidden_size=96, num_attention_heads=3, num_key_value_heads=1, sliding_window=32)
    for key in ('bos', 'eos', 'pad', 'cls', 'sep'):
        text = more.get(key + '_token')
        if key + '_token_id' in c and text: c[key + '_token_id'] = tok.token_to_id(text)
    kind = c['model_type']
    make.ZERO_NORMS, make.FAMILY = make.is_zero_centred(c), None
    auto = T.AutoModelForSequenceClassification if 'SequenceClassification' in c['architectures'][0] else T.AutoModel
    m = auto.from_config(T.AutoConfig.for_model(kind, **{k: v for k, v in c.items() if k != 'model_type'}), dtype=torch.float32).float().eval()
    m, _, _ = make.as_checkpoint(m)
    m.save_pretrained(folder)
    json.dump(c, open(folder + '/config.json', 'w'))
    tok.save(folder + '/tokenizer.json')
    json.dump(dict(tokenizer_class='PreTrainedTokenizerFast', model_max_length=512, **more), open(folder + '/tokenizer_config.json', 'w'))
    return m.config.hidden_size

def write(folder, name, value):
    os.makedirs(os.path.dirname(f'{folder}/{name}'), exist_ok=True)
    json.dump(value, open(f'{folder}/{name}', 'w'))

def save_modules(folder, n_embd, pooling, normalized, dense, prompt):
    from safetensors.torch import save_file
    kinds = [('', 'Transformer'), ('1_Pooling', 'Pooling')] + [(f'{i + 2}_Dense', 'Dense') for i in range(len(dense))]
    if normalized: kinds.append((f'{len(kinds)}_Normalize', 'Normalize'))
    write(folder, 'modules.json', [dict(idx=i, name=str(i), path=path, type='sentence_transformers.models.' + kind) for i, (path, kind) in enumerate(kinds)])
    write(folder, '1_Pooling/config.json', dict(word_embedding_dimension=n_embd, **{'pooling_mode_' + k: k == pooling for k in ('cls_token', 'mean_tokens', 'max_tokens', 'mean_sqrt_len_tokens', 'lasttoken')}))
    write(folder, 'sentence_bert_config.json', dict(max_seq_length=512, do_lower_case=False))
    write(folder, 'config_sentence_transformers.json', dict(__version__=dict(sentence_transformers='5.0.0'), prompts=dict(query=prompt), default_prompt_name=None, similarity_fn_name='cosine'))
    n_in = n_embd
    for i, (n_out, bias, activation) in enumerate(dense):
        n_out = n_out or n_embd
        write(folder, f'{i + 2}_Dense/config.json', dict(in_features=n_in, out_features=n_out, bias=bias, activation_function=activation))
        parts = {'linear.weight': (n_out, n_in), **({'linear.bias': (n_out,)} if bias else {})}
        save_file({k: torch.from_numpy(make.values(f'{i}.{k}', s, 0.0, 1.5 * 3 ** .5 * n_in ** -.5).copy()) for k, s in parts.items()}, f'{folder}/{i + 2}_Dense/model.safetensors')
        n_in = n_out

def convert(program, folder, file):
    run = subprocess.run([program, 'convert', folder, file, '--type', 'f32'], capture_output=True, text=True)
    if run.stderr: print(run.stderr.strip())
    return run.returncode == 0

# ---- comparisons ----

def encoder(program, name, d):
    from sentence_transformers import SentenceTransformer
    config, tokenizer, pooling, normalized, dense, prompt = ENCODERS[name]
    save_modules(d, save(d, config, tokenizer), pooling, normalized, dense, prompt)
    if not convert(program, d, d + '/m.gguf'): return float('nan')
    m = SentenceTransformer(d, device='cpu')
    want = np.stack([m.encode(t, prompt_name='query') for t in TEXTS])
    run = subprocess.run([program, 'embed', '-q', '-m', d + '/m.gguf'] + ['--no-normalise'] * (not normalized),
                         input=''.join(prompt + t + '\n' for t in TEXTS), capture_output=True, text=True)
    if run.returncode:
        print(run.stderr)
        return float('nan')
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    got = np.array([r['embedding'] for r in rows], dtype=np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    longest = max(r['n_tokens'] for r in rows)
    own = len(m.tokenizer(prompt + LONG)['input_ids'])
    assert longest == own, f'{longest} tokens, not {own}'
    return float(np.abs(got - want).max() / (1 if normalized else np.abs(want).max()))

def ask(url, body):
    return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), {'content-type': 'application/json'})))

def ranker(program, name, d):
    from sentence_transformers import CrossEncoder
    config, tokenizer = RANKERS[name]
    save(d, config, tokenizer)
    if not convert(program, d, d + '/m.gguf'): return float('nan')
    m = CrossEncoder(d, device='cpu')
    want = m.predict(PAIRS, activation_fn=torch.nn.Sigmoid())
    port = 18000 + os.getpid() % 2000
    server = subprocess.Popen([program, 'serve', '--rerank-model', d + '/m.gguf', '--port', str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(120):
            try: urllib.request.urlopen(f'http://127.0.0.1:{port}/health'); break
            except OSError: time.sleep(0.5)
        got = [ask(f'http://127.0.0.1:{port}/v1/rerank', dict(query=a, documents=[b]))['results'][0]['relevance_score'] for a, b in PAIRS]
    finally:
        server.terminate()
        server.wait()
    got = np.array(got)
    if (np.argsort(got) == np.argsort(want)).all(): return float(np.abs(got - want).max())
    print(f'{name}: another order: {got} {want}')
    return float('nan')

def main():
    program, worst = sys.argv[1], 0.0
    for name in sys.argv[2:] or [*ENCODERS, *RANKERS]:
        with tempfile.TemporaryDirectory() as d:
            x = (encoder if name in ENCODERS else ranker)(program, name, d)
        print(f'{name}: {x:.1e}', flush=True)
        worst = x if not x <= worst else worst
    sys.exit(not worst <= 1e-5)

if __name__ == '__main__': main()
