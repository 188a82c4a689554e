/* hf.c: the steps of a conversion: config, directory of the weights, keys, hyperparameters, tensors. */
#include "convert/hf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "convert/hf_vocab_impl.h"
#include "format/quant.h"

enum { MAX_COLUMNS = 1 << 20 };

/* The row with the given GGUF name. */
static const struct tensor_row *find_row(const struct arch *a, const char *gguf) {
    for (const struct tensor_row *const *table = a->tensors; *table; table++)
        for (const struct tensor_row *row = *table; row->gguf; row++)
            if (strcmp(row->gguf, gguf) == 0) return row;
    return NULL;
}

/* Rows of a global matrix in the source, 0 if absent. */
static uint64_t global_rows(const struct hf *h, const char *gguf) {
    const struct tensor_row *row = find_row(h->arch, gguf);
    const struct st_tensor *t = row && row->hf ? hf_find(h, row->hf, -1, 0) : NULL;
    return t && t->n_dims == 2 ? t->shape[0] : 0;
}

/* Drafters share the embedding of the model for which they draft. */
static int read_sizes(struct hf *h, struct err *e) {
    const json_t *said = json_object_get(h->config, "vocab_size");
    uint64_t n_vocab =
        h->is_drafter ? (uint64_t)json_integer_value(said) : global_rows(h, "token_embd.weight");
    if (n_vocab < 1 || n_vocab > ARCH_MAX_VOCAB)
        return err_set(e, CHIMERE_EFORMAT,
                       "%s: %s: expected a matrix of 1 to %d rows, got %" PRIu64, h->options->dir,
                       h->is_drafter ? "vocab_size" : "token embedding", ARCH_MAX_VOCAB, n_vocab);
    h->n_vocab = (uint32_t)n_vocab;
    uint64_t types = global_rows(h, "token_types.weight");
    h->n_token_type = types < 65536 ? (uint32_t)types : 0;
    h->used = mem_alloc_array(safetensors_n_tensors(h->st), sizeof *h->used);
    return h->used ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

/* The number of prediction blocks is taken from the checkpoint, not from config.json: some configs omit it, and
 * some fine-tunes dropped the tensors. */
static int settle_nextn(struct hf *h, struct err *e) {
    int32_t n = 0;
    for (size_t i = 0; i < safetensors_n_tensors(h->st); i++) {
        const char *name = safetensors_at(h->st, i)->name;
        if (str_starts(name, "model.")) name += 6;
        int at;
        if (sscanf(name, "mtp.layers.%d.", &at) == 1 && at >= n && at < 64) n = at + 1;
    }
    const json_t *said = json_object_get(h->config, "mtp_num_hidden_layers");
    if (!said && n == 0) return 0;
    if (json_object_set_new(h->config, "mtp_num_hidden_layers", json_integer(n)))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    return 0;
}

/* vocab_size is the number of rows, or of those before rounding. */
static int check_vocab_size(const struct hf *h, struct err *e) {
    const json_t *v = json_object_get(h->config, "vocab_size");
    int64_t said = json_integer_value(v),
            to = json_integer_value(json_object_get(h->config, "pad_vocab_size_multiple"));
    if (!json_is_integer(v) || said == h->n_vocab) return 0;
    if (said < h->n_vocab && to > 1 && h->n_vocab - said < to) return 0;
    return err_set(e, CHIMERE_EMISMATCH,
                   "%s/config.json: vocab_size: expected the embedding's %" PRIu32
                   " rows, got %" JSON_INTEGER_FORMAT,
                   h->options->dir, h->n_vocab, json_integer_value(v));
}

/* Layers after the last one may only be prediction blocks. */
static int check_layers(const struct hf *h, struct err *e) {
    static const char fields[] = "num_nextn_predict_layers|num_mtp_layers|mtp_num_hidden_layers";
    const json_t *more = hf_config_find(h->config, fields);
    int64_t most = h->hp->n_layer + (json_is_integer(more) ? json_integer_value(more) : 0);
    for (size_t i = 0; i < safetensors_n_tensors(h->st); i++) {
        const char *name = safetensors_at(h->st, i)->name, *at = strstr(name, "layer");
        int il;
        if (!at || hf_is_foreign(name) || str_starts(name, "mtp.") ||
            (sscanf(at, "layers.%d.", &il) != 1 && sscanf(at, "layer.%d.", &il) != 1) || il < most)
            continue;
        return err_set(e, CHIMERE_EMISMATCH,
                       "%s/config.json: num_hidden_layers: expected a number that includes tensor "
                       "%s, got %" PRId32,
                       h->options->dir, name, h->hp->n_layer);
    }
    return 0;
}

/* Stands for each global matrix of a drafter in the keys' file: the reader takes sizes from their rows. */
static void put_shapes(const struct hf *h, struct gguf_writer *w) {
    for (const struct tensor_row *const *table = h->arch->tensors; *table; table++)
        for (const struct tensor_row *row = *table; row->gguf; row++) {
            bool is_matrix = row->where == AT_GLOBAL && !row->is_vector && row->hf;
            const struct st_tensor *t = is_matrix ? hf_find(h, row->hf, -1, 0) : NULL;
            if (t && t->n_dims == 2 && t->shape[1] > 0 && t->shape[1] <= MAX_COLUMNS)
                gguf_add_tensor(w, row->gguf, QUANT_I8, 2, (uint64_t[]){t->shape[1], 1});
        }
}

/* Fills h->hp by reading the keys back, as from a file. */
static int read_blueprint(struct hf *h, struct err *e) {
    struct gguf_writer *w;
    struct gguf *g = NULL;
    struct buf image;
    buf_init(&image, 64 << 20);
    int rc = gguf_writer_new(&w, "config.json", 0, 0, e);
    if (rc) return rc;
    rc = hf_put_keys(h, w, e);
    /* placeholders: only the number of rows is used */
    if (h->is_drafter) put_shapes(h, w);
    else gguf_add_tensor(w, "token_embd.weight", QUANT_I8, 2, (uint64_t[]){1, h->n_vocab});
    if (h->n_token_type)
        gguf_add_tensor(w, "token_types.weight", QUANT_I8, 2, (uint64_t[]){1, h->n_token_type});
    struct hparams *hp = mem_zalloc(sizeof *hp);
    if (!rc && !hp) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = gguf_render(w, &image, e);
    if (!rc) rc = gguf_open_memory(&g, image.p, image.n, "config.json", e);
    if (!rc) rc = h->is_drafter ? hparams_read_drafter(hp, g, e) : hparams_read(hp, g, e);
    if (rc) err_prefix(e, "%s", h->options->dir);
    h->hp = hp;
    gguf_close(g);
    gguf_writer_abort(w);
    buf_fini(&image);
    return rc;
}

/* Sets the properties of the model that the mix's rules depend on. */
static int choose_mix(struct hf *h, struct err *e) {
    const char *type = h->options->type;
    if (!type) return 0;
    h->mix = quantize_mix_find(type);
    if (!h->mix) {
        err_set(e, CHIMERE_EINVAL, "type: expected source, a tensor type or a mix, got '%s'", type);
        err_hint(e, "f32, f16, bf16, q8_0, Q4_K_M and so on");
        return CHIMERE_EINVAL;
    }
    return 0;
}

/* A decoder without a head of its own uses its embedding, unless config.json says that it does not. */
static int check_head(const struct hf *h, bool has_output, struct err *e) {
    const json_t *kinds = json_object_get(h->root, "architectures");
    const char *kind = json_string_value(json_array_get(kinds, 0));
    if (has_output || !kind || !str_ends(kind, "ForCausalLM") ||
        !json_is_false(json_object_get(h->config, "tie_word_embeddings")))
        return 0;
    return err_set(e, CHIMERE_EFORMAT,
                   "%s: tensor lm_head.weight: expected, as tie_word_embeddings is false, got "
                   "nothing",
                   h->options->dir);
}

static int fill_shape(struct hf *h, struct err *e) {
    const struct hparams *hp = h->hp;
    const struct tensor_row *output = find_row(h->arch, "output.weight");
    bool has_output = output && output->hf && hf_find(h, output->hf, -1, 0);
    h->shape = (struct quantize_shape){.n_layer = (uint32_t)arch_n_layer_all(hp),
                                       .n_expert = (uint32_t)hp->moe.n_expert,
                                       .n_gqa = 1,
                                       .has_output = has_output};
    for (int32_t il = 0; il < hp->n_layer; il++)
        if (hp->layer[il].mixer & MIX_ATTN && hp->layer[il].n_kv_head > 0)
            h->shape.n_gqa = (uint32_t)(hp->layer[il].n_head / hp->layer[il].n_kv_head);
    return check_head(h, has_output || !output || !output->hf, e);
}

int hf_convert(const struct hf_options *options, struct hf_result *result, struct err *e) {
    struct hf h = {.options = options};
    int rc = choose_mix(&h, e);
    if (!rc) rc = hf_read_config(&h, e);
    if (!rc) rc = hf_check_fields(&h, e);
    if (!rc) rc = safetensors_open(&h.st, options->dir, e);
    if (!rc) rc = hf_read_modules(&h, e);
    if (!rc) rc = read_sizes(&h, e);
    if (!rc) rc = check_vocab_size(&h, e);
    if (!rc) rc = settle_nextn(&h, e);
    if (!rc) rc = read_blueprint(&h, e);
    if (!rc) rc = check_layers(&h, e);
    if (!rc) rc = fill_shape(&h, e);
    if (!rc && !(h.pool = pool_new(options->n_thread)))
        rc = err_set(e, CHIMERE_ENOMEM, "threads: out of memory");
    if (!rc) rc = gguf_writer_new(&h.out, options->out, 0, options->split_bytes, e);
    if (!rc) rc = hf_put_keys(&h, h.out, e);
    if (!rc) rc = hf_put_card(&h, h.out, e);
    if (!rc && !h.is_drafter) rc = hf_put_vocab(&h, h.out, e);
    if (!rc) rc = hf_add_tensors(&h, e);
    if (!rc) rc = gguf_writer_close(h.out, e);
    else gguf_writer_abort(h.out);
    *result = h.result;
    pool_free(h.pool);
    mem_free(h.hp);
    mem_free(h.used);
    safetensors_close(h.st);
    json_decref(h.root);
    return rc;
}
