#include "learn/step/arm.h"

#include "backend/learned.h"
#include "engine/ngram_memory.h"
#include "eval/harness.h"
#include "learn/step/example_file.h"
#include "learn/step/playbook.h"

const char *const arm_artefacts[ARM_N_FILE] = {"night.engram", "adapter.gguf", "playbook.json",
                                               "examples.json"};

struct suite { /* state for the callbacks of a run */
    const struct night_host *host;
    struct engram_table *table; /* owned; NULL: none */
    json_t *rules;              /* owned: texts of the playbook (playbook_read); NULL: none */
    const char *pipeline;       /* whose text is used */
    json_t *shots;              /* owned: examples; NULL: none */
    const struct windows_turn *turn;
};

static int remember(void *ud, const json_t *messages, struct ngram_memory **out, struct err *e) {
    struct suite *s = ud;
    const struct ngram_memory_params p = {
        .own = {s->table}, .alpha = 1, .recall = true, .messages = messages, .tok = s->host->tok};
    *out = NULL;
    return s->table ? ngram_memory_open(out, &p, e) : 0;
}

static int encode(void *ud, json_t *messages, json_t *tools, bool think, int32_t **ids, size_t *n,
                  struct err *e) {
    const struct suite *s = ud;
    const struct night_host *h = s->host;
    const char *rules = json_string_value(json_object_get(s->rules, s->pipeline));
    json_t *all = learned_messages(rules, s->shots, messages);
    if (!all) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = h->encode(h->ud, all, tools, think, ids, n, e);
    json_decref(all);
    return rc;
}

static int turn_of(void *ud, struct err *e) {
    const struct windows_turn *turn = ((struct suite *)ud)->turn;
    return turn->fn(turn->ud, e);
}

int arm_run(json_t **run, const struct night_host *h, const json_t *items,
            const struct night_arm *arm, const struct windows_turn *turn, struct err *e) {
    struct suite suite = {.host = h, .turn = turn, .pipeline = arm->pipeline};
    struct lora *adapter = NULL;
    *run = NULL;
    const char *const *path = arm->path;
    int rc = path[ARM_TABLE] ? engram_table_open(&suite.table, path[ARM_TABLE], tok_hash(h->tok),
                                                 (uint32_t)tok_n_vocab(h->tok), e)
                             : 0;
    if (!rc && path[ARM_PLAYBOOK]) rc = playbook_read(&suite.rules, path[ARM_PLAYBOOK], e);
    if (!rc && path[ARM_EXAMPLES]) rc = example_load(&suite.shots, path[ARM_EXAMPLES], e);
    if (!rc && path[ARM_ADAPTER]) rc = lora_open(&adapter, h->model, path[ARM_ADAPTER], e);
    const struct lora_use use = {.lora = adapter, .scale = 1};
    const struct eval_host eval = {.engine = h->engine,
                                   .tok = h->tok,
                                   .encode = encode,
                                   .remember = remember,
                                   .ud = &suite,
                                   .loras = adapter ? &use : NULL,
                                   .n_lora = adapter ? 1 : 0,
                                   .n_seq = h->n_seq,
                                   .turn = turn ? turn_of : NULL};
    if (!rc) rc = eval_run(run, items, &eval, h->model->name, e);
    if (adapter) lora_close(adapter);
    if (suite.table) engram_table_close(suite.table);
    json_decref(suite.rules);
    json_decref(suite.shots);
    return rc;
}
