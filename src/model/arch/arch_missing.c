/* arch_missing.c: see arch_missing.h. A family that is implemented loses its row here and in README.md. */
#include "model/arch/arch_missing.h"

#include <string.h>

#include "model/arch/arch_config.h"

static bool has_experts(const json_t *config) {
    return arch_config_int(config, "num_experts", 0) > 0;
}

/* clang-format off */
static const struct arch_missing rows[] = {
    {"deepseek_v2", "DeepSeek V2", "experts chosen by groups of softmax scores", NULL},
    {"deepseek_v32 deepseek32 glm_moe_dsa glm-dsa", "DeepSeek V3.2 and GLM-5",
     "sparse attention by an index of keys", NULL},
    {"bailing*", "Ling", "norms of its own and, in hybrid versions, linear attention of its own", NULL},
    {"kimi_linear kimi-linear", "Kimi-Linear", "a delta net with a decay per channel", NULL},
    {"qwen4_exp qwen4_exp_text qwen4exp", "Qwen3.8-Flash-Next",
     "hyper-connections, sparse attention and lookup in n-gram tables", NULL},
    {"rwkv* arwkv7", "RWKV", "its recurrence and shift of tokens", NULL},
    {"nomic_bert", "nomic-bert v2", "experts in encoders", has_experts},
    {"nomic-bert-moe", "nomic-bert v2", "experts in encoders", NULL},
    {"minimax*", "MiniMax", "lightning or block-sparse attention", NULL},
    {"plamo*", "PLaMo", "Mamba-2 with norms of its time step", NULL},
};
/* clang-format on */

static bool has_name(const char *names, struct slice name) {
    for (const char *p = names; *p;) {
        size_t n = strcspn(p, " ");
        bool is_prefix = p[n - 1] == '*';
        size_t same = is_prefix ? n - 1 : n;
        if ((is_prefix ? name.n >= same : name.n == n) && memcmp(p, name.p, same) == 0) return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

const struct arch_missing *arch_missing_find(struct slice name, const json_t *config) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (has_name(rows[i].names, name) && (!rows[i].suits || rows[i].suits(config)))
            return &rows[i];
    return NULL;
}
