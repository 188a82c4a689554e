/* cmd_odo.c: the orchestrator on the command line: its decisions, its documents, a single answer. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "cli/args/chat_args.h"
#include "cli/args/odo_args.h"
#include "cli/odo_eval.h"
#include "backend/call.h"
#include "tools/mcp_serve.h"
#include "odo/memory.h"
#include "odo/pipeline/pipeline.h"
#include "retrieval/docs_put.h"
#include "backend/remote.h"
#include "serve/serve.h"
#include "store/decision.h"
#include "store/doc.h"
#include "store/doc_scope.h"

const struct cfg_opt odo_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    ENGINE_OPTIONS,
    SAMPLING_OPTIONS,
    ODO_OPTIONS,
    {"collection", 0, CFG_STR, "NAME", NULL, 0, 0, NULL,
     "collection of documents (index: default \"default\")"},
    {"mode", 0, CFG_ENUM, "MODE", NULL, 0, 0, "fast|quality|ultra",
     "ask, explain: use this mode instead of deciding"},
    {"route", 0, CFG_STR, "NAME", NULL, 0, 0, NULL, "ask, explain, eval: use this pipeline"},
    {"persona", 0, CFG_STR, "NAME", NULL, 0, 0, NULL, "ask, explain: persona of the answer"},
    {"n-predict", 'n', CFG_INT, "N", "0", 0, 1 << 30, NULL,
     "ask: maximum number of tokens; 0: up to the context"},
    {"last", 0, CFG_INT, "N", "20", 1, 1000000, NULL, "log: the newest N"},
    {"pin", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "remember: also put the text into every prompt"},
    {"history", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "memory: also facts that were replaced"},
    {"user", 0, CFG_STR, "KEY", NULL, 0, 0, NULL,
     "memory of this API key, by its identity (chimere key list; default: that of requests without "
     "a key)"},
    {"host", 0, CFG_STR, "ADDRESS", "127.0.0.1", 0, 0, NULL, "serve: address to listen on"},
    {"port", 0, CFG_INT, "N", "8084", 0, 65535, NULL, "serve: port; 0: any free one"},
    {"backend", 0, CFG_STR, "URL", NULL, 0, 0, NULL,
     "ask, serve: an OpenAI-compatible server instead of a local model"},
    {"backend-model", 0, CFG_STR, "NAME", "default", 0, 0, NULL,
     "name of the model on that server"},
    {"backend-key", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "file with the API key of that server"},
    {"items", 0, CFG_INT, "N", "0", 0, 1 << 20, NULL,
     "eval, calibrate: items of each file; 0: all, calibrate: 10"},
    {"parallel", 0, CFG_INT, "N", "4", 1, 64, NULL, "eval, calibrate: concurrent answers"},
    {"ablate", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "eval: repeat with each part switched off"},
    {"judge", 0, CFG_STR, "URL", NULL, 0, 0, NULL,
     "eval: an OpenAI-compatible server that grades answers"},
    {"judge-model", 0, CFG_STR, "NAME", "default", 0, 0, NULL, "name of the model on that server"},
    {"judge-key", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "file with the API key of that server"},
    {"json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "ask, eval: print one JSON object at the end; log: one object per line"},
    {0}};

static void print(json_t *o) {
    json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(o);
}

static int question(struct request *a, const struct cfg *c, struct err *e) {
    const char *text = cfg_pos(c, 1);
    int64_t shortages = mem_shortages();
    int rc = 0;
    if (!text || cfg_pos(c, 2))
        return err_set(e, CHIMERE_EINVAL, "expected one question, in quotes");
    request_init(a);
    json_t *wish = json_object();
    if (cfg_str(c, "mode")) json_object_set_new(wish, "mode", json_string(cfg_str(c, "mode")));
    if (cfg_str(c, "route")) json_object_set_new(wish, "route", json_string(cfg_str(c, "route")));
    if (cfg_str(c, "collection"))
        json_object_set_new(wish, "collection", json_string(cfg_str(c, "collection")));
    if (cfg_str(c, "persona"))
        json_object_set_new(wish, "persona", json_string(cfg_str(c, "persona")));
    a->extra = json_pack("{s:o}", "odo", wish);
    a->messages = json_pack("[{s:s, s:s}]", "role", "user", "content", text);
    if (mem_shortages() != shortages) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    else if (!a->messages) rc = err_set(e, CHIMERE_EINVAL, "question: expected valid UTF-8");
    if (rc) request_fini(a);
    return rc;
}

static int explain(const struct cfg *c, struct err *e) {
    struct odo_rig r;
    struct request a = {0};
    json_t *d;
    int rc = question(&a, c, e);
    if (rc) return rc;
    rc = odo_rig_open(&r, c, NULL, e);
    if (!rc) {
        rc = odo_explain(r.odo, &a, NULL, &d, e);
        if (!rc) print(d);
        odo_rig_close(&r);
    }
    request_fini(&a);
    return rc;
}

struct shown {
    bool json;
    json_t *notes;
};

static int on_event(void *ud, const struct backend_event *ev) {
    struct shown *s = ud;
    if (ev->kind == EVENT_NOTE)
        json_array_append_new(s->notes,
                              json_pack("{s:s, s:o*}", "step", ev->name, "data",
                                        json_loadb(ev->text, ev->n, JSON_DECODE_ANY, NULL)));
    if (ev->kind == EVENT_CHAT && ev->chat->kind == CHAT_CONTENT && !s->json) {
        fwrite(ev->chat->text, 1, ev->chat->n, stdout);
        fflush(stdout);
    }
    return 0;
}

static int answer(const struct cfg *c, struct odo *o, struct request *a, struct err *e) {
    struct shown s = {.json = cfg_bool(c, "json"), .notes = json_array()};
    struct call call = {
        .backend = odo_find(o, "odo"), .request = a, .on_event = on_event, .ud = &s};
    struct call_result out;
    int rc = call_run(&call, &out, e);
    if (!rc && s.json)
        print(json_pack("{s:s#, s:s#, s:O, s:i}", "content", out.content.n ? out.content.p : "",
                        (int)out.content.n, "reasoning", out.reasoning.n ? out.reasoning.p : "",
                        (int)out.reasoning.n, "steps", s.notes, "n_generated",
                        (int)out.stats.n_generated));
    else if (!rc) putchar('\n');
    call_fini(&out);
    json_decref(s.notes);
    return rc;
}

static int open_remote(const struct cfg *c, struct backend **out, struct err *e) {
    char *key;
    int rc = odo_args_key(c, "backend-key", &key, e);
    if (!rc)
        rc = backend_remote_open(out, cfg_str(c, "backend"), key, cfg_str(c, "backend-model"), e);
    odo_args_forget(key);
    return rc;
}

/* A function that ask and eval run with an orchestrator and the model below it. */
typedef int (*with_odo)(const struct cfg *c, struct odo *o, struct backend *backend,
                        const struct sampler_params *sampling, struct err *e);

static int with_remote(const struct cfg *c, with_odo run, struct err *e) {
    struct backend *backend;
    struct odo_rig r;
    struct sampler_params sampling;
    int rc = open_remote(c, &backend, e);
    if (rc) return rc;
    sampler_defaults(&sampling);
    if (cfg_origin(c, "temp") != CFG_DEFAULT) sampling.temperature = (float)cfg_float(c, "temp");
    rc = odo_rig_open(&r, c, backend, e);
    if (!rc) {
        rc = run(c, r.odo, backend, &sampling, e);
        odo_rig_close(&r);
    }
    backend->ops->close(backend);
    return rc;
}

/* Serves the orchestrator alone, in front of a remote server. */
static int serve_remote(const struct cfg *c, struct err *e) {
    struct backend *backend;
    struct catalog *catalog = NULL;
    struct odo_rig r;
    struct server *s;
    struct serve_params p = {.keep_days = (int32_t)cfg_int(c, "keep-days"),
                             .keep_bytes = (int64_t)cfg_bytes(c, "keep-size"),
                             .host = cfg_str(c, "host"),
                             .port = (int)cfg_int(c, "port"),
                             .grace_s = 10};
    sigset_t set;
    int got, rc;
    if (!cfg_str(c, "backend")) return err_set(e, CHIMERE_EINVAL, "serve: expected --backend URL");
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    rc = open_remote(c, &backend, e);
    if (rc) return rc;
    rc = odo_rig_open(&r, c, backend, e);
    if (!rc) {
        rc = catalog_new(&catalog, e);
        if (!rc) rc = odo_register(r.odo, catalog, e);
        if (!rc) rc = catalog_add(catalog, backend, NULL, e);
        p.catalog = catalog;
        p.odo = r.odo;
        p.metrics = odo_metrics, p.metrics_ud = r.odo;
        if (!rc) rc = serve_open(&s, &p, e);
        if (!rc) {
            printf("chimere listens on http://%s:%d (odo in front of %s)\n", p.host, serve_port(s),
                   cfg_str(c, "backend"));
            fflush(stdout);
            sigwait(&set, &got);
            serve_close(s);
        }
        catalog_free(catalog);
        odo_rig_close(&r);
    }
    backend->ops->close(backend);
    return rc;
}

static int with_local(const struct cfg *c, int32_t n_seq, with_odo run, struct err *e) {
    struct chat_rig rig;
    struct odo_rig r;
    struct backend *backend = NULL;
    struct sampler_params sampling;
    int rc = chat_rig_open(&rig, c, n_seq, e);
    if (rc) return rc;
    struct backend_model model = {.m = rig.m,
                                  .gguf = rig.loaded.gguf,
                                  .engine = rig.engine,
                                  .vision = rig.loaded.vision,
                                  .tok = rig.tok,
                                  .template = rig.template,
                                  .loras = rig.loras,
                                  .n_lora = rig.n_lora,
                                  .n_seq = n_seq};
    chat_rig_sampling(&rig, c, false, &sampling);
    rc = backend_local_new(&backend, &model, rig.loaded.name, e);
    if (!rc) rc = odo_rig_open(&r, c, backend, e);
    if (!rc) {
        rc = run(c, r.odo, backend, &sampling, e);
        odo_rig_close(&r);
    }
    if (backend) backend->ops->close(backend);
    chat_rig_close(&rig);
    return rc;
}

static int ask_with(const struct cfg *c, struct odo *o, struct backend *backend,
                    const struct sampler_params *sampling, struct err *e) {
    struct request a = {0};
    (void)backend;
    int rc = question(&a, c, e);
    if (rc) return rc;
    a.sampling = *sampling;
    a.has_temperature = cfg_origin(c, "temp") != CFG_DEFAULT;
    a.max_tokens = (int32_t)cfg_int(c, "n-predict");
    rc = answer(c, o, &a, e);
    request_fini(&a);
    return rc;
}

static int ask_one(const struct cfg *c, struct err *e) {
    struct request a = {0};
    int rc = question(&a, c, e); /* check this before minutes of loading */
    if (rc) return rc;
    request_fini(&a);
    return cfg_str(c, "backend") ? with_remote(c, ask_with, e) : with_local(c, 2, ask_with, e);
}

static int eval_with(const struct cfg *c, struct odo *o, struct backend *backend,
                     const struct sampler_params *sampling, struct err *e) {
    (void)sampling; /* items are answered greedily */
    return odo_eval(c, o, backend, (int32_t)cfg_int(c, "parallel"), e);
}

static int eval_items(const struct cfg *c, struct err *e) {
    int32_t n = (int32_t)cfg_int(c, "parallel");
    return cfg_str(c, "backend") ? with_remote(c, eval_with, e) : with_local(c, n, eval_with, e);
}

static int calibrate_with(const struct cfg *c, struct odo *o, struct backend *backend,
                          const struct sampler_params *sampling, struct err *e) {
    (void)sampling;
    return odo_calibrate(c, o, backend, (int32_t)cfg_int(c, "parallel"), e);
}

static int calibrate(const struct cfg *c, struct err *e) {
    int32_t n = (int32_t)cfg_int(c, "parallel");
    return cfg_str(c, "backend") ? with_remote(c, calibrate_with, e)
                                 : with_local(c, n, calibrate_with, e);
}

/* Writes the collection or the scope that a command names: that of the user on this machine. */
static int scope_of(const struct cfg *c, const char *fallback, char out[STORE_DOC_SCOPE_BYTES],
                    struct err *e) {
    char owner[MEMORY_MAX_OWNER];
    const char *name = cfg_str(c, "collection");
    memory_owner(NULL, NULL, owner);
    return store_doc_scope(owner, name ? name : fallback, out, e);
}

static int index_paths(const struct cfg *c, struct err *e) {
    struct odo_rig r = {0};
    char collection[STORE_DOC_SCOPE_BYTES];
    if (!cfg_pos(c, 1)) return err_set(e, CHIMERE_EINVAL, "index: expected a folder or a file");
    int rc = scope_of(c, "default", collection, e);
    if (!rc) rc = odo_rig_store(&r, c, e);
    for (int i = 1; !rc && cfg_pos(c, i); ++i) {
        struct docs_report report;
        rc = docs_index(r.docs, cfg_pos(c, i), collection, &report, e);
        if (rc) break;
        printf(
            "%s: %d files: %d read (%d passages), %d unchanged, %d removed, %d of other types, %d "
            "failed\n",
            cfg_pos(c, i), report.n_seen, report.n_read, report.n_chunk, report.n_kept,
            report.n_removed, report.n_skipped, report.n_failed);
        if (report.n_failed) printf("  first failure: %s\n", report.first_failure);
        if (report.n_skipped) printf("  not read: %s\n", report.skipped);
    }
    odo_rig_close(&r);
    return rc;
}

static int remove_documents(const struct cfg *c, struct err *e) {
    struct odo_rig r = {0};
    char collection[STORE_DOC_SCOPE_BYTES];
    if (!cfg_pos(c, 1)) return err_set(e, CHIMERE_EINVAL, "remove: expected a folder or a file");
    int rc = scope_of(c, "default", collection, e);
    if (!rc) rc = odo_rig_store(&r, c, e);
    for (int i = 1; !rc && cfg_pos(c, i); ++i) {
        int32_t n_removed;
        rc = docs_remove(r.docs, cfg_pos(c, i), collection, &n_removed, e);
        if (!rc) printf("%s: %d removed from the index\n", cfg_pos(c, i), n_removed);
    }
    odo_rig_close(&r);
    return rc;
}

static int print_doc(void *ud, const struct store_doc *d) {
    (void)ud;
    printf("%-12s %6d passages  %s  (%s)\n", store_doc_shown(d->collection), d->n_chunk, d->path,
           d->title);
    return 0;
}

static int documents(const struct cfg *c, struct err *e) {
    struct odo_rig r = {0};
    char scope[STORE_DOC_SCOPE_BYTES];
    int rc = scope_of(c, NULL, scope, e);
    if (!rc) rc = odo_rig_store(&r, c, e);
    if (!rc) rc = store_doc_list(r.store, scope, print_doc, NULL, e);
    odo_rig_close(&r);
    return rc;
}

static int search(const struct cfg *c, struct err *e) {
    struct odo_rig r = {0};
    struct docs_hits h;
    char scope[STORE_DOC_SCOPE_BYTES];
    if (!cfg_pos(c, 1)) return err_set(e, CHIMERE_EINVAL, "search: expected words");
    int rc = scope_of(c, NULL, scope, e);
    if (!rc) rc = odo_rig_store(&r, c, e);
    if (!rc) rc = docs_search(r.docs, cfg_pos(c, 1), scope, 5, 0, NULL, &h, e);
    if (!rc) {
        printf("coverage %.2f, %s%s\n", h.coverage, docs_ranking(&h),
               docs_has_vectors(r.docs) ? "" : " (no --embedding-model, no --embedding-url)");
        if (h.why[0]) printf("degraded: %s\n", h.why);
        for (int32_t i = 0; i < h.n; ++i)
            printf("[%d] %s:%d bytes %d-%d %s\n%s\n\n", i + 1, h.v[i].path, h.v[i].line,
                   h.v[i].from, h.v[i].to, h.v[i].title, h.v[i].text);
        docs_hits_fini(&h);
    }
    odo_rig_close(&r);
    return rc;
}

static int print_decision(void *ud, const struct store_decision *d) {
    if (*(bool *)ud) {
        json_t *o = json_pack("{s:I, s:I, s:s, s:s, s:s, s:s, s:f, s:b, s:o*}", "id",
                              (json_int_t)d->id, "at_ms", (json_int_t)d->at_ms, "route", d->route,
                              "how", d->how, "pipeline", d->pipeline, "mode", d->mode, "ms", d->ms,
                              "failed", d->failed, "record", json_loads(d->record, 0, NULL));
        json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
        putchar('\n');
        json_decref(o);
        return 0;
    }
    char when[32] = "";
    time_t t = (time_t)(d->at_ms / 1000);
    struct tm tm;
    if (localtime_r(&t, &tm)) strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    printf("%6lld  %s  %-10s %-8s %-8s %8.0f ms  %s\n", (long long)d->id, when, d->route, d->how,
           d->mode, d->ms, d->failed ? "failed" : "");
    return 0;
}

static int show_log(const struct cfg *c, struct err *e) {
    struct odo_rig r = {0};
    bool json = cfg_bool(c, "json");
    int rc = odo_rig_store(&r, c, e);
    if (!rc)
        rc = store_decision_list(r.store, (int32_t)cfg_int(c, "last"), print_decision, &json, e);
    odo_rig_close(&r);
    return rc;
}

/* ---- memory ---- */

static int remember(const struct cfg *c, struct err *e) {
    struct odo_rig r = {0};
    char owner[MEMORY_MAX_OWNER];
    const char *text = cfg_pos(c, 1);
    int64_t id = 0;
    if (!text || cfg_pos(c, 2))
        return err_set(e, CHIMERE_EINVAL, "remember: expected one text, in quotes");
    memory_owner(cfg_str(c, "user"), NULL, owner);
    int rc = odo_rig_store(&r, c, e);
    if (!rc) rc = memory_keep_fact(r.store, owner, text, strlen(text), cfg_bool(c, "pin"), &id, e);
    if (!rc) printf("remembered as number %lld\n", (long long)id);
    odo_rig_close(&r);
    return rc;
}

static int show_memory(const struct cfg *c, struct err *e) {
    struct odo_rig r = {0};
    char owner[MEMORY_MAX_OWNER];
    json_t *list = NULL, *m;
    size_t i;
    memory_owner(cfg_str(c, "user"), NULL, owner);
    int rc = odo_rig_store(&r, c, e);
    if (!rc) rc = memory_list(r.store, owner, cfg_bool(c, "history"), STORE_MAX_MEMORIES, &list, e);
    if (!rc && cfg_bool(c, "json")) {
        print(json_incref(list));
    } else if (!rc) {
        json_array_foreach(list, i, m)
            printf("%6lld  %-4s  %s%s\n", (long long)json_integer_value(json_object_get(m, "id")),
                   json_string_value(json_object_get(m, "kind")),
                   json_is_true(json_object_get(m, "pinned")) ? "[pinned] "
                   : json_object_get(m, "replaced_by")        ? "[replaced] "
                                                              : "",
                   json_string_value(json_object_get(m, "text")));
    }
    json_decref(list);
    odo_rig_close(&r);
    return rc;
}

/* Runs pin, unpin or forget, according to the first word of the command. */
static int change_memory(const struct cfg *c, struct err *e) {
    struct odo_rig r = {0};
    char owner[MEMORY_MAX_OWNER];
    const char *what = cfg_pos(c, 0), *which = cfg_pos(c, 1);
    int64_t id = 0, n = 1;
    bool forget = !strcmp(what, "forget"), all = forget && which && !strcmp(which, "all");
    if (!which || (!all && !str_to_i64(which, 1, INT64_MAX, &id)))
        return err_set(e, CHIMERE_EINVAL, "%s: expected the number of a memory%s", what,
                       forget ? ", or all" : "");
    memory_owner(cfg_str(c, "user"), NULL, owner);
    int rc = odo_rig_store(&r, c, e);
    if (!rc && all) {
        n = store_memory_forget(r.store, owner, INT64_MAX, true, e);
        rc = n < 0 ? (int)n : 0;
    } else if (!rc && forget) {
        rc = store_memory_remove(r.store, owner, id, e);
    } else if (!rc) {
        rc = store_memory_pin(r.store, owner, id, !strcmp(what, "pin"), e);
    }
    if (!rc && forget) printf("%lld forgotten\n", (long long)n);
    odo_rig_close(&r);
    return rc;
}

static int list_skills(const struct cfg *c, struct err *e) {
    struct odo_rig r;
    json_t *s;
    size_t i;
    int rc = odo_rig_open(&r, c, NULL, e);
    if (rc) return rc;
    json_t *all = odo_skills(r.odo);
    json_array_foreach(all, i, s)
        printf("%-24s %-8s %s\n", json_string_value(json_object_get(s, "name")),
               json_is_true(json_object_get(s, "command")) ? "command" : "text",
               json_string_value(json_object_get(s, "about")));
    json_decref(all);
    odo_rig_close(&r);
    return 0;
}

static int serve_mcp(const struct cfg *c, struct err *e) {
    struct odo_rig r;
    struct tool_set *tools;
    int rc = odo_rig_tools(&r, c, &tools, e);
    if (rc) return rc;
    rc = mcp_serve(tools, stdin, stdout, e);
    tool_set_free(tools);
    odo_rig_close(&r);
    return rc;
}

static const struct {
    const char *name;
    int (*run)(const struct cfg *c, struct err *e);
} actions[] = {
    {"explain", explain},         {"ask", ask_one},
    {"index", index_paths},       {"search", search},
    {"documents", documents},     {"log", show_log},
    {"mcp", serve_mcp},           {"serve", serve_remote},
    {"remember", remember},       {"memory", show_memory},
    {"pin", change_memory},       {"unpin", change_memory},
    {"forget", change_memory},    {"skills", list_skills},
    {"eval", eval_items},         {"calibrate", calibrate},
    {"remove", remove_documents},
};

int cmd_odo(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(
            &c, odo_options,
            "usage: chimere odo explain \"QUESTION\" [--route NAME] [--mode MODE]\n"
            "       chimere odo ask \"QUESTION\" [-m FILE] [--json]\n"
            "       chimere odo index FOLDER... [--collection NAME]\n"
            "       chimere odo search \"WORDS\" | documents [--collection NAME]\n"
            "       chimere odo remove PATH... [--collection NAME]    (from the index)\n"
            "       chimere odo log [--last N] [--json]\n"
            "       chimere odo remember \"TEXT\" [--pin] | memory | pin N | unpin N | forget "
            "N|all "
            "[--user KEY]\n"
            "       chimere odo skills\n"
            "       chimere odo eval FILE|FOLDER... [--route NAME] [--ablate] [--items N]\n"
            "       chimere odo calibrate [-m FILE]    (measures which parts help this model)\n"
            "       chimere odo mcp    (an MCP server with the tools, on stdin and stdout)\n"
            "       chimere odo ask \"QUESTION\" --backend URL [--backend-model NAME]\n"
            "       chimere odo [serve] --backend URL [--port N]    (the orchestrator in front of "
            "any server)",
            argc, argv, &status))
        return status;
    struct err e = {0};
    const char *name = cfg_pos(c, 0);
    if (!name && cfg_str(c, "backend")) name = "serve";
    int rc = err_set(
        &e, CHIMERE_EINVAL,
        "expected one of explain, ask, index, search, documents, remove, log, remember, memory, "
        "pin, unpin, forget, skills, eval, calibrate, mcp, serve; got %s",
        name ? name : "nothing");
    for (size_t i = 0; name && i < sizeof actions / sizeof *actions; ++i)
        if (!strcmp(actions[i].name, name)) {
            e = (struct err){0};
            rc = actions[i].run(c, &e);
        }
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
