/* hf_fields.c: finds fields of config.json that conversion would otherwise ignore silently.
 *
 * A field is known if it is read (by a key row of the family, or in its `fields`), or if it is listed here as one that
 * does not change the model's computation. Any other field is reported by name and refused. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "convert/hf_impl.h"

/* Fields of all families: bookkeeping, training, generation defaults, and fields read by hf_config.c and hf_vocab.c. */
static const char common[] =
    "_name_or_path architectures model_type transformers_version torch_dtype dtype auto_map "
    "_commit_hash _attn_implementation _attn_implementation_autoset attn_implementation "
    "_flash_attn_2_enabled use_flash_attn use_flash_attention torchscript use_bfloat16 "
    "quantization_config compression_config transformers.js_config unsloth_fixed unsloth_version "
    "model_name quantization "
    "vocab_size tie_word_embeddings tie_encoder_decoder is_encoder_decoder "
    "bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id unk_token_id mask_token_id "
    "decoder_start_token_id tokenizer_class prefix finetuning_task task_specific_params "
    "problem_type id2label label2id num_labels return_dict output_attentions "
    "output_hidden_states output_scores return_dict_in_generate use_cache use_return_dict "
    "initializer_range initializer_factor init_std pretraining_tp gradient_checkpointing "
    "attention_dropout hidden_dropout attention_probs_dropout_prob hidden_dropout_prob dropout "
    "attn_pdrop embd_pdrop resid_pdrop classifier_dropout embedding_dropout "
    "neftune_noise_alpha chunk_size_feed_forward pruned_heads output_router_logits "
    "router_aux_loss_coef router_jitter_noise router_z_loss_coef z_loss_coefficient "
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty "
    "temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
    "encoder_no_repeat_ngram_size bad_words_ids num_return_sequences forced_bos_token_id "
    "forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens tf_legacy_loss cross_attention_hidden_size num_logits_to_keep "
    "use_mamba_kernels use_associative_scan use_mambapy mamba_ssm_cache_dtype mamba_ssm_dtype "
    "rope_scaling rope_parameters rope_theta max_position_embeddings "
    "add_cross_attention=false is_decoder=false use_mrope=false partial_rotary_factor=1";

/* The same inside rope_scaling and rope_parameters. */
static const char rope[] =
    "rope_type type factor rope_theta original_max_position_embeddings low_freq_factor "
    "high_freq_factor attention_factor attn_factor beta_fast beta_slow mscale mscale_all_dim "
    "truncate mrope_section mrope_interleaved finetuned extrapolation_factor=1 "
    "partial_rotary_factor=1";

enum verdict { UNKNOWN, KNOWN, WRONG_VALUE };

/* A scalar as spelled in a list; for lists and objects, whether they are empty. */
static void value_text(const json_t *v, char *out, size_t size) {
    if (json_is_string(v)) snprintf(out, size, "%s", json_string_value(v));
    else if (json_is_boolean(v)) snprintf(out, size, "%s", json_is_true(v) ? "true" : "false");
    else if (json_is_integer(v))
        snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v)) snprintf(out, size, "%g", json_real_value(v));
    else snprintf(out, size, "%s", json_array_size(v) || json_object_size(v) ? "[...]" : "[]");
}

static bool is_one_of(const char *word, const char *list, size_t n) {
    size_t len = strlen(word);
    for (const char *p = list; p <= list + n;) {
        size_t part = 0;
        while (p + part < list + n && p[part] != '|') part++;
        if (part == len && memcmp(p, word, len) == 0) return true;
        p += part + 1;
    }
    return false;
}

/* Looks up name in a list of "NAME" and "NAME=VALUE|VALUE", separated by spaces; copies the values to want. */
static enum verdict look_up(const char *list, const char *name, const json_t *v, char *want,
                            size_t size) {
    size_t len = strlen(name);
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, " ");
        if (n >= len && memcmp(p, name, len) == 0 && (n == len || p[len] == '=')) {
            char text[64];
            if (n == len) return KNOWN;
            value_text(v, text, sizeof text);
            snprintf(want, size, "%.*s", (int)(n - len - 1), p + len + 1);
            return is_one_of(text, p + len + 1, n - len - 1) ? KNOWN : WRONG_VALUE;
        }
        p += n + (p[n] == ' ');
    }
    return UNKNOWN;
}

/* Whether name is the first part of a path that a key row reads. */
static bool is_key(const struct arch *a, const char *name) {
    size_t len = strlen(name);
    for (const struct key_row *k = a->keys; k->gguf; k++)
        for (const char *p = k->hf; *p;) {
            size_t n = strcspn(p, "|"), first = strcspn(p, ".|");
            if (first == len && memcmp(p, name, len) == 0) return true;
            p += n + (p[n] == '|');
        }
    return false;
}

struct check {
    const struct hf *h;
    const char *within; /* "rope_parameters." or "" */
    struct buf names;   /* owned */
    int n_unknown;
    struct err *e;
    int rc;
};

static bool is_ignored(struct check *c, const char *name) {
    const struct hf_options *o = c->h->options;
    for (size_t i = 0; i < o->n_ignore; i++)
        if (strcmp(o->ignore[i], name) == 0) return true;
    return false;
}

static void check_field(struct check *c, const char *name, const json_t *v, const char *list) {
    char want[128], got[64], full[160];
    snprintf(full, sizeof full, "%s%s", c->within, name);
    char own[96];
    snprintf(own, sizeof own, "%s%s", *c->within ? "rope:" : "", name);
    enum verdict found = look_up(c->h->arch->fields, own, v, want, sizeof want);
    if (found == UNKNOWN) found = look_up(list, name, v, want, sizeof want);
    if (found == KNOWN || is_ignored(c, full)) return;
    if (found == WRONG_VALUE && !c->rc) {
        value_text(v, got, sizeof got);
        c->rc = err_set(c->e, CHIMERE_EUNSUPPORTED, "%s/config.json: %s: expected %s, got %s",
                        c->h->options->dir, full, want, got);
        err_hint(c->e, "--ignore-field %s converts as if it were %s", full, want);
    }
    if (found == UNKNOWN && c->n_unknown++ < 4)
        buf_printf(&c->names, "%s'%.60s'", c->n_unknown > 1 ? ", " : "", full);
}

static void check_rope(struct check *c, const char *member) {
    const char *name;
    json_t *v;
    char within[32];
    snprintf(within, sizeof within, "%s.", member);
    c->within = within;
    char ignored[8];
    bool reads_part = look_up(c->h->arch->fields, "partial_rotary_factor", NULL, ignored,
                              sizeof ignored) == KNOWN;
    json_object_foreach(json_object_get(c->h->config, member), name, v) {
        if (json_is_null(v) || (reads_part && strcmp(name, "partial_rotary_factor") == 0)) continue;
        check_field(c, name, v, rope);
    }
    c->within = "";
}

int hf_check_fields(const struct hf *h, struct err *e) {
    struct check c = {.h = h, .within = "", .e = e};
    const char *name;
    json_t *v;
    buf_init(&c.names, 1 << 12);
    json_object_foreach(h->config, name, v) {
        if (json_is_null(v) || is_key(h->arch, name)) continue;
        check_field(&c, name, v, common);
    }
    if (!c.rc) check_rope(&c, "rope_scaling");
    if (!c.rc) check_rope(&c, "rope_parameters");
    if (!c.rc && c.n_unknown) {
        char more[32] = "";
        if (c.n_unknown > 4) snprintf(more, sizeof more, " and %d more", c.n_unknown - 4);
        c.rc =
            err_set(e, CHIMERE_EUNSUPPORTED, "%s/config.json: %s%s: not known for model_type '%s'",
                    h->options->dir, c.names.p ? c.names.p : "?", more,
                    json_string_value(json_object_get(h->config, "model_type")));
        err_hint(e, "--ignore-field NAME converts without a field; the result may be wrong");
    }
    buf_fini(&c.names);
    return c.rc;
}
