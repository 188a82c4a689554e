#!/usr/bin/env python3
"""Writes the golden references: tiny models of every family, their logits by transformers.

Usage: make.py OUT_DIR [FAMILY ...]   (torch and transformers of requirements.txt)
       make.py --config CONFIG.json [--check CHIMERE] [OUT_DIR NAME]
       make.py --folder HF_DIR --check CHIMERE

--config takes a published config.json, scales it down and keeps every other field. --check converts the
result (or the checkpoint of --folder) with the given program and compares logits at all positions;
of encoders, the vectors or scores of three texts.

Weights come from a counter-based generator that test_golden.c repeats bit for bit, so that only the
configuration, the list of tensors and the logits are kept: NAME.json, NAME.logits (little-endian f32,
[n_tok, n_vocab]; encoders: [n_text, n_embd or 1]), NAME.mtp (logits of the prediction block), NAME.hidden (the residual
stream behind the layers of TAPPED, [n_tok, layers, n_embd]; --hidden writes nothing else).
Scales are such that every block's output is about as large as its input; norms, biases and decays are
not trivial. 200 positions: no multiple of a chunk.
"""
import json, sys, os, tempfile
import numpy as np, torch, torch.nn.functional as F
import transformers as T
import hymba, jina
from counter import values

VOCAB, N_TOK = 96, 200

# (offset, scale) of what the rule below does not suit; and what it makes several times too loud or too quiet
SPREADS = {'layer_scalar': (0.9, 0.4), 'router.scale': (1.0, 0.5), 'per_expert_scale': (1.0, 0.5), 'mamba.dt_proj.bias': (-0.5, 1.5), 'mamba.dt_proj.0.bias': (-0.5, 1.5), 'mamba.D': (0.3, 1.0), 'memory_tokens': (0.0, 1.7)}
LOUDNESS = {'jamba': {'mamba.out_proj': 0.25}, 'hymba': {'mamba.out_proj': 2.0},
            'zamba2': {'.1.weight': 0.4, 'down_proj': 0.4, '.linear.weight': 0.6}}

def spread(name, shape):
    """(offset, scale) of a tensor."""
    offset, scale = next((v for k, v in SPREADS.items() if k in name), None) or kind_spread(name, shape)
    for part, times in LOUDNESS.get(FAMILY, {}).items():
        if part in name: scale *= times
    return offset, scale

def kind_spread(name, shape):
    leaf = name.rsplit('.', 2)
    if 'A_log' in name: return 0.3, 1.2
    if 'dt_bias' in name: return -0.5, 1.5
    if 'conv1d' in name: return 0.0, 0.9
    if 'norm' in name.lower() and name.endswith('.bias'): return 0.0, 0.3
    if 'norm' in name.lower():
        plain = ZERO_NORMS is False or 'linear_attn.norm' in name
        return (1.0 if plain else 0.0), 0.5
    if name.endswith('gate_up_proj_bias'): return 0.0, 6.0  # some values reach the limit of 7
    if name.endswith('experts.down_proj_bias'): return 0.0, 2.0
    if name.endswith('.bias') or name.endswith('bias'): return 0.0, 0.4
    if name.endswith('sinks'): return 0.5, 2.0
    if FAMILY == 'gpt_oss' and name.endswith('_proj'): return 0.0, (2.5 if 'gate' in name else 0.5) * 3 ** .5 * shape[-2] ** -.5
    if 'embed' in name: return 0.0, 1.7
    if ('gate.weight' in name or 'router.weight' in name) and len(shape) == 2: return 0.0, 3.0 * 3 ** .5 * shape[-1] ** -.5
    fan = shape[-1]
    return 0.0, 1.5 * 3 ** .5 * fan ** -.5

ZERO_NORMS, FAMILY = False, None
common = dict(vocab_size=VOCAB, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              max_position_embeddings=512, rms_norm_eps=1e-6)
gdn = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
           linear_conv_kernel_dim=4, num_hidden_layers=4, tie_word_embeddings=False,
           rope_parameters=dict(rope_type='default', rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1]))
moe = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16)

FAMILIES = {
    'qwen35moe': (lambda: T.Qwen3_5MoeForCausalLM(T.Qwen3_5MoeTextConfig(**common, **gdn, **moe)), True),
    'qwen35': (lambda: T.Qwen3_5ForCausalLM(T.Qwen3_5TextConfig(**common, **gdn, intermediate_size=48)), True),
    'qwen3next': (lambda: T.Qwen3NextForCausalLM(T.Qwen3NextConfig(**common, **{**gdn, 'rope_parameters': dict(rope_type='default', rope_theta=10000.0, partial_rotary_factor=0.5)}, **moe, intermediate_size=48, mlp_only_layers=[], decoder_sparse_step=1, norm_topk_prob=True)), True),
    'llama': (lambda: T.LlamaForCausalLM(T.LlamaConfig(**common, num_hidden_layers=3, intermediate_size=48, attention_bias=False, tie_word_embeddings=False)), False),
    'qwen2': (lambda: T.Qwen2ForCausalLM(T.Qwen2Config(**{k: v for k, v in common.items() if k != 'head_dim'}, num_hidden_layers=3, intermediate_size=48, tie_word_embeddings=True)), False),
    'qwen3': (lambda: T.Qwen3ForCausalLM(T.Qwen3Config(**common, num_hidden_layers=3, intermediate_size=48, tie_word_embeddings=False)), False),
    'qwen3moe': (lambda: T.Qwen3MoeForCausalLM(T.Qwen3MoeConfig(**common, num_hidden_layers=3, intermediate_size=48, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], tie_word_embeddings=False)), False),
    'falcon-h1': (lambda: T.FalconH1ForCausalLM(T.FalconH1Config(**common, num_hidden_layers=3, intermediate_size=48, mamba_d_ssm=48, mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=16, mamba_rms_norm=True, mamba_norm_before_gate=False, embedding_multiplier=1.3, lm_head_multiplier=0.7, mlp_multipliers=[0.9, 1.2], key_multiplier=0.8, attention_in_multiplier=1.1, attention_out_multiplier=0.9, ssm_in_multiplier=1.2, ssm_out_multiplier=0.85, ssm_multipliers=[0.9, 1.1, 1.2, 0.8, 1.15])), False),
    'jamba': (lambda: T.JambaForCausalLM(T.JambaConfig(**{k: v for k, v in common.items() if k != 'head_dim'}, num_hidden_layers=4, intermediate_size=48, attn_layer_period=3, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, num_experts=4, num_experts_per_tok=2, mamba_d_state=8, mamba_dt_rank=5)), False),
    'zamba2': (lambda: T.Zamba2ForCausalLM(T.Zamba2Config(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=5, layers_block_type=['mamba', 'hybrid', 'mamba', 'hybrid', 'hybrid'], num_mem_blocks=2, num_attention_heads=4, n_mamba_heads=8, mamba_ngroups=2, mamba_d_state=16, time_step_min=0.05, adapter_rank=6, use_shared_attention_adapter=True, use_mem_rope=True, intermediate_size=48, max_position_embeddings=512)), False),
    'hymba': (lambda: hymba.Hymba(hymba.HymbaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, mamba_expand=2, mamba_d_state=8, mamba_d_conv=4, mamba_dt_rank=5, mamba_conv_bias=True, mamba_proj_bias=False, mamba_inner_layernorms=True, num_memory_tokens=70, memory_tokens_interspersed_every=0, sliding_window=40, global_attn_idx=[0, 3, 5], kv_reuse_group=[[1, 2]], kv_reuse_every_i_layer=-1, kq_norm='none', kq_head_dim=-1, v_head_dim=16, attn_hidden_size=-1, num_experts=1, num_experts_per_tok=1, num_mamba=1, rope=True, rope_theta=10000.0, rope_type='ntk', max_position_embeddings=512, orig_max_position_embeddings=128, seq_length=512, hidden_act='silu', mlp_hidden_act='silu', rms_norm_eps=1e-6, tie_word_embeddings=False)), False),
    'bert': (lambda: T.BertModel(T.BertConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, max_position_embeddings=256, type_vocab_size=2)), False),
    'bertrank': (lambda: T.BertForSequenceClassification(T.BertConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=256, type_vocab_size=2, num_labels=1)), False),
}

encoder = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=258, pad_token_id=1)
FAMILIES['bert_roberta'] = (lambda: T.XLMRobertaModel(T.XLMRobertaConfig(**encoder, type_vocab_size=1)), False)
FAMILIES['bertrank_roberta'] = (lambda: T.XLMRobertaForSequenceClassification(T.XLMRobertaConfig(**encoder, type_vocab_size=1, num_labels=1)), False)
FAMILIES['bert_distil'] = (lambda: T.DistilBertModel(T.DistilBertConfig(vocab_size=VOCAB, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=256)), False)

FAMILIES['bertrank_distil'] = (lambda: T.DistilBertForSequenceClassification(T.DistilBertConfig(vocab_size=VOCAB, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=256, num_labels=1)), False)

# Published values of the fields that make these encoders differ; the window and the number of positions are smaller.
small_encoder = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48)
def modern_ranker(pooling): return T.ModernBertForSequenceClassification(T.ModernBertConfig(**dict(small_encoder, num_hidden_layers=2), max_position_embeddings=256, local_attention=16, pad_token_id=0, bos_token_id=1, eos_token_id=1, cls_token_id=1, sep_token_id=1, classifier_pooling=pooling, num_labels=1))
ENCODERS = {
    'bert_mpnet': lambda: T.MPNetModel(T.MPNetConfig(**dict(small_encoder, num_hidden_layers=2), max_position_embeddings=258, layer_norm_eps=1e-5, pad_token_id=1)),
    'bert_nomic': lambda: T.NomicBertModel(T.NomicBertConfig(**dict(small_encoder, num_hidden_layers=2), max_position_embeddings=256, rope_parameters=dict(rope_type='default', rope_theta=1000.0))),
    'bertrank_modern': lambda: modern_ranker('mean'),
    'bertrank_modern_cls': lambda: modern_ranker('cls'),
    'bert_modern': lambda: T.ModernBertModel(T.ModernBertConfig(**small_encoder, max_position_embeddings=256, local_attention=16, pad_token_id=0, bos_token_id=1, eos_token_id=1, cls_token_id=1, sep_token_id=1)),
    'bert_jina2': lambda: jina.JinaBert(T.BertConfig(**dict(small_encoder, num_hidden_layers=2, num_attention_heads=6, hidden_size=48), max_position_embeddings=256)),
    'bert_jina3': lambda: T.JinaEmbeddingsV3Model(T.JinaEmbeddingsV3Config(**dict(small_encoder, num_hidden_layers=2), max_position_embeddings=256, rope_parameters=dict(rope_type='default', rope_theta=20000.0))),
}

# Hybrid families are written under the names of their checkpoints (one tensor an expert and so on), which
# transformers reads back: NAMES of the model in memory are not always those.
CHECKPOINT = {'falcon-h1', 'jamba', 'zamba2'}
def hybrid(name, build):
    FAMILIES[name] = (build, False)
    CHECKPOINT.add(name)

for name, build in ENCODERS.items(): hybrid(name, build)
CHECKPOINT.remove('bert_jina2')  # a module of our own, which has the checkpoint's names

small = dict(vocab_size=VOCAB, hidden_size=32)
hybrid('mamba', lambda: T.MambaForCausalLM(T.MambaConfig(**small, state_size=16, num_hidden_layers=3, tie_word_embeddings=False)))
hybrid('mamba2', lambda: T.Mamba2ForCausalLM(T.Mamba2Config(**small, state_size=16, num_heads=4, head_dim=16, n_groups=2, num_hidden_layers=3, chunk_size=32)))
hybrid('falcon_mamba', lambda: T.FalconMambaForCausalLM(T.FalconMambaConfig(**small, state_size=16, num_hidden_layers=3, tie_word_embeddings=False)))
nemotron = dict(**small, num_attention_heads=4, num_key_value_heads=2, head_dim=16, mamba_num_heads=4, mamba_head_dim=16,
                ssm_state_size=16, n_groups=2, chunk_size=32, tie_word_embeddings=False, num_hidden_layers=None)
hybrid('nemotron_h', lambda: T.NemotronHForCausalLM(T.NemotronHConfig(**nemotron, intermediate_size=48, layers_block_type=['linear_attention', 'mlp', 'full_attention', 'mlp', 'linear_attention', 'mlp'])))
hybrid('nemotron_h_moe', lambda: T.NemotronHForCausalLM(T.NemotronHConfig(**nemotron, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, moe_shared_expert_intermediate_size=32, routed_scaling_factor=2.5, norm_topk_prob=True, layers_block_type=['linear_attention', 'moe', 'full_attention', 'moe', 'linear_attention', 'moe'])))
hybrid('nemotron_h_latent', lambda: T.NemotronHForCausalLM(T.NemotronHConfig(**nemotron, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, moe_shared_expert_intermediate_size=32, moe_latent_size=16, routed_scaling_factor=5.0, norm_topk_prob=True, layers_block_type=['linear_attention', 'moe', 'full_attention', 'moe', 'linear_attention', 'moe'])))
hybrid('nemotron_h_groups', lambda: T.NemotronHForCausalLM(T.NemotronHConfig(**nemotron, n_routed_experts=12, num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=16, moe_shared_expert_intermediate_size=32, routed_scaling_factor=2.5, norm_topk_prob=True, layers_block_type=['linear_attention', 'moe', 'full_attention', 'moe', 'linear_attention', 'moe'])))
granite = dict(**small, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=3, shared_intermediate_size=48, mamba_n_heads=4,
               mamba_n_groups=1, mamba_d_state=16, mamba_d_head=16, mamba_chunk_size=32, max_position_embeddings=512, tie_word_embeddings=True,
               layer_types=['linear_attention', 'full_attention', 'linear_attention'], embedding_multiplier=1.5, logits_scaling=3.0,
               residual_multiplier=0.7, attention_multiplier=0.25)
hybrid('granite_h', lambda: T.GraniteMoeHybridForCausalLM(T.GraniteMoeHybridConfig(**granite, num_local_experts=0, num_experts_per_tok=0, intermediate_size=48, position_embedding_type='rope')))
hybrid('granite_h_moe', lambda: T.GraniteMoeHybridForCausalLM(T.GraniteMoeHybridConfig(**granite, num_local_experts=6, num_experts_per_tok=2, intermediate_size=16)))
hybrid('bamba', lambda: T.BambaForCausalLM(T.BambaConfig(**small, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=3, intermediate_size=48, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=16, mamba_chunk_size=32, max_position_embeddings=512, attn_layer_indices=[1], tie_word_embeddings=False)))

# Fields that change what a family computes, each with a value other than the common one.
plain = dict(**common, num_hidden_layers=3, intermediate_size=48, tie_word_embeddings=False)
headless = {k: v for k, v in plain.items() if k != 'head_dim'}
yarn = dict(rope_type='yarn', rope_theta=500.0, factor=8.0, original_max_position_embeddings=64, beta_fast=8.0, beta_slow=2.0,
            attention_factor=0.8, truncate=False)
hybrid('mistral', lambda: T.MistralForCausalLM(T.MistralConfig(**plain, sliding_window=37)))
hybrid('mixtral', lambda: T.MixtralForCausalLM(T.MixtralConfig(**plain, num_local_experts=6, num_experts_per_tok=2, sliding_window=None)))
hybrid('qwen2_windows', lambda: T.Qwen2ForCausalLM(T.Qwen2Config(**headless, use_sliding_window=True, sliding_window=37, max_window_layers=1)))
hybrid('qwen3moe_raw', lambda: T.Qwen3MoeForCausalLM(T.Qwen3MoeConfig(**plain, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[])))
hybrid('llama_yarn', lambda: T.LlamaForCausalLM(T.LlamaConfig(**plain, rope_parameters=yarn)))
hybrid('mamba2_limit', lambda: T.Mamba2ForCausalLM(T.Mamba2Config(**small, state_size=16, num_heads=4, head_dim=16, n_groups=2, num_hidden_layers=3, chunk_size=32, time_step_limit=[0.3, 0.8])))

scales = dict(embedding_multiplier=1.5, logits_scaling=3.0, residual_multiplier=0.7, attention_multiplier=0.25)
hybrid('granite', lambda: T.GraniteForCausalLM(T.GraniteConfig(**headless, **scales)))
hybrid('granitemoe', lambda: T.GraniteMoeSharedForCausalLM(T.GraniteMoeSharedConfig(**headless, **scales, num_local_experts=6, num_experts_per_tok=2, shared_intermediate_size=32)))
granite4 = dict(**{k: v for k, v in granite.items() if k != 'layer_types'}, layer_types=['full_attention'] * 3, intermediate_size=16)
hybrid('granite4', lambda: T.GraniteMoeHybridForCausalLM(T.GraniteMoeHybridConfig(**granite4, num_local_experts=0, num_experts_per_tok=0, position_embedding_type='nope')))
hybrid('granite4_moe', lambda: T.GraniteMoeHybridForCausalLM(T.GraniteMoeHybridConfig(**granite4, num_local_experts=6, num_experts_per_tok=2, position_embedding_type='rope')))
hybrid('ministral3', lambda: T.Ministral3ForCausalLM(T.Ministral3Config(**plain, rope_parameters=dict(type='yarn', rope_theta=500.0, factor=8.0, original_max_position_embeddings=48, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1))))

lfm2 = dict(**headless, conv_L_cache=3, norm_eps=1e-6, layer_types=['conv', 'full_attention', 'conv'])
for key in ('num_hidden_layers', 'rms_norm_eps'): del lfm2[key]
hybrid('lfm2', lambda: T.Lfm2ForCausalLM(T.Lfm2Config(**lfm2, num_hidden_layers=3, block_multiple_of=16, block_ffn_dim_multiplier=1.3, conv_bias=True)))
hybrid('lfm2_moe', lambda: T.Lfm2MoeForCausalLM(T.Lfm2MoeConfig(**lfm2, num_hidden_layers=3, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, num_dense_layers=1, routed_scaling_factor=1.5)))

gemma3 = dict(**{k: v for k, v in plain.items() if k not in ('num_hidden_layers', 'tie_word_embeddings')}, num_hidden_layers=4, sliding_window=37,
              layer_types=['sliding_attention', 'full_attention', 'sliding_attention', 'sliding_attention'], query_pre_attn_scalar=24,
              rope_parameters=dict(full_attention=dict(rope_type='linear', rope_theta=10000.0, factor=4.0), sliding_attention=dict(rope_type='default', rope_theta=300.0)))
hybrid('gemma3', lambda: T.Gemma3ForCausalLM(T.Gemma3TextConfig(**gemma3)))
FAMILIES['gemma3'] = (FAMILIES['gemma3'][0], True)

# EmbeddingGemma: an encoder; its weights have the names of the model without a head
hybrid('bert_gemma', lambda: T.Gemma3TextModel(T.Gemma3TextConfig(**dict(gemma3, num_key_value_heads=1), use_bidirectional_attention=True)))
FAMILIES['bert_gemma'] = (FAMILIES['bert_gemma'][0], True)

gemma4 = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=16, global_head_dim=32,
              max_position_embeddings=512, rms_norm_eps=1e-6, sliding_window=37, final_logit_softcapping=30.0,
              rope_parameters=dict(full_attention=dict(rope_type='proportional', rope_theta=10000.0, partial_rotary_factor=0.25), sliding_attention=dict(rope_type='default', rope_theta=300.0)))
local, full = 'sliding_attention', 'full_attention'
hybrid('gemma4', lambda: T.Gemma4ForCausalLM(T.Gemma4TextConfig(**gemma4, num_hidden_layers=6, num_kv_shared_layers=2, use_double_wide_mlp=True, vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=8, layer_types=[local, local, full, local, local, full])))
hybrid('gemma4_moe', lambda: T.Gemma4ForCausalLM(T.Gemma4TextConfig(**gemma4, num_hidden_layers=4, hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=16, layer_types=[local, local, local, full])))

gpt_oss = dict(**{k: v for k, v in common.items() if k != 'rms_norm_eps'}, rms_norm_eps=1e-5, num_hidden_layers=4, intermediate_size=48, num_local_experts=6,
               num_experts_per_tok=2, sliding_window=37, layer_types=['sliding_attention', 'full_attention'] * 2, tie_word_embeddings=False,
               rope_parameters=dict(rope_type='yarn', rope_theta=500.0, factor=8.0, original_max_position_embeddings=64, beta_fast=8.0, beta_slow=1.0, truncate=False))
hybrid('gpt_oss', lambda: T.GptOssForCausalLM(T.GptOssConfig(**gpt_oss)))

olmo = dict(**{k: v for k, v in headless.items() if k not in ('num_hidden_layers', 'num_key_value_heads')}, num_key_value_heads=2, num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4,
            linear_key_head_dim=16, linear_value_head_dim=32, pad_token_id=0, eos_token_id=1)
hybrid('olmo_hybrid', lambda: T.OlmoHybridForCausalLM(T.OlmoHybridConfig(**olmo, rope_parameters=dict(rope_type='default', rope_theta=None))))
hybrid('olmo_hybrid_rope', lambda: T.OlmoHybridForCausalLM(T.OlmoHybridConfig(**olmo, linear_allow_neg_eigval=False, rope_parameters=dict(rope_type='default', rope_theta=500.0))))

olmo2 = dict(**{k: v for k, v in headless.items() if k != 'num_hidden_layers'}, pad_token_id=0, eos_token_id=1)
hybrid('olmo2', lambda: T.Olmo2ForCausalLM(T.Olmo2Config(**olmo2, num_hidden_layers=3, rope_parameters=dict(rope_type='default', rope_theta=500.0))))
hybrid('olmo3', lambda: T.Olmo3ForCausalLM(T.Olmo3Config(**olmo2, num_hidden_layers=4, sliding_window=37, rope_parameters=dict(full_attention=dict(yarn, attention_factor=1.2079441541679836, truncate=True), sliding_attention=dict(rope_type='default', rope_theta=500.0)))))

latent = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=24,
              moe_intermediate_size=16, n_shared_experts=1, norm_topk_prob=True, max_position_embeddings=512, tie_word_embeddings=False)
yarn40 = dict(rope_type='yarn', rope_theta=10000.0, factor=40.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)
hybrid('deepseek_v3', lambda: T.DeepseekV3ForCausalLM(T.DeepseekV3Config(**latent, kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=12, n_routed_experts=16, num_experts_per_tok=4, n_group=8, topk_group=4, routed_scaling_factor=2.5, first_k_dense_replace=1, rope_parameters=yarn40)))
hybrid('deepseek_v3_plain', lambda: T.DeepseekV3ForCausalLM(T.DeepseekV3Config(**dict(latent, q_lora_rank=None, n_shared_experts=2, norm_topk_prob=False), kv_lora_rank=24, qk_rope_head_dim=16, qk_nope_head_dim=8, v_head_dim=32, n_routed_experts=6, num_experts_per_tok=2, n_group=1, topk_group=1, routed_scaling_factor=1.0, first_k_dense_replace=0)))
hybrid('glm4_moe_lite', lambda: T.Glm4MoeLiteForCausalLM(T.Glm4MoeLiteConfig(**latent, kv_lora_rank=48, qk_rope_head_dim=16, qk_nope_head_dim=24, v_head_dim=32, n_routed_experts=6, num_experts_per_tok=2, routed_scaling_factor=1.8, rms_norm_eps=1e-5, rope_parameters=dict(rope_type='default', rope_theta=1000000.0))))

def as_checkpoint(m):
    """The model with values under its checkpoint's names, and the list of its tensors."""
    from safetensors import safe_open
    from safetensors.torch import save_file
    with tempfile.TemporaryDirectory() as d:
        m.save_pretrained(d)
        tensors, data = [], {}
        with safe_open(d + '/model.safetensors', 'pt') as f:
            shapes = {n: list(f.get_slice(n).get_shape()) for n in f.keys()}
            for n, shape in shapes.items():
                # transformers 5.24 divides a convolution of q, k and v equally; published ones follow the projections
                if '_conv1d.' in n: shape[0] = shapes[n.replace('_conv1d.', '_proj.')][0]
                off, sc = spread(n, shape)
                data[n] = torch.from_numpy(values(n, shape, off, sc).copy())
                tensors.append(dict(name=n, shape=shape, offset=off, scale=sc))
        save_file(data, d + '/model.safetensors', metadata={'format': 'pt'})
        back, info = type(m).from_pretrained(d, dtype=torch.float32, output_loading_info=True)
        assert not any(info[k] for k in ('missing_keys', 'unexpected_keys', 'mismatched_keys')), info
        return back.eval(), tensors, json.load(open(d + '/config.json'))

# ---- the prediction block, from its published description: plain torch, no class of transformers ----

def rms(x, w, eps=1e-6): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1 + w)

def mtp_logits(w, hidden, ids, embed, head, c):
    """hidden [n, d] of positions 0..n-1, ids: tokens of positions 1..n. Logits for positions 2..n+1."""
    H, KV, D = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    x = torch.cat([rms(embed[ids], w['mtp.pre_fc_norm_embedding.weight']), rms(hidden, w['mtp.pre_fc_norm_hidden.weight'])], -1) @ w['mtp.fc.weight'].T
    p = 'mtp.layers.0.'
    h = rms(x, w[p + 'input_layernorm.weight'])
    n = h.shape[0]
    q = (h @ w[p + 'self_attn.q_proj.weight'].T).view(n, H, 2 * D)
    q, gate = q[..., :D], q[..., D:]
    k = (h @ w[p + 'self_attn.k_proj.weight'].T).view(n, KV, D)
    v = (h @ w[p + 'self_attn.v_proj.weight'].T).view(n, KV, D)
    q = rms(q, w[p + 'self_attn.q_norm.weight']); k = rms(k, w[p + 'self_attn.k_norm.weight'])
    R = int(D * 0.5)
    inv = 10000.0 ** (-torch.arange(0, R, 2).double() / R)
    ang = (torch.arange(n).double()[:, None] * inv[None])
    cos, sin = torch.cos(ang).float()[:, None], torch.sin(ang).float()[:, None]
    def rope(t):
        a, b = t[..., :R // 2], t[..., R // 2:R]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, t[..., R:]], -1)
    q, k = rope(q), rope(k)
    k, v = k.repeat_interleave(H // KV, 1), v.repeat_interleave(H // KV, 1)
    s = torch.einsum('thd,shd->hts', q, k) * D ** -.5
    s = s.masked_fill(torch.ones(n, n).triu(1).bool()[None], float('-inf')).softmax(-1)
    a = torch.einsum('hts,shd->thd', s, v) * torch.sigmoid(gate)
    x = x + a.reshape(n, H * D) @ w[p + 'self_attn.o_proj.weight'].T
    h = rms(x, w[p + 'post_attention_layernorm.weight'])
    prob = (h @ w[p + 'mlp.gate.weight'].T).softmax(-1)
    top, idx = prob.topk(c.num_experts_per_tok, -1)
    top = top / top.sum(-1, keepdim=True)
    y = torch.zeros_like(h)
    for t in range(n):
        for j in range(c.num_experts_per_tok):
            e = f"{p}mlp.experts.{idx[t, j].item()}."
            y[t] += top[t, j] * (w[e + 'down_proj.weight'] @ (F.silu(w[e + 'gate_proj.weight'] @ h[t]) * (w[e + 'up_proj.weight'] @ h[t])))
    sh = p + 'mlp.shared_expert.'
    shared = (F.silu(h @ w[sh + 'gate_proj.weight'].T) * (h @ w[sh + 'up_proj.weight'].T)) @ w[sh + 'down_proj.weight'].T
    x = x + y + torch.sigmoid(h @ w[p + 'mlp.shared_expert_gate.weight'].T) * shared
    return rms(x, w['mtp.norm.weight']) @ head.T

def mtp_shapes(c):
    d, D, H, KV, E, f, fs = c.hidden_size, c.head_dim, c.num_attention_heads, c.num_key_value_heads, c.num_experts, c.moe_intermediate_size, c.shared_expert_intermediate_size
    p = 'mtp.layers.0.'
    s = {'mtp.fc.weight': (d, 2 * d), 'mtp.pre_fc_norm_embedding.weight': (d,), 'mtp.pre_fc_norm_hidden.weight': (d,), 'mtp.norm.weight': (d,),
         p + 'input_layernorm.weight': (d,), p + 'post_attention_layernorm.weight': (d,),
         p + 'self_attn.q_proj.weight': (2 * H * D, d), p + 'self_attn.k_proj.weight': (KV * D, d), p + 'self_attn.v_proj.weight': (KV * D, d),
         p + 'self_attn.o_proj.weight': (d, H * D), p + 'self_attn.q_norm.weight': (D,), p + 'self_attn.k_norm.weight': (D,),
         p + 'mlp.gate.weight': (E, d), p + 'mlp.shared_expert_gate.weight': (1, d),
         p + 'mlp.shared_expert.gate_proj.weight': (fs, d), p + 'mlp.shared_expert.up_proj.weight': (fs, d), p + 'mlp.shared_expert.down_proj.weight': (d, fs)}
    for e in range(E):
        s[f'{p}mlp.experts.{e}.gate_proj.weight'] = s[f'{p}mlp.experts.{e}.up_proj.weight'] = (f, d)
        s[f'{p}mlp.experts.{e}.down_proj.weight'] = (d, f)
    return s

# ---- published configurations ----

# Sizes of a tiny model; a list or a function of the published value where one number does not do.
SIZES = dict(hidden_size=64, intermediate_size=96, num_attention_heads=8, head_dim=16, vocab_size=VOCAB, moe_intermediate_size=32,
             shared_expert_intermediate_size=32, shared_intermediate_size=48, num_hidden_layers=lambda n: min(n, 6), sliding_window=lambda n: min(n, 37),
             num_key_value_heads=lambda n: n if n == 1 else 2, num_experts=lambda n: min(n, 8), num_local_experts=lambda n: min(n, 8),
             n_routed_experts=lambda n: min(n, 16), num_experts_per_tok=lambda n: min(n, 4), mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16,
             mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=16, mamba_chunk_size=32, chunk_size=32, moe_shared_expert_intermediate_size=32,
             linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16, conv_L_cache=lambda n: n,
             max_window_layers=lambda n: min(n, 3), block_ff_dim=96, num_dense_layers=lambda n: min(n, 2),
             mamba_d_ssm=128, moe_latent_size=32, n_mamba_heads=8, mamba_headdim=16,
             attention_hidden_size=128, attention_head_dim=16, adapter_rank=8, lora_rank=8, dim=64, hidden_dim=96, n_heads=8, n_layers=lambda n: min(n, 6))

def shrink(config):
    """The configuration with tiny sizes and all other fields as published."""
    c = dict(config.get('text_config') or config)
    if 'text_config' in config and 'tie_word_embeddings' in config: c.setdefault('tie_word_embeddings', config['tie_word_embeddings'])
    many = c.get('num_attention_heads') == c.get('num_key_value_heads')
    for key, to in SIZES.items():
        if isinstance(c.get(key), int) and not isinstance(c[key], bool): c[key] = to(c[key]) if callable(to) else to
    if many and 'num_key_value_heads' in c: c['num_key_value_heads'] = c['num_attention_heads']
    n = c.get('num_hidden_layers', c.get('n_layers'))
    for key in ('layer_types', 'layers_block_type'):
        if isinstance(c.get(key), list): c[key] = c[key][:n]
    # attention stays in one of the layers, or in the same share of them
    if isinstance(c.get('attn_layer_indices'), list): c['attn_layer_indices'] = sorted({i % n for i in c['attn_layer_indices']})
    if isinstance(c.get('hybrid_layer_ids'), list): c['hybrid_layer_ids'] = [i for i in c['hybrid_layer_ids'] if i < n]
    pattern = c.get('hybrid_override_pattern')
    if isinstance(pattern, str): c['hybrid_override_pattern'] = pattern[:n] if '*' in pattern[:n] else pattern[:n - 1] + '*'
    # some count positions from the padding token's id
    if isinstance(c.get('pad_token_id'), int): c['pad_token_id'] = int('roberta' in c['model_type'] or c['model_type'] == 'mpnet')
    for key in ('bos_token_id', 'eos_token_id', 'cls_token_id', 'sep_token_id'):
        if key in c or key[:3] in ('bos', 'eos'): c[key] = 1
    for key in ('torch_dtype', 'dtype', 'quantization_config', 'auto_map'): c.pop(key, None)
    return c

ZERO_CENTRED = ('qwen3_next', 'qwen3_5', 'gemma')
def is_zero_centred(config):
    return any(str(c.get('model_type')).startswith(ZERO_CENTRED) for c in (config, config.get('text_config') or {}))

def class_of(config):
    kinds = config.get('architectures') or ['']
    if kinds[0].endswith('ForSequenceClassification'): return T.AutoModelForSequenceClassification
    return T.AutoModel if 'bert' in config['model_type'] or config['model_type'] in ('mpnet', 'jina_embeddings_v3') else T.AutoModelForCausalLM

def from_config(path):
    config = shrink(json.load(open(path)))
    kind = config.pop('model_type')
    kind = {'kimi_k2': 'deepseek_v3'}.get(kind, kind)  # the same model under a name that transformers lacks
    return class_of(dict(config, model_type=kind)).from_config(T.AutoConfig.for_model(kind, **config), dtype=torch.float32, attn_implementation='eager')

CUTS = [(0, 1), (1, 38), (38, 199)]  # of the tokens: the texts that encoders read

def encoded(m, ids, segments=True):
    """The score of a text, or the mean of its rows."""
    more = dict(token_type_ids=torch.tensor([[int(segments and i > len(ids) // 2) for i in range(len(ids))]])) if getattr(m.config, 'type_vocab_size', 1) > 1 else {}
    with torch.no_grad(): y = m(torch.tensor([ids]), **more)
    return (y.logits[0] if hasattr(y, 'logits') else y.last_hidden_state[0].mean(0)).float().numpy()

def byte_tokenizer(path, n_vocab):
    """A vocabulary of single characters, as conversion wants one."""
    vocab = {chr(33 + i if i < 94 else 0xA1 + i - 94): i for i in range(n_vocab)}
    json.dump(dict(version='1.0', model=dict(type='BPE', vocab=vocab, merges=[]), added_tokens=[],
                   pre_tokenizer=dict(type='ByteLevel', add_prefix_space=False, use_regex=True)), open(path, 'w'))

def check(program, folder, m, published=None):
    """Converts folder and compares the logits of its tokens with m's; returns difference / range."""
    import subprocess
    n_vocab = m.config.get_text_config().vocab_size
    ids = [int(x) for x in values('tokens', [N_TOK], n_vocab / 2, n_vocab / 2).clip(0, n_vocab - 1)]
    encodes = not type(m).__name__.endswith(('ForCausalLM', 'ForConditionalGeneration', 'LMHeadModel'))
    if encodes: ids = [2 if i == m.config.pad_token_id else i for i in ids]
    texts = [ids[a:b] for a, b in CUTS] if encodes else [ids]
    if encodes: want = np.stack([encoded(m, t, False) for t in texts])
    else:
        with torch.no_grad(): want = m(torch.tensor([ids])).logits[0].float().numpy()
    with tempfile.TemporaryDirectory() as d:
        run = subprocess.run([program, 'convert', folder, d + '/m.gguf', '--type', 'f32', '--pre', 'gpt-2'], capture_output=True, text=True)
        if run.stderr: print(run.stderr.strip())
        if run.returncode: return float('nan')
        bytes_ = b''
        for text in texts:
            out = subprocess.run([program, 'logits', '-m', d + '/m.gguf', '--all', '--cache-type-k', 'f32', '--cache-type-v', 'f32', '--tokens',
                                  ','.join(map(str, text))], capture_output=True)
            if out.returncode: print(out.stderr.decode()); return float('nan')
            bytes_ += out.stdout
        got = np.frombuffer(bytes_, '<f4').reshape(want.shape)
    worst = np.abs(got - want).max() / (want.max() - want.min())
    if encodes: print(f'{worst:.2e} of the range of {len(texts)} texts')
    else: print(f'{worst:.2e} of the range; best token equal at {int((got.argmax(1) == want.argmax(1)).sum())} of {len(ids)} positions')
    return worst

TAPPED = {'qwen35moe': [0, 2, 3], 'llama': [0, 1, 2], 'gemma3': [1, 2, 3]}

def hidden_rows(m, ids, layers):
    """[n_tok, layers, n_embd]: what the modules of these layers return, before any norm."""
    kept = {}
    def keep(i):
        def hook(module, args, result): kept[i] = (result[0] if isinstance(result, tuple) else result).reshape(len(ids), -1)
        return hook
    hooks = [m.model.layers[i].register_forward_hook(keep(i)) for i in layers]
    with torch.no_grad(): m(torch.tensor([ids]))
    for h in hooks: h.remove()
    return torch.stack([kept[i] for i in layers], 1).float().numpy()

def options():
    import argparse
    p = argparse.ArgumentParser()
    p.add_argument('--config'); p.add_argument('--folder'); p.add_argument('--check'); p.add_argument('--hidden', action='store_true'); p.add_argument('rest', nargs='*')
    return p.parse_args()

def main():
    global ZERO_NORMS, FAMILY
    o = options()
    if o.folder:
        sys.exit(not check(o.check, o.folder, class_of(json.load(open(o.folder + '/config.json'))).from_pretrained(o.folder, dtype=torch.float32, attn_implementation='eager').eval()) <= 1e-4)
    if o.config and o.check:
        ZERO_NORMS = is_zero_centred(json.load(open(o.config)))
        m, tensors, config = as_checkpoint(from_config(o.config))
        with tempfile.TemporaryDirectory() as d:
            m.save_pretrained(d)
            byte_tokenizer(d + '/tokenizer.json', VOCAB)
            sys.exit(not check(o.check, d, m) <= 1e-4)
    if o.config:
        hybrid(o.rest[1], lambda: from_config(o.config))
    out = o.rest[0]
    for name in o.rest[1:] or FAMILIES:
        build, ZERO_NORMS = FAMILIES[FAMILY := name]
        if o.config: ZERO_NORMS = is_zero_centred(json.load(open(o.config)))
        m = build().float().eval()
        tensors = []
        tied = getattr(m.config, 'tie_word_embeddings', False)
        if name in CHECKPOINT: m, tensors, config = as_checkpoint(m)
        seen = set()
        with torch.no_grad():
            for n, p in m.state_dict().items():
                if name in CHECKPOINT or n.endswith('position_ids') or (tied and n == 'lm_head.weight') or p.data_ptr() in seen: continue
                seen.add(p.data_ptr())
                off, sc = spread(n, list(p.shape))
                p.copy_(torch.from_numpy(values(n, list(p.shape), off, sc)))
                tensors.append(dict(name=n, shape=list(p.shape), offset=off, scale=sc))
        if name not in CHECKPOINT: config = json.loads(m.config.to_json_string(use_diff=False))
        config['architectures'] = [type(m).__name__]
        if name == 'bertrank_roberta': config['output_past'] = True  # as bge-reranker-v2-m3 has it
        if name == 'bert_modern':  # the fields of published checkpoints
            for key in ('layer_types', 'rope_parameters'): del config[key]
            config.update(global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0)
        ids = [int(x) for x in (values('tokens', [N_TOK], VOCAB / 2, VOCAB / 2)).clip(0, VOCAB - 1)]
        if 'roberta' in name or 'mpnet' in name: ids = [2 if i == 1 else i for i in ids]  # 1 is padding, which has no position
        spec = dict(config=config, tokens=ids, tensors=tensors)
        if name in TAPPED: hidden_rows(m, ids, TAPPED[name]).astype('<f4').tofile(f'{out}/{name}.hidden')
        if o.hidden: continue
        with torch.no_grad():
            if name.startswith('bert'):
                spec['texts'] = CUTS
                np.stack([encoded(m, ids[a:b]) for a, b in CUTS]).astype('<f4').tofile(f'{out}/{name}.logits')
            else:
                x = torch.tensor([ids])
                np.ascontiguousarray(m(x).logits[0].numpy()).astype('<f4').tofile(f'{out}/{name}.logits')
                if name == 'qwen35moe':
                    w = {}
                    for n, s in mtp_shapes(m.config).items():
                        off, sc = spread(n, s)
                        w[n] = torch.from_numpy(values(n, list(s), off, sc))
                        tensors.append(dict(name=n, shape=list(s), offset=off, scale=sc))
                    config['mtp_num_hidden_layers'] = 1
                    hidden = m.model(x).last_hidden_state[0]
                    lo = mtp_logits(w, hidden[:-1], x[0, 1:], m.model.embed_tokens.weight, m.lm_head.weight, m.config)
                    lo.numpy().astype('<f4').tofile(f'{out}/{name}.mtp')
        json.dump(spec, open(f'{out}/{name}.json', 'w'), separators=(',', ':'))
        print(name, len(tensors), 'tensors', sum(int(np.prod(t['shape'])) for t in tensors), 'weights')

if __name__ == '__main__': main()
