/* api_server.c: chimere.h's server, for models that are already open. */
#include "api/api_impl.h"
#include "serve/serve.h"

enum { MAX_MODELS = 64 };

struct chimere_server {
    struct server *server;   /* owned */
    struct catalog *catalog; /* owned */
};

void chimere_server_options_init(struct chimere_server_options *o) {
    *o = (struct chimere_server_options){.size = sizeof *o};
}

int chimere_server_open(struct chimere_server **out, struct chimere_model *const *models,
                        size_t n_model, const struct chimere_server_options *theirs,
                        struct chimere_error *e) {
    struct chimere_server_options o;
    *out = NULL;
    chimere_server_options_init(&o);
    if (theirs && !api_take_options(&o, sizeof o, theirs))
        return err_set(api_err(e), CHIMERE_EINVAL,
                       "options: call chimere_server_options_init first");
    if (n_model < 1 || n_model > MAX_MODELS)
        return err_set(api_err(e), CHIMERE_EINVAL, "models: expected 1 to %d, got %zu", MAX_MODELS,
                       n_model);
    if (o.port < 0 || o.port > 65535)
        return err_set(api_err(e), CHIMERE_EINVAL, "port: expected 0 to 65535, got %d", o.port);
    struct chimere_server *s = mem_zalloc(sizeof *s);
    int rc = s ? catalog_new(&s->catalog, api_err(e))
               : err_set(api_err(e), CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < n_model; i++)
        rc = catalog_add(s->catalog, models[i]->backend, NULL, api_err(e));
    if (!rc) {
        const struct serve_params p = {.host = o.host ? o.host : "127.0.0.1",
                                       .port = o.port,
                                       .catalog = s->catalog,
                                       .keys = o.keys};
        rc = serve_open(&s->server, &p, api_err(e));
    }
    if (rc) chimere_server_close(s);
    else *out = s;
    return rc;
}

int chimere_server_port(const struct chimere_server *s) { return serve_port(s->server); }

void chimere_server_close(struct chimere_server *s) {
    if (!s) return;
    if (s->server) serve_close(s->server);
    catalog_free(s->catalog);
    mem_free(s);
}
