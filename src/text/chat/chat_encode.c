/* chat_encode.c: encodes a rendered prompt. Control tokens are only recognised in bytes of the template. */
#include <string.h>

#include "base/mem.h"
#include "text/chat/chat.h"

enum { MAX_MARKS = 4096 };

/* The texts of all control tokens. */
struct marks {
    int32_t ids[MAX_MARKS];
    int32_t n;
    uint8_t first[256]; /* whether a mark begins with this byte */
};

static void list_marks(const struct tok *tok, struct marks *m) {
    memset(m, 0, sizeof *m);
    for (uint32_t id = 0; id < tok_n_vocab(tok) && m->n < MAX_MARKS; id++) {
        enum tok_kind kind = tok_kind(tok, (int32_t)id);
        struct slice s = tok_piece(tok, (int32_t)id);
        if ((kind != TOK_CONTROL && kind != TOK_UNKNOWN) || !s.n) continue;
        m->ids[m->n++] = (int32_t)id;
        m->first[(unsigned char)s.p[0]] = 1;
    }
}

/* Finds the longest mark that begins at text[0] and fits in n bytes; -1: none. */
static int32_t mark_at(const struct tok *tok, const struct marks *m, const char *text, size_t n,
                       size_t *len) {
    int32_t best = -1;
    *len = 0;
    if (!n || !m->first[(unsigned char)text[0]]) return -1;
    for (int32_t i = 0; i < m->n; i++) {
        struct slice s = tok_piece(tok, m->ids[i]);
        if (s.n <= *len || s.n > n || memcmp(s.p, text, s.n)) continue;
        *len = s.n;
        best = m->ids[i];
    }
    return best;
}

struct ids {
    int32_t *p; /* owned */
    size_t n, cap;
};

static int append(struct ids *out, const int32_t *p, size_t n) {
    if (out->n + n > out->cap) {
        size_t cap = (out->n + n) * 2 + 64;
        int32_t *grown = mem_realloc(out->p, cap * sizeof *grown);
        if (!grown) return CHIMERE_ENOMEM;
        out->p = grown;
        out->cap = cap;
    }
    if (n) memcpy(out->p + out->n, p, n * sizeof *p);
    out->n += n;
    return 0;
}

static int append_text(const struct tok *tok, const char *text, size_t n, bool bos, struct ids *out,
                       struct err *e) {
    int32_t *part = NULL;
    size_t n_part = 0;
    int rc = n || bos ? tok_encode(tok, text, n, false, bos, &part, &n_part, e) : 0;
    if (!rc && bos) { /* keep only the BOS: an EOS must not precede the answer */
        size_t keep = n_part && part[0] == tok_bos(tok) ? 1 : 0;
        n_part = keep;
    }
    if (!rc && append(out, part, n_part)) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(part);
    return rc;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

int chat_encode_range(const struct tok *tok, const struct chat_prompt *p, size_t from, size_t to,
                      int32_t **ids, size_t *n, struct err *e) {
    *ids = NULL;
    *n = 0;
    struct marks *m = mem_alloc(sizeof *m);
    if (!m) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    list_marks(tok, m);
    const char *text = p->out.text.p ? p->out.text.p : "";
    struct ids out = {NULL, 0, 0};
    int rc = from ? 0 : append_text(tok, "", 0, true, &out, e);
    bool has_bos = out.n == 1;
    size_t plain = from, at = 0; /* plain: start of the text that is not encoded yet */
    for (size_t r = 0; !rc && at < to && r < p->out.n_run; r++) {
        size_t end = at + p->out.runs[r].n;
        if (!p->out.runs[r].is_template || end <= from) {
            at = end;
            continue;
        }
        if (at < from) at = from;
        size_t begin = at, run_end = end;
        if (end > to) end = to;
        while (!rc && at < end) {
            size_t len;
            int32_t id = mark_at(tok, m, text + at, end - at, &len);
            if (id < 0) {
                at++;
                continue;
            }
            /* Some models' control tokens remove white space next to them. Here only white space of the template
             * is removed. */
            unsigned strips = tok_strips(tok, id);
            size_t stop = at;
            while ((strips & TOK_STRIP_LEFT) && stop > begin && is_space(text[stop - 1])) stop--;
            rc = append_text(tok, text + plain, stop - plain, false, &out, e);
            bool again =
                has_bos && id == tok_bos(tok) && at == 0; /* the template already wrote the BOS */
            if (!rc && !again && append(&out, &id, 1))
                rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
            at += len;
            while ((strips & TOK_STRIP_RIGHT) && at < end && is_space(text[at])) at++;
            plain = begin = at;
        }
        at = run_end;
    }
    if (!rc && plain < to) rc = append_text(tok, text + plain, to - plain, false, &out, e);
    mem_free(m);
    if (rc) {
        mem_free(out.p);
        return rc;
    }
    *ids = out.p;
    *n = out.n;
    return 0;
}

int chat_encode(const struct tok *tok, const struct chat_prompt *p, int32_t **ids, size_t *n,
                struct err *e) {
    return chat_encode_range(tok, p, 0, p->out.text.n, ids, n, e);
}
