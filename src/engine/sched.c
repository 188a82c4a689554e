/* sched.c: chooses what runs in each step. A request passes from engine_submit to here, and then to model/forward.c. */
#include "engine/sched.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/carried.h"
#include "engine/ngram_memory.h"
#include "engine/draft/suffix.h"
#include "engine/team_impl.h"

/* Path of the suffix store's file, in the folder of the saved states. Returns false if there is no such folder. */
static bool suffix_path(const struct sched *s, char *out, size_t size) {
    const struct cache_params *c = &s->p.cache;
    return s->spec.store && s->state_dir && c->disk_bytes > SUFFIX_BYTES &&
           (size_t)snprintf(out, size, "%s/suffix-%016llx.bin", s->state_dir,
                            (unsigned long long)s->lm->layout) < size;
}

static void load_suffixes(struct sched *s) {
    char path[4096];
    struct err e = {0};
    if (suffix_path(s, path, sizeof path) && file_exists(path) &&
        suffix_load(s->spec.store, path, s->lm->layout, &e))
        log_warn("drafts begin without what earlier texts taught: %s", e.text);
}

static void save_suffixes(struct sched *s) {
    char path[4096];
    struct err e = {0};
    if (s->spec.n_round && suffix_path(s, path, sizeof path) &&
        suffix_save(s->spec.store, path, s->lm->layout, &e))
        log_warn("drafts: %s", e.text);
}

/* Longest draft per sequence and step: of the model drafter, and of the text sources. */
static int32_t model_max(const struct sched *s) {
    if (s->p.n_draft_max > 0) return s->p.n_draft_max;
    return s->lm->drafter && s->lm->drafter->n_max > 0 ? s->lm->drafter->n_max : LM_N_DRAFT;
}
static int32_t text_max(const struct sched *s) { return spec_most_drafted(s->p.n_draft_max); }

int sched_init(struct sched *s, struct lm *lm, const struct tok *tok, const struct engine_params *p,
               struct err *e) {
    *s = (struct sched){.lm = lm, .tok = tok, .p = *p};
    s->p.cache.dir = NULL;
    if (p->cache.dir) s->state_dir = mem_strdup(p->cache.dir);
    size_t n = (size_t)p->n_seq;
    s->active = mem_alloc_array(n, sizeof *s->active);
    s->runs = mem_alloc_array(n, sizeof *s->runs);
    s->owner = mem_alloc_array(n, sizeof *s->owner);
    s->n_kept = mem_alloc_array(n, sizeof *s->n_kept);
    s->follow = mem_alloc_array(n, sizeof *s->follow);
    s->verify = mem_alloc_array(n * STEP_MAX_TOK, sizeof *s->verify);
    s->drafts = mem_alloc_array(n, sizeof *s->drafts);
    s->offers = mem_alloc_array(SPEC_MAX_SEQS, sizeof *s->offers);
    bool ok = s->active && s->runs && s->owner && s->n_kept && s->follow && s->verify &&
              s->drafts && s->offers && (s->state_dir || !p->cache.dir);
    int rc = ok ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = spec_init(&s->spec, lm->n_vocab, p->deterministic, p->speculate, e);
    if (!rc) s->spec.n_model_max = model_max(s);
    if (!rc) rc = sched_open_rows(s, e);
    if (!rc) rc = sched_open_cache(s, e);
    if (!rc) load_suffixes(s);
    if (rc) sched_fini(s);
    return rc;
}

void sched_fini(struct sched *s) {
    prefix_free(s->prefix);
    save_suffixes(s);
    sched_close_rows(s);
    mem_free(s->state_dir);
    mem_free(s->active);
    mem_free(s->runs);
    mem_free(s->owner);
    mem_free(s->n_kept);
    mem_free(s->follow);
    mem_free(s->verify);
    mem_free(s->drafts);
    mem_free(s->offers);
    spec_fini(&s->spec);
    *s = (struct sched){.lm = NULL};
}

/* ---- work that callbacks postpone ---- */

/* NULL: no tokens are being reported on this thread */
static _Thread_local struct engine_later **later_end;

void engine_later(struct engine_later *l) {
    if (!later_end) {
        l->fn(l);
        return;
    }
    l->next = NULL;
    *later_end = l;
    later_end = &l->next;
}

static void run_later(struct engine_later *first) {
    later_end = NULL;
    int guarded = mem_guard_lift();
    for (struct engine_later *l = first, *next; l; l = next) {
        next = l->next;
        l->fn(l);
    }
    mem_guard_restore(guarded);
}

/* ---- end and start of a job ---- */

static void finish_job(struct sched *s, struct engine_job *j, enum finish finish) {
    j->finish = finish;
    s->totals.n_job++;
    if (finish == FINISH_ERROR) s->totals.n_failed++;
    int guarded = mem_guard_lift();
    carried_drop(j);
    team_ended(j);
    j->on_done(j); /* the caller may free the job's memory from here on */
    mem_guard_restore(guarded);
}

/* The job leaves its slot, and its sampler was freed or moves with it. */
static void detach(struct active *a) {
    a->engram = NULL;
    a->spec.engram = NULL;
    a->sampler = NULL;
    a->job = NULL;
    a->prompt = NULL;
    a->phase = PHASE_CLOSING;
}

static void retire(struct sched *s, struct active *a, enum finish finish) {
    struct engine_job *j = a->job;
    int64_t now = clock_ns();
    if (a->decode_ns) j->stats.decode_ms = (double)(now - a->decode_ns) * 1e-6;
    sampler_think_stats(a->sampler, &j->stats.think);
    sampler_free(a->sampler);
    engram_mixer_free(a->engram);
    detach(a);
    a->is_kept &= finish != FINISH_ERROR; /* a failed step leaves no valid state */
    finish_job(s, j, finish);
}

/* A job moves once: if it is the job that makes cards fail, the others must survive it. The probabilities of its
 * prompt were reported in part, so such a job does not move. */
static bool may_move(const struct sched *s, const struct engine_job *j) {
    return j->team && !j->carried && !j->p.prompt_probs && !s->lm->is_split;
}

/* Passes the job to another card if this one is lost. After that, the job belongs to the other engine's thread. */
static bool move(struct sched *s, struct active *a) {
    struct engine_job *j = a->job;
    if (!may_move(s, j)) return false;
    int guarded = mem_guard_lift();
    struct carried *c = j->carried = carried_new(a->spec.history, a->spec.n_history);
    bool moved = false;
    if (c) {
        c->sampler = a->sampler;
        c->engram = a->engram;
        c->start_ns = a->start_ns;
        c->decode_ns = a->decode_ns;
        moved = team_move(j, c->n);
    }
    if (c && !moved) { /* the slot keeps them */
        c->sampler = NULL;
        c->engram = NULL;
        carried_drop(j);
    }
    mem_guard_restore(guarded);
    if (!moved) return false;
    detach(a);
    a->is_kept = false;
    return true;
}

void sched_fail(struct sched *s, struct active *a, const struct err *e) {
    a->job->err = *e;
    if (s->lm->is_split && (e->code == CHIMERE_EDEVICE || e->code == CHIMERE_ETIMEOUT))
        s->is_lost = true;
    if (!move(s, a)) retire(s, a, FINISH_ERROR);
}

static int64_t ctx_limit(const struct sched *s) {
    return s->p.n_ctx_seq > 0 && s->p.n_ctx_seq < s->lm->n_ctx ? s->p.n_ctx_seq : s->lm->n_ctx;
}

/* Positions to reserve: prompt, answer, drafts, and the page that may be copied if sequences share it. */
static int64_t ctx_wanted(const struct sched *s, const struct engine_job *j) {
    int64_t limit = ctx_limit(s),
            want = (int64_t)j->p.n_prompt + (j->p.max_tokens > 0 ? j->p.max_tokens : limit);
    if (want > limit) want = limit;
    want = (want + KV_PAGE - 1) / KV_PAGE * KV_PAGE + (s->p.speculate ? KV_PAGE : 0);
    return want < s->lm->n_ctx ? want : s->lm->n_ctx;
}

/* Fills the sampler's history with the text after the last image: the ids of image rows are not text. */
static int prime(struct active *a, const struct engine_job *j, struct err *e) {
    const struct job_image *last = j->p.n_image ? &j->p.images[j->p.n_image - 1] : NULL;
    int32_t from = last ? last->at + last->n : 0;
    return sampler_prime(a->sampler, j->p.prompt + from, (size_t)(j->p.n_prompt - from), e);
}

static int new_sampler(struct sched *s, struct active *a, struct engine_job *j, struct err *e) {
    int rc = sampler_new(&a->sampler, &j->p.sampling, s->lm->n_vocab, s->tok, e);
    if (!rc && j->p.engram) {
        rc = engram_mixer_new(&a->engram, j->p.engram, s->lm->n_vocab, j->p.prompt, j->p.n_prompt,
                              e);
        const struct sampler_hook hook = ngram_memory_hook(a->engram);
        if (!rc) rc = sampler_add_hook(a->sampler, &hook);
    }
    return rc ? rc : prime(a, j, e);
}

static int seat(struct sched *s, struct active *a, struct engine_job *j, struct err *e) {
    struct carried *c = j->carried;
    int rc = s->lm->ops->seq_new(s->lm, &a->seq, e);
    a->prompt = c ? c->tokens : j->p.prompt;
    a->n_prompt = c ? c->n : j->p.n_prompt;
    if (!rc && !c) rc = new_sampler(s, a, j, e);
    int64_t more = ctx_limit(s) - a->n_prompt;
    if (j->p.max_tokens > 0 && j->p.max_tokens < more) more = j->p.max_tokens;
    if (!rc && spec_seq_init(&a->spec, a->prompt, a->n_prompt, (int32_t)more))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (rc || !c) return rc;
    a->sampler = c->sampler;
    a->engram = c->engram;
    a->start_ns = c->start_ns;
    a->decode_ns = c->decode_ns;
    c->sampler = NULL;
    c->engram = NULL;
    return 0;
}

bool sched_admit(struct sched *s, struct engine_job *j) {
    int64_t want = ctx_wanted(s, j);
    if (s->n_active == s->p.n_seq || s->n_ctx_held + want > s->lm->n_ctx) return false;
    struct active *a = s->active;
    while (a->phase != PHASE_FREE) a++;
    struct err e = {0};
    int rc = seat(s, a, j, &e);
    if (rc == CHIMERE_EBUSY) return false;
    if (rc) {
        if (a->seq) s->lm->ops->seq_free(s->lm, a->seq);
        sampler_free(a->sampler);
        engram_mixer_free(a->engram);
        spec_seq_fini(&a->spec);
        *a = (struct active){.phase = PHASE_FREE};
        j->err = e;
        finish_job(s, j, FINISH_ERROR);
        return true;
    }
    a->job = j;
    if (!j->carried) {
        a->start_ns = clock_ns();
        j->stats.queue_ms = (double)(a->start_ns - j->posted_ns) * 1e-6;
    }
    j->stats.n_prompt = j->p.n_prompt;
    a->n_ctx_held = want;
    a->keep_end = j->p.keep_end;
    a->spec.engram = a->engram;
    a->keep = j->p.keep.mass > 0 ? j->p.keep : s->p.keep;
    /* a draft would be verified before the entropies of its tokens are known */
    a->spec.off = !s->p.speculate || j->p.no_speculation || a->keep.all_at > 0;
    s->n_ctx_held += want;
    s->n_active++;
    a->spec.salt = hash_mix(j->p.scope + 1);
    bool pays = spec_begin(&s->spec, &a->spec) || s->p.deterministic;
    a->spec.follows = pays && s->lm->drafter && !a->spec.off;
    sched_begin_cached(s, a);
    return true;
}

void sched_cancel_all(struct sched *s) {
    for (int32_t i = 0; s->active && i < s->p.n_seq; i++)
        if (s->active[i].job) retire(s, &s->active[i], FINISH_CANCELLED);
}

/* ---- drafting ---- */

int32_t sched_n_in(const struct sched *s, enum phase phase) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->p.n_seq; i++) n += s->active[i].phase == phase;
    return n;
}

/* Number of tokens that may still be drafted for a, at most n_max, within its length limit. */
static int32_t draft_room(const struct sched *s, const struct active *a, int32_t n_max) {
    int64_t left = ctx_limit(s) - s->lm->ops->seq_pos(s->lm, a->seq) - 2;
    const struct engine_job *j = a->job;
    if (j->p.max_tokens > 0 && j->p.max_tokens - j->stats.n_generated - 1 < left)
        left = j->p.max_tokens - j->stats.n_generated - 1;
    return left < n_max ? (int32_t)(left < 0 ? 0 : left) : n_max;
}

/* Fills s->offers with the text drafts of all decoding sequences. Returns false if too many sequences decode, or none
 * may draft. */
static bool offer_all(struct sched *s, int32_t *who, int32_t *n) {
    bool any = false;
    *n = 0;
    for (int32_t i = 0; i < s->p.n_seq; i++) {
        struct active *a = &s->active[i];
        a->draft.n = a->draft.n_asked = 0;
        if (a->phase != PHASE_DECODE) continue;
        if (*n == SPEC_MAX_SEQS) any = false;
        if (*n == SPEC_MAX_SEQS) break;
        struct spec_offer *o = &s->offers[*n];
        *o = (struct spec_offer){.q = &a->spec};
        any |= !a->spec.off;
        if (!a->spec.off && !spec_rests(&s->spec)) {
            spec_draft_text(&s->spec, &a->spec, a->sampler, draft_room(s, a, text_max(s)),
                            &o->text);
            if (a->spec.follows) o->n_model_max = draft_room(s, a, model_max(s));
        }
        who[(*n)++] = i;
    }
    return any;
}

/* Runs the model drafter for the sequences that spec_choose selected for it. */
static void draft_by_model(struct sched *s, const int32_t *who, int32_t n, int32_t n_asked) {
    struct drafter *d = s->lm->drafter;
    int32_t whose[SPEC_MAX_SEQS], n_draft = 0;
    struct err e = {0};
    int64_t start = clock_ns();
    for (int32_t k = 0; k < n; k++) {
        const struct spec_offer *o = &s->offers[k];
        struct active *a = &s->active[who[k]];
        if (!o->model) continue;
        int32_t want = n_asked < o->n_model_max ? n_asked : o->n_model_max;
        s->drafts[n_draft] = (struct drafter_request){
            .seq = a->seq, .next = a->next, .n_draft = want, .min_p = 0.3f};
        a->draft = (struct spec_draft){.n_asked = want};
        whose[n_draft++] = who[k];
    }
    if (!n_draft) return;
    if (d->ops->draft(d, s->drafts, n_draft, &e)) {
        log_warn("drafting failed: %s", e.text);
        return;
    }
    for (int32_t k = 0; k < n_draft; k++) {
        struct spec_draft *draft = &s->active[whose[k]].draft;
        draft->n = s->drafts[k].n_draft;
        for (int32_t i = 0; i < draft->n; i++) {
            draft->tokens[i] = s->drafts[k].tokens[i];
            draft->source[i] = DRAFT_MODEL;
            draft->grade[i] = (uint8_t)i;
        }
    }
    s->draft_ms = clock_ms_since(start);
}

static void draft_all(struct sched *s) {
    int32_t who[SPEC_MAX_SEQS], n = 0;
    int64_t start = clock_ns();
    s->draft_ms = 0;
    s->n_asked = 0;
    bool any = offer_all(s, who, &n);
    s->spec.text_ms = s->cut_ms + clock_ms_since(start);
    s->spec.observe_ms = 0;
    if (!any) {
        for (int32_t i = 0; i < s->p.n_seq; i++) s->active[i].draft.n = 0;
        spec_pause(&s->spec);
        return;
    }
    s->n_asked = spec_choose(&s->spec, s->offers, n);
    for (int32_t k = 0; k < n; k++) {
        struct spec_offer *o = &s->offers[k];
        o->text.n = o->n_text;
        if (o->n_text) s->active[who[k]].draft = o->text;
    }
    if (s->n_asked) draft_by_model(s, who, n, s->n_asked);
}

/* ---- composition of the batch ---- */

static void add_decodes(struct sched *s, int32_t *n_run, int32_t *n_tok) {
    for (int32_t i = 0; i < s->p.n_seq; i++) {
        struct active *a = &s->active[i];
        if (a->phase != PHASE_DECODE) continue;
        int32_t *v = s->verify + (size_t)i * STEP_MAX_TOK;
        v[0] = a->next;
        memcpy(v + 1, a->draft.tokens, (size_t)a->draft.n * sizeof *v);
        s->runs[*n_run] =
            (struct batch_item){.seq = a->seq,
                                .tokens = v,
                                .n_tok = 1 + a->draft.n,
                                .defer = a->draft.n > 0 || (a->keep_end && s->p.speculate),
                                .want = WANT_ALL,
                                .loras = a->job->p.loras,
                                .n_lora = a->job->p.n_lora,
                                .keep = experts_keep_after(a->keep, a->entropy),
                                .no_taps = !a->spec.follows || !s->spec.observes};
        s->owner[(*n_run)++] = i;
        *n_tok += 1 + a->draft.n;
    }
}

/* Number of a's prompt tokens for this step. A chunk ends at a multiple of the scan grid. In deterministic mode, it
 * ends at a multiple of n_chunk from the start of the prompt, so that the text does not depend on other jobs. */
static int32_t chunk_of(const struct sched *s, const struct active *a, int32_t room,
                        bool decoding) {
    int32_t left = a->n_prompt - a->n_prefilled, n = left;
    if (s->p.deterministic) {
        int32_t cut = s->p.n_chunk - a->n_prefilled % s->p.n_chunk;
        if (n > cut) n = cut;
        return n <= room ? n : 0;
    }
    int32_t most = decoding && s->p.n_chunk < room ? s->p.n_chunk : room;
    if (n > most) {
        n = most;
        int32_t end = (a->n_prefilled + n) / SCAN_GRID * SCAN_GRID;
        if (end > a->n_prefilled) n = end - a->n_prefilled;
    }
    int32_t stop = sched_next_stop(s, a);
    return a->n_prefilled + n > stop ? stop - a->n_prefilled : n;
}

/* Chunk limit for a prompt whose rows are all wanted: the rows that the other sequences of this step leave. */
static int32_t rows_left(const struct sched *s, int32_t n_run) {
    int32_t n = s->lm->n_row_max ? s->lm->n_row_max : STEP_MAX_TOK;
    for (int32_t i = 0; i < n_run; i++)
        if (s->runs[i].want == WANT_ALL) n -= s->runs[i].n_tok;
    n -= sched_n_in(s, PHASE_PREFILL) - 1;
    return n < 0 ? 0 : n > STEP_MAX_TOK ? STEP_MAX_TOK : n;
}

/* The image that contains the token at pos, else the next image; NULL: neither exists. */
static const struct job_image *next_image(const struct engine_job *j, int32_t pos) {
    for (int32_t i = 0; i < j->p.n_image; i++)
        if (pos < j->p.images[i].at + j->p.images[i].n) return &j->p.images[i];
    return NULL;
}

/* Reduces n tokens of a's prompt to those that can run together: text only, or rows of one image. */
static int32_t cut_at_image(const struct active *a, const struct job_image *x, int32_t n,
                            int32_t room) {
    int32_t pos = a->n_prefilled;
    if (!x || n < 1) return n;
    if (pos < x->at) return pos + n > x->at ? x->at - pos : n;
    int32_t left = x->at + x->n - pos;
    if (x->is_whole) return left <= room ? left : 0;
    if (n > left) n = left;
    return n > x->most ? x->most : n;
}

static void add_prefills(struct sched *s, int32_t *n_run, int32_t *n_tok) {
    bool decoding = *n_run > 0;
    for (int32_t k = 0; k < s->p.n_seq; k++) {
        int32_t i = (s->turn + k) % s->p.n_seq;
        struct active *a = &s->active[i];
        if (a->phase != PHASE_PREFILL) continue;
        int32_t room = s->p.n_batch - *n_tok, n = chunk_of(s, a, room, decoding);
        const struct job_image *image = next_image(a->job, a->n_prefilled);
        n = cut_at_image(a, image, n, room);
        if (image && a->n_prefilled < image->at) image = NULL;
        bool probs = a->job->p.prompt_probs;
        if (probs && n > rows_left(s, *n_run)) n = rows_left(s, *n_run);
        if (n < 1) continue;
        bool last = a->n_prefilled + n == a->n_prompt;
        s->runs[*n_run] = (struct batch_item){.seq = a->seq,
                                              .tokens = a->prompt + a->n_prefilled,
                                              .n_tok = n,
                                              .want = probs  ? WANT_ALL
                                                      : last ? WANT_LAST
                                                             : WANT_NONE,
                                              .loras = a->job->p.loras,
                                              .n_lora = a->job->p.n_lora,
                                              .keep = a->keep,
                                              .no_taps = !a->spec.follows};
        if (image) {
            s->runs[*n_run].is_whole = image->is_whole;
            s->runs[*n_run].rows =
                image->rows + (size_t)(a->n_prefilled - image->at) * (size_t)image->width;
        }
        s->owner[(*n_run)++] = i;
        *n_tok += n;
    }
    s->turn = (s->turn + 1) % s->p.n_seq;
}

/* ---- after the batch ---- */

static bool is_end(const struct sched *s, const struct engine_job *j, int32_t token) {
    return s->tok && !j->p.sampling.ignore_eos && tok_is_eog(s->tok, token);
}

/* Samples from one row and reports the token. Returns false if the job has ended, and then no longer belongs to a, or
 * fails at the end of the step: it may move to another thread, and what it has postponed must run before that. */
static bool take_token(struct sched *s, struct active *a, int32_t row, int32_t *token) {
    struct engine_job *j = a->job;
    struct sampler_probs probs;
    bool with_probs = j->p.sampling.n_probs > 0, adapts = a->keep.all_at > 0;
    struct err e = {0};
    *token = sched_pick(s, a, row, with_probs || adapts ? &probs : NULL, &e);
    if (*token < 0) {
        if (!e.code)
            err_set(&e, *token, "the model's output is not a finite distribution (position %lld)",
                    (long long)s->lm->ops->seq_pos(s->lm, a->seq));
        j->err = e;
        a->fails = true;
        return false;
    }
    if (adapts) a->entropy = probs.entropy;
    sampler_accept(a->sampler, *token);
    spec_seq_push(&s->spec, &a->spec, *token);
    if (s->tok) spec_seq_read(&a->spec, tok_piece(s->tok, *token));
    bool end = is_end(s, j, *token);
    j->stats.n_generated++;
    s->totals.n_generated++;
    int guarded = mem_guard_lift();
    bool more = j->on_token(j, *token, end, with_probs ? &probs : NULL);
    mem_guard_restore(guarded);
    if (end || !more || sampler_is_done(a->sampler)) {
        retire(s, a, FINISH_STOP);
        return false;
    }
    int64_t limit = ctx_limit(s);
    if ((j->p.max_tokens > 0 && j->stats.n_generated >= j->p.max_tokens) ||
        j->p.n_prompt + (int64_t)j->stats.n_generated >= limit) {
        retire(s, a, FINISH_LENGTH);
        return false;
    }
    return true;
}

/* Reports the prompt tokens that the rows of this run predict: those after each token of the run. */
static int report_prompt(struct sched *s, struct active *a, const struct batch_item *r,
                         int32_t row) {
    struct engine_job *j = a->job;
    struct err e = {0};
    if (!a->n_prefilled) j->on_prompt(j, 0, NULL);
    for (int32_t i = 0; i < r->n_tok && a->n_prefilled + i + 1 < j->p.n_prompt; i++) {
        struct sampler_probs probs;
        int32_t pos = a->n_prefilled + i + 1;
        const float *logits = s->rows.logits ? s->rows.logits + (int64_t)(row + i) * s->lm->n_vocab
                                             : s->lm->ops->row(s->lm, row + i, &e);
        if (!logits) {
            sched_fail(s, a, &e);
            return e.code;
        }
        sampler_probs_of(logits, s->lm->n_vocab, j->p.prompt[pos], j->p.sampling.n_probs, &probs);
        j->on_prompt(j, pos, &probs);
    }
    return 0;
}

static void after_prefill(struct sched *s, struct active *a, const struct batch_item *r,
                          int32_t row) {
    struct engine_job *j = a->job;
    if (j->p.prompt_probs) {
        int guarded = mem_guard_lift();
        int rc = report_prompt(s, a, r, row);
        mem_guard_restore(guarded);
        if (rc) return;
        row += r->n_tok - 1;
    }
    a->n_prefilled += r->n_tok;
    s->totals.n_prompt += r->n_tok;
    int guarded = mem_guard_lift();
    /* an answer that has moved has reported its prompt */
    if (j->on_prefill && !a->decode_ns) j->on_prefill(j, a->n_prefilled, j->p.n_prompt);
    mem_guard_restore(guarded);
    if (a->n_prefilled < a->n_prompt) return;
    if (!a->decode_ns) {
        a->decode_ns = clock_ns();
        j->stats.prefill_ms = (double)(a->decode_ns - a->start_ns) * 1e-6;
        if (a->prefill_ns)
            prefix_evaluated(s->prefix, a->n_prompt - a->n_reused,
                             (double)(a->decode_ns - a->prefill_ns) * 1e-6);
    }
    a->phase = PHASE_DECODE;
    team_evaluated(j);
    take_token(s, a, row, &a->next);
}

/* Samples from the rows of a verified draft until a token differs from the draft. Returns how many tokens of the run
 * stay. */
static int32_t count_kept(struct sched *s, struct active *a, const struct batch_item *r,
                          int32_t row, bool *alive) {
    int32_t token = -1, i = 0;
    *alive = true;
    for (;; i++) {
        *alive = take_token(s, a, row + i, &token);
        if (!*alive) return i + 1;
        if (i + 1 >= r->n_tok || token != r->tokens[i + 1]) break;
    }
    a->next = token;
    return i + 1;
}

static void after_decode(struct sched *s, struct active *a, const struct batch_item *r, int32_t row,
                         int32_t *n_kept) {
    struct engine_job *j = a->job;
    bool alive;
    int32_t n_draft = r->n_tok - 1;
    int32_t kept = count_kept(s, a, r, row, &alive);
    s->totals.n_drafted += n_draft;
    s->totals.n_accepted += kept - 1;
    if (!alive) {
        *n_kept = -1;
        return;
    }
    j->stats.n_drafted += n_draft;
    j->stats.n_accepted += kept - 1;
    if (r->n_tok > kept) s->lm->ops->seq_drop(s->lm, a->seq, r->n_tok - kept);
    if (n_draft || a->draft.n_asked)
        spec_learn(&s->spec, &a->spec, &a->draft, kept - 1, &j->stats.drafts);
    *n_kept = kept;
}

static void fail_some(struct sched *s) {
    for (int32_t i = 0; i < s->p.n_seq; i++) {
        struct active *a = &s->active[i];
        if (!a->fails) continue;
        const struct err e = a->job->err;
        a->fails = false;
        sched_fail(s, a, &e);
    }
}

static void fail_batch(struct sched *s, int32_t n_run, const struct err *e) {
    for (int32_t i = 0; i < n_run; i++) sched_fail(s, &s->active[s->owner[i]], e);
}

/* Lets the model drafter observe which tokens of runs [from, to) stayed. */
static void follow_up(struct sched *s, int32_t n_run, int32_t from, int32_t to) {
    struct drafter *d = s->lm->drafter;
    if (!d) return;
    bool any = false;
    for (int32_t i = 0; i < n_run; i++) {
        struct active *a = &s->active[s->owner[i]];
        /* ended sequences keep their rows in the batch, because hidden rows are addressed by counting */
        s->follow[i] = i >= from && i < to && s->n_kept[i] >= 0 && a->phase != PHASE_CLOSING &&
                       a->spec.follows && (a->phase == PHASE_PREFILL || s->spec.observes);
        if (i >= from && i < to) a->spec.observed = s->follow[i];
        any |= s->follow[i];
    }
    if (!any) return;
    struct err e = {0};
    if (d->ops->observe(d, s->runs, s->n_kept, s->follow, n_run, &e))
        log_warn("drafting failed: %s", e.text);
}

static bool step(struct sched *s) {
    for (int32_t i = 0; i < s->p.n_seq; i++)
        if (s->active[i].job && s->active[i].job->cancel)
            retire(s, &s->active[i], FINISH_CANCELLED);
    if (!s->n_active) return false;
    int64_t start = clock_ns(), n_before = s->totals.n_generated;
    int32_t n_run = 0, n_tok = 0, n_dec, n_row;
    draft_all(s);
    add_decodes(s, &n_run, &n_tok);
    n_dec = n_run;
    n_row = n_tok;
    add_prefills(s, &n_run, &n_tok);
    if (!n_run) return false;
    struct err e = {0};
    if (sched_run_batch(s, n_run, &e)) {
        s->totals.n_failed_steps += s->totals.n_failed_steps < INT32_MAX;
        fail_batch(s, n_run, &e);
        return true;
    }
    s->totals.n_failed_steps = 0;
    for (int32_t i = 0; i < n_run; i++) s->n_kept[i] = s->runs[i].n_tok;
    /* observe prompts before their first token is reported, so that this time counts as part of the prompt */
    follow_up(s, n_run, n_dec, n_run);
    int32_t row = 0;
    struct engine_later *later = NULL;
    later_end = &later;
    for (int32_t i = 0; i < n_run; i++) {
        struct active *a = &s->active[s->owner[i]];
        const struct batch_item *r = &s->runs[i];
        if (i < n_dec) after_decode(s, a, r, row, &s->n_kept[i]);
        else after_prefill(s, a, r, row);
        row += r->want == WANT_ALL ? r->n_tok : r->want == WANT_LAST;
    }
    run_later(later);
    fail_some(s);
    double own_ms = clock_ms_since(start);
    follow_up(s, n_run, 0, n_dec);
    double ms = clock_ms_since(start);
    s->spec.observe_ms = ms - own_ms;
    if (n_run > n_dec) spec_pause(&s->spec);
    else
        spec_time(&s->spec, n_row, (int32_t)(s->totals.n_generated - n_before), ms + s->cut_ms,
                  s->n_asked, s->draft_ms);
    s->totals.n_step++;
    s->totals.step_ms_mean +=
        (ms - s->totals.step_ms_mean) / (double)(s->totals.n_step < 100 ? s->totals.n_step : 100);
    return true;
}

bool sched_step(struct sched *s) {
    mem_guard_begin();
    bool worked = step(s);
    mem_guard_end();
    return worked;
}
