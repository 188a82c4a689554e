/* cmd_serve.c: the HTTP server. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/str.h"
#include "base/thread.h"
#include "cli/args/remote_args.h"
#include "cli/args/chat_args.h"
#include "cli/args/draft_args.h"
#include "cli/args/encoder_args.h"
#include "cli/args/odo_args.h"
#include "cli/serve_night.h"
#include "cli/serve_check.h"
#include "cli/serve_keys.h"
#include "cli/serve_reload.h"
#include "cli/serve_watch.h"
#include "cli/args/hub_args.h"
#include "backend/catalog/catalog.h"
#include "backend/embed/embed.h"
#include "backend/catalog/recommend.h"
#include "backend/embed/rerank.h"
#include "engine/team.h"
#include "kernels/link.h"
#include "model/slice.h"
#include "serve/serve.h"
#include "store/store.h"

enum { MAX_HOSTS = 16 };

const struct cfg_opt serve_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    ENGINE_OPTIONS,
    LLAMA_OPTIONS,
    GPUS_OPTIONS,
    SAMPLING_OPTIONS,
    {"n-predict", 'n', CFG_INT, "N", NULL, 1, 1 << 30, NULL,
     "maximum number of tokens of an answer if the request sets none (default: up to the context)"},
    {"host", 0, CFG_LIST, "ADDRESS", "127.0.0.1", 0, 0, NULL,
     "address to listen on, or unix:PATH for a socket of this user; may be repeated"},
    {"port", 0, CFG_INT, "N", "8081", 0, 65535, NULL, "port; 0: any free one"},
    {"parallel", 'P', CFG_INT, "N", "4", 1, ENGINE_MAX_SEQS, NULL,
     "concurrent answers; with several GPUs, per GPU"},
    {"also", 0, CFG_LIST, "[NAME=]FILE", NULL, 0, 0, NULL,
     "additional model, by its file or name, loaded on first use; may be repeated"},
    {"also-max", 0, CFG_INT, "N", "0", 0, MODELS_MAX, NULL,
     "maximum number of models of --also in memory at a time; 0: as many as fit"},
    {"name", 0, CFG_STR, "NAME", NULL, 0, 0, NULL, "the model's name in the API"},
    {"alias", 0, CFG_LIST, "NAME[=MODEL]", NULL, 0, 0, NULL,
     "additional name of a model; '*': accept any name"},
    {"ollama", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "also listen on 127.0.0.1:11434, the default address of Ollama"},
    {"api-key", 0, CFG_LIST, "FILE|KEY", NULL, 0, 0, NULL,
     "file of keys, one per line: KEY [NAME] [admin] [parallel=N] [per-minute=N]; or an "
     "administrator's key itself; may be repeated"},
    {"metrics-compat", 0, CFG_ENUM, "PROGRAM", "none", 0, 0, "none|llamacpp|vllm",
     "also report metrics under the names of llama-server or vLLM"},
    {"keys", 0, CFG_BOOL, NULL, "true", 0, 0, NULL,
     "require the keys that `chimere key` stored in --state-dir; --no-keys"},
    {"tls-cert", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "certificate chain, PEM"},
    {"tls-key", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "its private key, PEM"},
    {"cors", 0, CFG_LIST, "ORIGIN", NULL, 0, 0, NULL,
     "origin whose web pages may call, such as http://localhost:3000; localhost: any of this "
     "machine; '*': any"},
    {"allowed-host", 0, CFG_LIST, "NAME", NULL, 0, 0, NULL,
     "name that this server is called by, beside addresses and the machine's own; '*.NAME': those "
     "below NAME; '*': "
     "any"},
    {"max-body", 0, CFG_BYTES, "SIZE", "16M", 0, 0, NULL, "largest request"},
    {"max-bodies", 0, CFG_BYTES, "SIZE", "256M", 0, 0, NULL,
     "memory for the bodies of all requests and what is parsed from them"},
    {"max-connections", 0, CFG_INT, "N", "1024", 8, 65536, NULL, "concurrent connections"},
    {"max-per-address", 0, CFG_INT, "N", "0", 0, 65536, NULL,
     "concurrent connections from one address; 0: a quarter of --max-connections, unlimited for "
     "this machine"},
    {"max-half-open", 0, CFG_INT, "N", "0", 0, 65536, NULL,
     "concurrent connections from one address with an incomplete request; 0: a quarter of "
     "--max-per-address"},
    {"queue", 0, CFG_INT, "N", "256", 1, 65536, NULL,
     "maximum number of waiting requests; more get 429"},
    {"timeout", 0, CFG_INT, "SECONDS", "0", 0, 1 << 20, NULL,
     "maximum time of an answer; 0: no limit"},
    {"idle-timeout", 0, CFG_INT, "SECONDS", "300", 1, 1 << 20, NULL,
     "time after which an idle connection is closed"},
    {"receive-timeout", 0, CFG_INT, "SECONDS", "60", 1, 1 << 20, NULL,
     "time within which a request must have arrived completely"},
    {"ping", 0, CFG_INT, "SECONDS", "10", 1, 1 << 20, NULL,
     "time without data after which a stream gets a ping"},
    {"grace", 0, CFG_INT, "SECONDS", "10", 0, 3600, NULL,
     "time for running answers to finish at shutdown"},
    {"think", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "models think unless the request disables it"},
    {"cache-scope", 0, CFG_ENUM, "WHO", "user", 0, 0, "user|key|all",
     "who shares cached prompts: each user of a key, each key, or everybody"},
    {"shared-states", 0, CFG_STR, "DIR", NULL, 0, 0, NULL,
     "folder through which servers share states, so that each can continue the conversations of "
     "the others"},
    {"shared-disk", 0, CFG_BYTES, "SIZE", "32G", 0, 0, NULL, "maximum size of the shared states"},
    {"shared-quota", 0, CFG_BYTES, "SIZE", "8G", 0, 0, NULL,
     "maximum size of the states of one API key on disk; 0: no separate limit"},
    {"studio", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "serve the Studio page at /; --no-studio"},
    {"stt-url", 0, CFG_STR, "URL", NULL, 0, 0, NULL,
     "server with OpenAI's /v1/audio/transcriptions, for speech input in the page"},
    {"tts-url", 0, CFG_STR, "URL", NULL, 0, 0, NULL,
     "server with OpenAI's /v1/audio/speech, for spoken answers in the page"},
    {"audio-key", 0, CFG_STR, "KEY", NULL, 0, 0, NULL,
     "API key of both; prefer the variable CHIMERE_AUDIO_KEY"},
    {"odo", 0, CFG_BOOL, NULL, "true", 0, 0, NULL,
     "also offer the orchestrator, as model \"odo\"; --no-odo"},
    {"metrics-open", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "allow GET /metrics without a key and from any address"},
    NIGHT_OPTIONS,
    {"learn", 0, CFG_LIST, "KEY", NULL, 0, 0, NULL,
     "keep questions and answers of the key of this name in --db for nights; local: of requests "
     "without a key; may be repeated (default: none)"},
    {"check", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "check options, files, keys, pipelines and the model's header, then exit"},
    ODO_OPTIONS,
    {0}};

static const char serve_usage[] =
    "usage: chimere serve [-m FILE] [--host ADDRESS] [--port N] [--parallel N] [--ctx N]\n"
    "                     [--api-key FILE] [--tls-cert FILE --tls-key FILE] [--cors ORIGIN]\n"
    "                     [--config FILE] [--check]";

/* Reads the file that an option names; *text is owned, or NULL if the option is not set. */
static int read_option(const struct cfg *c, const char *name, char **text, struct err *e) {
    size_t n;
    *text = NULL;
    const char *path = cfg_str(c, name);
    return path ? file_read(path, 1 << 20, text, &n, e) : 0;
}

/* Each connection needs a file descriptor, and files need some. The limit of the system is reported at the start,
 * so that it does not fail under load. */
static int take_descriptors(int n_conn) {
    enum { OTHERS = 128 };
    uint64_t want = (uint64_t)n_conn + OTHERS, allowed = os_allow_files(want);
    if (allowed >= want) return n_conn;
    int fits = allowed > OTHERS + 8 ? (int)(allowed - OTHERS) : 8;
    log_warn("%llu file descriptors are allowed (ulimit -n, LimitNOFILE=): at most %d connections",
             (unsigned long long)allowed, fits);
    return fits;
}

static enum serve_scope scope_named(const char *name) {
    return !strcmp(name, "all") ? SCOPE_ALL : !strcmp(name, "key") ? SCOPE_KEY : SCOPE_USER;
}

static bool is_loopback(const char *host) {
    return str_starts(host, "unix:") || strcmp(host, "localhost") == 0 ||
           strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

static enum metrics_compat compat_named(const char *name) {
    return !strcmp(name, "vllm")       ? COMPAT_VLLM
           : !strcmp(name, "llamacpp") ? COMPAT_LLAMACPP
                                       : COMPAT_NONE;
}

/* The first address of --host that is not a Unix socket gives the port for the others. */
static int list_hosts(const struct cfg *c, const char **hosts, struct serve_params *p,
                      struct err *e) {
    const char *const *items;
    size_t n = cfg_list(c, "host", &items), first = 0;
    if (n > MAX_HOSTS) return err_set(e, CHIMERE_ELIMIT, "--host: expected at most %d", MAX_HOSTS);
    while (first < n && str_starts(items[first], "unix:")) first++;
    if (first == n) first = 0;
    for (size_t i = 0, k = 0; i < n; i++)
        if (i != first) hosts[k++] = items[i];
    p->host = items[first];
    p->more_hosts = hosts;
    p->n_more_host = n - 1;
    return 0;
}

/* Collects the sampling options that were given, as fields of a request. */
static int read_defaults(const struct cfg *c, json_t **out, struct err *e) {
    static const struct cfg_opt options[] = {SAMPLING_OPTIONS, {0}};
    static const char *const other[][2] = {
        {"temp", "temperature"}, {"n-predict", "max_tokens"}, {"think-budget", "thinking_budget"}};
    *out = json_object();
    for (size_t i = 0; i <= sizeof options / sizeof *options - 1; i++) {
        const char *option = options[i].name ? options[i].name : "n-predict";
        char name[40];
        if (cfg_origin(c, option) == CFG_DEFAULT) continue;
        snprintf(name, sizeof name, "%s", option);
        for (char *p = name; *p; p++)
            if (*p == '-') *p = '_';
        for (size_t k = 0; k < sizeof other / sizeof *other; k++)
            if (strcmp(option, other[k][0]) == 0) snprintf(name, sizeof name, "%s", other[k][1]);
        bool is_flag = options[i].name && options[i].type == CFG_BOOL;
        json_t *v = is_flag ? json_boolean(cfg_bool(c, option))
                            : json_loads(cfg_text(c, option), JSON_DECODE_ANY, NULL);
        if (!v || json_object_set_new(*out, name, v))
            return err_set(e, CHIMERE_EINVAL, "--%s: expected a number, got %.40s", option,
                           cfg_text(c, option));
    }
    return 0;
}

/* Checks the options before any file is read; missing cards are found when they are opened. */
static int check_gpus(const struct cfg *c, struct err *e) {
    struct gpus g;
    if (!cfg_str(c, "gpus"))
        return split_of(cfg_str(c, "split")) > SPLIT_NONE
                   ? err_set(e, CHIMERE_EINVAL, "--split %s: name the GPUs with --gpus",
                             cfg_str(c, "split"))
                   : 0;
    if (cfg_origin(c, "device") != CFG_DEFAULT)
        return err_set(e, CHIMERE_EINVAL, "--gpus and --device exclude each other: give one");
    return gpus_parse(cfg_str(c, "gpus"), &g, e);
}

static void warn_if_open(const struct serve_params *p, bool asks) {
    for (size_t i = 0; i <= p->n_more_host && !asks; i++) {
        const char *host = i ? p->more_hosts[i - 1] : p->host;
        if (!is_loopback(host))
            log_warn("%s can be reached from other machines and no API key is set; "
                     "make one with: chimere key add NAME --state-dir DIR",
                     host);
    }
}

/* Prints the first line of output, which contains an address; programs that start the server search for it. */
static void announce(const struct serve_params *p, int port, const char *model, int n_seq) {
    const char *scheme = p->tls_cert ? "https" : "http";
    char url[300];
    if (str_starts(p->host, "unix:")) snprintf(url, sizeof url, "%.280s", p->host);
    else if (strchr(p->host, ':'))
        snprintf(url, sizeof url, "%s://[%.60s]:%d", scheme, p->host, port);
    else snprintf(url, sizeof url, "%s://%.60s:%d", scheme, p->host, port);
    printf("chimere listens on %s (model %s, %d answers at once).", url, model, n_seq);
    for (size_t i = 0; i < p->n_more_host; i++) printf(" Also on %s.", p->more_hosts[i]);
    if (p->ollama) printf(" Also on 127.0.0.1:11434.");
    const char *path = str_starts(p->host, "unix:") ? p->host + strlen("unix:") : NULL;
    printf(" Try, in another terminal:\n  curl %s%s%s/v1/chat/completions -d "
           "'{\"messages\":[{\"role\":\"user\",\"content\":\"Who are you?\"}]}'\n",
           path ? "--unix-socket " : "", path ? path : "", path ? " http://localhost" : url);
    fflush(stdout);
}

/* The signals that this process waits for and handles. Closing the terminal in which a server was started still
 * ends it. */
static void signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1); /* starts the program again; serve_watch.h sends it too */
}

/* Returns the signal that ended the wait. */
static int wait_for_signal(const struct serve_reload *r, struct server *s,
                           const struct serve_params *p) {
    sigset_t set;
    int got = 0;
    bool has_terminal = os_is_terminal(stdin);
    signals(&set);
    while (!sigwait(&set, &got) && got == SIGHUP && !has_terminal) serve_reload_options(r, s, p);
    return got;
}

/* Serves until a signal comes. SIGUSR1, from the user or from the watch, starts the program again. Only the engine of
 * --gpus can report a lost card. */
static int serve_on(struct serve_reload *reload, struct server *s, const struct serve_params *p,
                    struct engine *g, struct err *e) {
    struct serve_watch *watch = NULL;
    int32_t pause = serve_watch_pause_ms(reload->n_restart);
    reload->port = serve_port(s);
    bool watches = cfg_str(reload->c, "gpus") && pause >= 0;
    int rc = watches ? serve_watch_open(&watch, g, pause, e) : 0, got = 0;
    if (!rc) got = wait_for_signal(reload, s, p);
    serve_watch_close(watch);
    reload->starts_again = got == SIGUSR1;
    return rc;
}

static void name_of(const struct cfg *c, char *out, size_t size) {
    char path[4096];
    if (cfg_str(c, "name")) {
        snprintf(out, size, "%s", cfg_str(c, "name"));
        return;
    }
    if (model_args_path(c, path, sizeof path, NULL)) snprintf(path, sizeof path, "model");
    encoder_stem(path, out, size);
}

/* A number that the user gives is used or refused; a negative one (the default) may be reduced. */
static int32_t slots(const struct cfg *c) {
    int32_t n = (int32_t)cfg_int(c, "parallel");
    return cfg_origin(c, "parallel") == CFG_DEFAULT ? -n : n;
}

/* Opens the registry of the models of --also and adds each of them to the catalogue. */
static int open_others(const struct cfg *c, struct models **r, struct catalog *catalog,
                       struct err *e) {
    const char *const *items;
    size_t n_item = cfg_list(c, "also", &items);
    if (!n_item) return 0;
    if (n_item > MODELS_MAX)
        return err_set(e, CHIMERE_ELIMIT, "--also: expected at most %d", MODELS_MAX);
    int rc = models_new(r, 0, (int)cfg_int(c, "also-max"), e);
    if (!rc) models_engram_dir(*r, cfg_str(c, "engram-dir"));
    for (size_t i = 0; !rc && i < n_item; i++) {
        char unused[4096], path[4096], name[128];
        struct load_params how;
        const char *eq = strchr(items[i], '='), *file = eq ? eq + 1 : items[i];
        rc = chat_rig_load(c, slots(c), &how, unused, sizeof unused, e);
        if (!rc) rc = model_args_named(c, file, path, sizeof path, e);
        if (rc) break;
        if (eq) snprintf(name, sizeof name, "%.*s", (int)(eq - items[i]), items[i]);
        else if (!strpbrk(file, "/.:")) snprintf(name, sizeof name, "%s", file);
        else encoder_stem(path, name, sizeof name);
        how.path = path;
        how.mmproj = NULL;
        how.loras = NULL;
        how.n_lora = 0;
        how.plan.engine.draft = NULL;
        how.quiet = true;
        if (!rc) rc = catalog_add_model(catalog, *r, name, &how, e);
    }
    return rc;
}

struct more_metrics {
    struct odo *odo; /* borrowed; NULL: not served */
    bool has_nights;
    struct serve_night_counts nights;
};
static void put_metrics(void *ud, struct buf *out) {
    struct more_metrics *m = ud;
    if (m->odo) odo_metrics(m->odo, out);
    if (m->has_nights) serve_night_metrics(&m->nights, out);
}

static int serve_model(struct chat_rig *r, struct serve_reload *reload, struct serve_params *p,
                       struct err *e) {
    const struct cfg *c = reload->c;
    struct backend_model model = {.m = r->m,
                                  .gguf = r->loaded.gguf,
                                  .engine = r->engine,
                                  .vision = r->loaded.vision,
                                  .tok = r->tok,
                                  .template = r->template,
                                  .loras = r->loras,
                                  .n_lora = r->n_lora,
                                  .n_seq = load_n_seq(&r->loaded),
                                  .template_context = r->template_kwargs,
                                  .engram_dir = cfg_str(c, "engram-dir"),
                                  .shared_dir = cfg_str(c, "shared-states")};
    int rc = cfg_bool(c, "night") ? learned_new(&model.learned, e) : 0;
    if (rc) return rc;
    reload->always_thinks = json_is_true(json_object_get(r->template_kwargs, "enable_thinking"));
    p->think |= reload->always_thinks;
    char name[128];
    struct backend *backend;
    struct server *s;
    name_of(c, name, sizeof name);
    rc = backend_local_new(&backend, &model, name, e);
    if (rc) {
        learned_free(model.learned);
        return rc;
    }
    struct catalog *catalog = NULL;
    struct odo_rig odo = {0};
    struct serve_night *night = NULL;
    const char *const *aliases;
    size_t n_alias = cfg_list(c, "alias", &aliases);
    rc = catalog_new(&catalog, e);
    if (!rc) rc = catalog_add(catalog, backend, NULL, e);
    if (!rc) catalog_alias(catalog, aliases, n_alias, cfg_str(c, "model"));
    p->catalog = catalog;
    p->store = r->store;
    bool listed = !rc;
    if (!rc && cfg_bool(c, "odo")) rc = odo_rig_open(&odo, c, backend, e);
    if (listed && rc && cfg_origin(c, "odo") == CFG_DEFAULT &&
        /* the user did not ask for the orchestrator, so the model itself is served */
        !odo_args_are_given(c)) {
        log_warn("serving without the orchestrator: %s", e->text);
        *e = (struct err){0};
        rc = 0;
    }
    if (odo.odo) {
        rc = odo_register(odo.odo, catalog, e);
        p->odo = odo.odo;
    }
    struct more_metrics more = {.odo = odo.odo, .has_nights = cfg_bool(c, "night")};
    p->metrics = put_metrics, p->metrics_ud = &more;
    if (!rc) rc = open_others(c, &p->models, catalog, e);
    p->n_learn = cfg_list(c, "learn", &p->learn);
    if (!rc && p->n_learn) rc = odo_args_store(c, &p->learn_store, e);
    if (!rc && more.has_nights)
        rc = serve_night_open(&night, c, r, &odo, model.learned, &more.nights, e);
    if (!rc) rc = serve_open(&s, p, e);
    if (!rc) {
        announce(p, serve_port(s), backend->name, model.n_seq);
        rc = serve_on(reload, s, p, r->engine, e);
        log_info(reload->starts_again ? "starting again" : "stopping");
        /* the night must release the engine before the last answers end */
        serve_night_close(night);
        night = NULL;
        serve_close(s);
    }
    serve_night_close(night);
    store_close(p->learn_store);
    p->learn_store = NULL;
    catalog_free(catalog);
    models_free(p->models);
    odo_rig_close(&odo);
    backend->ops->close(backend);
    learned_free(model.learned);
    p->catalog = NULL;
    p->metrics = NULL;
    return rc;
}

/* dev: has allocated what the plan counts; the processor's device does not count. */
static void show_card(struct buf *b, const char *name, struct layer_part part,
                      const struct memory_plan *plan, const struct dev *dev) {
    struct dev_stats s = {.bytes_used = 0};
    if (name) buf_printf(b, "%s: ", name);
    if (part.end) buf_printf(b, "layers %d to %d of ", part.first, part.end - 1);
    plan_print(plan, b);
    if (dev && dev->ops->stats) dev->ops->stats(dev, &s);
    if (s.bytes_used && plan->is_device)
        buf_printf(b, "  allocated    %.3f GB, planned %.3f GB: %+.1f %%\n",
                   (double)s.bytes_used * 1e-9, (double)plan->total_bytes * 1e-9,
                   100 * ((double)s.bytes_used / (double)plan->total_bytes - 1));
}

static const char *split_text(const struct loaded *l) {
    return l->n_engine > 1 ? "a part of the layers on each: they compute for different sequences"
           : l->part.end   ? "a part of the layers on each: they compute one after the other"
           : l->is_split   ? "a slice of every layer on each: they compute at the same time"
                           : "a replica on each: all of the model fits each of them";
}

static void show_whole(struct buf *b, const struct model_slice *s) {
    char text[128];
    slice_whole_kinds(s, text, sizeof text);
    if (*text) buf_printf(b, "not cut: %s; each layer's on one card, in turn\n", text);
}

/* How slices on several cards exchange results, by the measurement at the start. */
static void show_link(struct buf *b, const struct engine *g) {
    struct link_stats s[TEAM_MAX];
    if (!g || !team_links(g, s)) return;
    buf_printf(b, "link: %s", s[0].is_peer ? "direct" : "through the host");
    if (s[0].host_us[0] > 0)
        buf_printf(b,
                   "; a short sum takes %.1f us directly, %.1f us through the host, the longest "
                   "%.0f and %.0f us",
                   s[0].peer_us[0], s[0].host_us[0], s[0].peer_us[1], s[0].host_us[1]);
    buf_puts(b, "\n");
}

/* Prints the placement and memory plan at the start, before the first request. */
static void show_plan(const struct loaded *l) {
    struct buf b;
    buf_init(&b, 1 << 16);
    if (l->why) buf_printf(&b, "%s\n", l->why);
    if (l->n_replica) buf_printf(&b, "%d cards, %s\n", 1 + l->n_replica, split_text(l));
    if (l->model && l->model->slice) show_whole(&b, l->model->slice);
    show_link(&b, l->engine);
    show_card(&b, l->n_replica ? l->card : NULL, l->part, &l->plan, l->dev);
    for (int32_t i = 0; i < l->n_replica; i++)
        show_card(&b, l->replicas[i].name, l->replicas[i].part, &l->replicas[i].plan,
                  l->replicas[i].dev);
    if (b.n) fputs(b.p, stderr);
    buf_fini(&b);
}

static int is_key(void *ud, const struct store_key *k) {
    (void)ud, (void)k;
    return 1;
}

struct audio_bases {
    char stt[REMOTE_MAX_BASE], tts[REMOTE_MAX_BASE];
};

static int read_audio(const struct cfg *c, struct audio_bases *a, struct serve_params *p,
                      struct err *e) {
    int rc = 0;
    if (cfg_str(c, "stt-url")) {
        rc = remote_base(c, "stt-url", a->stt, e);
        p->stt_url = a->stt;
    }
    if (!rc && cfg_str(c, "tts-url")) {
        rc = remote_base(c, "tts-url", a->tts, e);
        p->tts_url = a->tts;
    }
    p->audio_key = cfg_str(c, "audio-key");
    return rc;
}

static int run(struct serve_reload *reload, int *status, struct err *e) {
    const struct cfg *c = reload->c;
    int32_t n_seq = slots(c);
    char *keys = NULL, *cert = NULL, *key = NULL, slots_dir[4096];
    struct audio_bases audio;
    struct chat_rig r;
    struct encoder_rig encoder = {.dev = NULL}, ranker = {.dev = NULL};
    struct serve_params p = {
        .ollama = cfg_bool(c, "ollama"),
        .verbose = cfg_bool(c, "verbose"),
        .metrics_compat = compat_named(cfg_str(c, "metrics-compat")),
        .port = reload->port ? reload->port : (int)cfg_int(c, "port"),
        .max_body_bytes = cfg_bytes(c, "max-body"),
        .max_bodies_bytes = cfg_bytes(c, "max-bodies"),
        .max_connections = take_descriptors((int)cfg_int(c, "max-connections")),
        .max_per_address = (int)cfg_int(c, "max-per-address"),
        .max_half_open = (int)cfg_int(c, "max-half-open"),
        .max_waiting = (int)cfg_int(c, "queue"),
        .timeout_s = (int)cfg_int(c, "timeout"),
        .idle_s = (int)cfg_int(c, "idle-timeout"),
        .receive_s = (int)cfg_int(c, "receive-timeout"),
        .ping_s = (int)cfg_int(c, "ping"),
        .grace_s = (int)cfg_int(c, "grace"),
        .think = cfg_bool(c, "think"),
        .no_studio = !cfg_bool(c, "studio"),
        .metrics_open = cfg_bool(c, "metrics-open"),
        .keep_days = (int32_t)cfg_int(c, "keep-days"),
        .keep_bytes = (int64_t)cfg_bytes(c, "keep-size"),
        .no_store_keys = !cfg_bool(c, "keys"),
        .models_dir = cfg_str(c, "models-dir"),
        .vram_bytes = cfg_is_set(c, "vram") ? cfg_bytes(c, "vram") : 0,
        .ram_bytes = cfg_is_set(c, "ram") ? cfg_bytes(c, "ram") : 0,
        .expert_slots = cfg_bool(c, "expert-slots"),
        .engram_dir = cfg_str(c, "engram-dir"),
        .hub_endpoint = cfg_str(c, "hf-endpoint"),
        .hub_token = cfg_str(c, "hf-token"),
        .scope = scope_named(cfg_str(c, "cache-scope")),
    };
    const char *state_dir = cfg_str(c, "state-dir");
    if (state_dir &&
        (size_t)snprintf(slots_dir, sizeof slots_dir, "%s/slots", state_dir) < sizeof slots_dir)
        p.slots_dir = slots_dir;
    p.n_origin = cfg_list(c, "cors", &p.origins);
    const char *hosts[MAX_HOSTS];
    int rc = list_hosts(c, hosts, &p, e);
    if (rc) return rc;
    p.n_allowed_host = cfg_list(c, "allowed-host", &p.allowed_hosts);
    if (!cfg_str(c, "tls-cert") != !cfg_str(c, "tls-key"))
        return err_set(e, CHIMERE_EINVAL, "--tls-cert and --tls-key: expected both or neither");
    rc = check_gpus(c, e);
    if (!rc) rc = read_audio(c, &audio, &p, e);
    if (!rc) rc = read_defaults(c, &p.defaults, e);
    if (!rc) rc = serve_keys_read(c, &keys, e);
    if (!rc) rc = read_option(c, "tls-cert", &cert, e);
    if (!rc) rc = read_option(c, "tls-key", &key, e);
    serve_keys_warn(cfg_str(c, "tls-key"));
    p.keys = keys;
    p.tls_cert = cert;
    p.tls_key = key;
    if (!rc && cfg_bool(c, "check")) *status = serve_check_all(c, &p, n_seq);
    bool opens = !rc && !cfg_bool(c, "check");
    if (opens) rc = chat_rig_open(&r, c, n_seq, e);
    const struct curated *best =
        rc == CHIMERE_ELIMIT ? recommend_best(plan_available_bytes()) : NULL;
    if (best) {
        char hint[sizeof e->hint];
        snprintf(hint, sizeof hint, "%s", e->hint);
        err_hint(e, "%.80s; or a model that fits here: chimere serve -m %s", hint, best->name);
    }
    if (opens && !rc) {
        bool asks = keys || (cfg_bool(c, "keys") && r.store &&
                             store_key_list(r.store, is_key, NULL, NULL) > 0);
        warn_if_open(&p, asks);
        if (!cfg_bool(c, "quiet")) show_plan(&r.loaded);
        p.dev = r.loaded.dev;
        rc = encoder_rig_embed(&encoder, c, "embedding-model", &p.embed, e);
        if (!rc) rc = encoder_rig_open(&ranker, c, "rerank-model", e);
        if (!rc && ranker.m) rc = rerank_open(&p.rerank, ranker.m, ranker.tok, 0, e);
        p.embed_name = encoder.name;
        p.rerank_name = ranker.name;
        if (!rc) rc = serve_model(&r, reload, &p, e);
        embed_close(p.embed);
        rerank_close(p.rerank);
        encoder_rig_close(&encoder);
        encoder_rig_close(&ranker);
        chat_rig_close(&r);
    }
    json_decref(p.defaults);
    serve_keys_forget(keys);
    serve_keys_forget(key);
    mem_free(cert);
    return rc;
}

/* ---- starting again: a process cannot use a card that it has lost, but a new one may ---- */

static const char again_flag[] = "--restarted"; /* N:PORT, only as the first option */

/* Reads and removes what the process before this one has left. */
static void read_again(struct serve_reload *r) {
    int n, port;
    if (r->argc < 3 || strcmp(r->argv[1], again_flag) != 0) return;
    if (sscanf(r->argv[2], "%d:%d", &n, &port) == 2 && n > 0 && port >= 0 && port <= 65535) {
        r->n_restart = n;
        r->port = port;
    }
    r->argv[2] = r->argv[0];
    r->argv += 2;
    r->argc -= 2;
}

static int start_again(const struct serve_reload *r, struct err *e) {
    char state[32], *name = r->argv[0];
    char **argv = mem_alloc_array((size_t)r->argc + 4, sizeof *argv);
    if (!argv) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    snprintf(state, sizeof state, "%d:%d", r->n_restart + 1, r->port);
    argv[0] = "chimere";
    argv[1] = name;
    argv[2] = (char *)again_flag;
    argv[3] = state;
    for (int i = 1; i <= r->argc; i++) argv[3 + i] = r->argv[i]; /* the last is NULL */
    os_run_again(argv);
    mem_free(argv);
    return err_set(e, CHIMERE_EUNSUPPORTED, "the program cannot start itself again");
}

/* Cards that do not answer after a restart are left out, if the others can hold the model. */
static int keep_answering(const struct serve_reload *r, struct cfg *c, struct err *e) {
    char list[64];
    if (!r->n_restart || !cfg_str(c, "gpus")) return 0;
    int rc = gpus_answering(cfg_str(c, "gpus"), list, sizeof list, e);
    return rc ? rc : cfg_set(c, "gpus", list, e);
}

/* If the model cannot be opened again, the next attempt is after a pause, which a signal ends. */
static int run_again(struct serve_reload *r, struct cfg *c, int *status, struct err *e) {
    int64_t start = clock_ns();
    int rc = keep_answering(r, c, e);
    if (!rc) rc = run(r, status, e);
    if (r->starts_again && clock_ms_since(start) > SERVE_STEADY_MS) r->n_restart = 0;
    int32_t pause = serve_watch_pause_ms(r->n_restart);
    if (rc && r->n_restart && pause >= 0) {
        sigset_t set;
        struct serve_watch *watch;
        int got = 0;
        log_error("%s; the next attempt is in %d s", e->text, pause / 1000);
        if (serve_watch_open(&watch, NULL, pause, e)) return rc;
        signals(&set);
        while (!sigwait(&set, &got) && got == SIGHUP) continue;
        serve_watch_close(watch);
        r->starts_again = got == SIGUSR1;
    }
    return r->starts_again ? start_again(r, e) : rc;
}

int cmd_serve(int argc, char **argv) {
    struct cfg *c;
    int status;
    /* glibc raises this threshold itself with each large block that is freed. Saved states, which are allocated
     * and freed by the thousand, then fragment the heap: 240 MB after 2,000 requests that hold 190. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    struct serve_reload reload = {.usage = serve_usage, .argc = argc, .argv = argv};
    read_again(&reload);
    if (!cli_parse(&c, serve_options, serve_usage, reload.argc, reload.argv, &status))
        return status;
    struct err e = {0};
    sigset_t set;
    signals(&set);
    /* blocked in every thread; wait_for_signal receives them */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    reload.c = c;
    int rc = model_args_talk(c, &e);
    if (!rc) rc = draft_args_take(c, &e);
    if (!rc && cfg_str(c, "store") && !cfg_str(c, "db")) /* also for the orchestrator */
        rc = cfg_set(c, "db", cfg_str(c, "store"), &e);
    status = 0;
    if (!rc) rc = run_again(&reload, c, &status, &e);
    cfg_free(c);
    return rc ? cli_fail(&e) : status;
}
