/* shim_compat.h: one set of names for the different versions of libllama; included only by shim.c.
 *
 * CMake inspects the user's llama.h and defines what it supports: CHIMERE_LLAMA_HAS_MEMORY (llama_memory_*: llama.cpp
 * since 2025; without it, llama_kv_cache_* and llama_lora_adapter_* of ik_llama.cpp), _VERSION (llama_version),
 * _OUTPUTS (n_outputs_max), _LORAS (llama_set_adapters_lora), _ABORT (ggml_set_abort_callback). */
#ifndef CHIMERE_LLAMA_SHIM_COMPAT_H
#define CHIMERE_LLAMA_SHIM_COMPAT_H

#include <ggml-backend.h>
#include <ggml.h>
#include <llama.h>

#ifdef CHIMERE_LLAMA_HAS_VERSION
static const char *compat_version(void) { return llama_version(); }
#else
static const char *compat_version(void) { return "without a version"; }
#endif

#ifdef CHIMERE_LLAMA_HAS_MEMORY

typedef struct llama_adapter_lora compat_lora;

static bool compat_seq_rm(struct llama_context *c, int32_t seq, llama_pos from) {
    return llama_memory_seq_rm(llama_get_memory(c), seq, from, -1);
}
static void compat_seq_cp(struct llama_context *c, int32_t seq, int32_t to, llama_pos n) {
    llama_memory_seq_cp(llama_get_memory(c), seq, to, 0, n);
}
static void compat_clear(struct llama_context *c) {
    if (llama_get_memory(c))
        llama_memory_clear(llama_get_memory(c), false); /* encoders have no memory */
}
static size_t compat_state_size(struct llama_context *c, int32_t seq) {
    return llama_state_seq_get_size(c, seq);
}
static size_t compat_state_get(struct llama_context *c, uint8_t *out, size_t n, int32_t seq) {
    return llama_state_seq_get_data(c, out, n, seq);
}
static size_t compat_state_set(struct llama_context *c, const uint8_t *in, size_t n, int32_t seq) {
    return llama_state_seq_set_data(c, in, n, seq);
}
static int32_t compat_n_ctx_train(const struct llama_model *m) {
    return llama_model_n_ctx_train(m);
}
static int32_t compat_n_embd(const struct llama_model *m) { return llama_model_n_embd(m); }
static bool compat_is_attention(const struct llama_model *m) {
    return !llama_model_is_recurrent(m) && !llama_model_is_hybrid(m);
}
static void compat_model_free(struct llama_model *m) { llama_model_free(m); }
/* Returns whether libllama has a device to compute on. Devices in separate libraries are searched for in dir. */
static bool compat_devices(const char *dir) {
    if (!ggml_backend_dev_count()) ggml_backend_load_all_from_path(dir);
    return ggml_backend_dev_count() > 0;
}
static void compat_context(struct llama_context_params *p, int32_t n_out) {
    /* without it, positions before the window are dropped, which prevents rewinding and copying */
    p->swa_full = true;
    /* without it, the context is divided among the sequences, and they cannot share cells */
    p->kv_unified = true;
#ifdef CHIMERE_LLAMA_HAS_OUTPUTS
    p->n_outputs_max = (uint32_t)n_out;
#else
    (void)n_out;
#endif
}
static compat_lora *compat_lora_open(struct llama_model *m, const char *path) {
    return llama_adapter_lora_init(m, path);
}
static int compat_lora_set(struct llama_context *c, compat_lora **loras, size_t n, float *scales) {
#ifdef CHIMERE_LLAMA_HAS_LORAS
    return llama_set_adapters_lora(c, loras, n, scales);
#else
    int rc = 0;
    llama_clear_adapter_lora(c);
    for (size_t i = 0; !rc && i < n; i++) rc = llama_set_adapter_lora(c, loras[i], scales[i]);
    return rc;
#endif
}

#else /* ik_llama.cpp */

typedef struct llama_lora_adapter compat_lora;

static bool compat_seq_rm(struct llama_context *c, int32_t seq, llama_pos from) {
    return llama_kv_cache_seq_rm(c, seq, from, -1);
}
static void compat_seq_cp(struct llama_context *c, int32_t seq, int32_t to, llama_pos n) {
    llama_kv_cache_seq_cp(c, seq, to, 0, n);
}
static void compat_clear(struct llama_context *c) { llama_kv_cache_clear(c); }
static size_t compat_state_size(struct llama_context *c, int32_t seq) {
    return llama_state_seq_get_size(c, seq, 0);
}
static size_t compat_state_get(struct llama_context *c, uint8_t *out, size_t n, int32_t seq) {
    return llama_state_seq_get_data(c, out, n, seq, 0);
}
static size_t compat_state_set(struct llama_context *c, const uint8_t *in, size_t n, int32_t seq) {
    return llama_state_seq_set_data(c, in, n, seq, 0);
}
static int32_t compat_n_ctx_train(const struct llama_model *m) { return llama_n_ctx_train(m); }
static int32_t compat_n_embd(const struct llama_model *m) { return llama_model_n_embd(m); }
static bool compat_is_attention(const struct llama_model *m) {
    return !llama_model_has_recurrent(m);
}
static void compat_model_free(struct llama_model *m) { llama_free_model(m); }
static bool compat_devices(const char *dir) {
    (void)dir; /* its devices are linked in */
    return true;
}
static void compat_context(struct llama_context_params *p, int32_t n_out) { (void)p, (void)n_out; }
static compat_lora *compat_lora_open(struct llama_model *m, const char *path) {
    return llama_lora_adapter_init(m, path);
}
static int compat_lora_set(struct llama_context *c, compat_lora **loras, size_t n, float *scales) {
    int rc = 0;
    llama_lora_adapter_clear(c);
    for (size_t i = 0; !rc && i < n; i++) rc = llama_lora_adapter_set(c, loras[i], scales[i]);
    return rc;
}

#endif
#endif
