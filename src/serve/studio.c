#include "serve/studio.h"

#include <string.h>

#include "base/str.h"
#include "serve/http/http_impl.h"
#include "serve/health.h"

/* Scripts and styles come only from this server and are never inline. So if text of a model became markup by mistake,
 * it still could not run or send anything. Trusted types: only DOMPurify may turn text into markup. */
static const char page_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:;"
    " font-src 'self'; connect-src 'self'; media-src 'self' blob:; manifest-src 'self';"
    " worker-src 'self'; frame-src 'self'; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script';"
    " trusted-types dompurify studio";

/* The frame that shows HTML and SVG from a model, with their scripts. It has its own origin and no network access. The
 * page's frame-src prevents the frame from navigating to another address. */
static const char frame_policy[] =
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline';"
    " style-src 'unsafe-inline'; img-src data: blob:; media-src data: blob:; font-src data:;"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'self'; webrtc 'block'";

static const struct {
    const char *suffix, *type;
} types[] = {
    {".html", "text/html; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".svg", "image/svg+xml"},
    {".png", "image/png"},
    {".webmanifest", "application/manifest+json"},
    {".txt", "text/plain; charset=utf-8"},
    {".json", "application/json"},
};

static const char *type_of(const char *path) {
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t k = strlen(types[i].suffix);
        if (n > k && strcmp(path + n - k, types[i].suffix) == 0) return types[i].type;
    }
    return "application/octet-stream";
}

static const struct studio_file *find(const char *path) {
    for (const struct studio_file *f = studio_files; f->path; f++)
        if (strcmp(f->path, path) == 0) return f;
    return NULL;
}

static void put_headers(struct http_request *r, const struct studio_file *f, bool body) {
    bool hashed = str_starts(f->path, "assets/");
    bool frame = strcmp(f->path, "artifact.html") == 0;
    struct buf h;
    buf_init(&h, 8192);
    buf_printf(&h, "ETag: %s\nCache-Control: %s\nContent-Security-Policy: %s\n", f->etag,
               hashed ? "public, max-age=31536000, immutable" : "no-cache",
               frame ? frame_policy : page_policy);
    buf_puts(&h, "X-Content-Type-Options: nosniff\nReferrer-Policy: no-referrer\n"
                 "Cross-Origin-Opener-Policy: same-origin\n"
                 "Cross-Origin-Resource-Policy: same-origin\n"
                 "Permissions-Policy: geolocation=(), camera=(), microphone=(self)\n"
                 "X-DNS-Prefetch-Control: off\n"
                 "Vary: Accept, Accept-Encoding");
    if (strcmp(f->path, "sw.js") == 0) buf_puts(&h, "\nService-Worker-Allowed: /");
    if (body) buf_puts(&h, "\nContent-Encoding: gzip");
    http_headers(r, &h);
    buf_fini(&h);
}

static void send_file(struct http_request *r, const struct studio_file *f) {
    const char *known = http_header(r, "If-None-Match"),
               *coding = http_header(r, "Accept-Encoding");
    bool same = known && strstr(known, f->etag);
    struct buf out;
    buf_init(&out, (size_t)8 << 20);
    /* A client without Accept-Encoding accepts any coding (RFC 9110, 12.5.3). A client that accepts only others gets an
     * error. */
    if (!same && coding && !strstr(coding, "gzip") && !strchr(coding, '*')) {
        struct err e;
        err_set(&e, CHIMERE_EUNSUPPORTED, "Accept-Encoding: expected gzip");
        reply_error(r, 406, &e);
        return;
    }
    put_headers(r, f, !same);
    if (same) {
        http_reply(r, 304, type_of(f->path), &out);
    } else {
        buf_put(&out, (const char *)f->from, (size_t)(f->to - f->from));
        http_reply(r, 200, type_of(f->path), &out);
    }
    buf_fini(&out);
}

void studio_home(struct http_request *r) {
    const char *accept = http_header(r, "Accept");
    const struct studio_file *page = r->s->p.no_studio ? NULL : find("index.html");
    if (page && accept && strstr(accept, "text/html")) send_file(r, page);
    else health_ok(r);
}

void studio_asset(struct http_request *r) {
    const struct studio_file *f = r->s->p.no_studio ? NULL : find(http_rest(r));
    struct err e;
    if (f) {
        send_file(r, f);
        return;
    }
    err_set(&e, CHIMERE_ENOENT, "there is no %.200s", r->path);
    http_fail(r, &e);
}
