/* prm.c: asks a judge and parses its verdicts. */
#include "strategy/prm.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "strategy/reward.h"

enum { MAX_MARKS = 4096, TOKENS_A_STEP = 160, TOKENS_BEHIND = 32 };

/* ---- parsing ---- */

static const char *const yes_words[] = {"correct", "yes", "right", "valid"};
static const char *const no_words[] = {"incorrect", "no", "wrong", "not", "invalid", "false"};

static char small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* Returns true if text and word are equal, ignoring case, over the length of the shorter one. */
static bool agrees(const char *text, size_t n, const char *word) {
    size_t m = strlen(word), k = n < m ? n : m;
    for (size_t i = 0; i < k; i++)
        if (small(text[i]) != word[i]) return false;
    return k > 0;
}

int prm_word(const char *text, size_t n) {
    while (n && (*text == ' ' || *text == '\n' || *text == '*' || *text == '{')) text++, n--;
    bool yes = false, no = false;
    for (size_t i = 0; i < sizeof yes_words / sizeof *yes_words; i++)
        yes |= agrees(text, n, yes_words[i]);
    for (size_t i = 0; i < sizeof no_words / sizeof *no_words; i++)
        no |= agrees(text, n, no_words[i]);
    return yes == no ? 0 : yes ? 1 : -1;
}

/* Parses a complete verdict word at the start of the text: 1 yes, -1 no, 0 none. */
static int verdict_at(const char *text, size_t n) {
    for (size_t i = 0; i < sizeof no_words / sizeof *no_words; i++)
        if (n >= strlen(no_words[i]) && agrees(text, n, no_words[i])) return -1;
    for (size_t i = 0; i < sizeof yes_words / sizeof *yes_words; i++)
        if (n >= strlen(yes_words[i]) && agrees(text, n, yes_words[i])) return 1;
    return 0;
}

/* Returns the probability of "correct" that the model gave for the word at `at`. Without probabilities: 1 or 0 by
 * the word itself. */
static double odds(const struct prm_mark *marks, size_t n, size_t at, int said) {
    for (size_t i = 0; i < n && marks; i++) {
        /* the token may begin with the blank before the word */
        if (marks[i].at != at && marks[i].at + 1 != at) continue;
        double sum = marks[i].yes + marks[i].no;
        if (sum > 0) return marks[i].yes / sum;
    }
    return said > 0 ? 1 : 0;
}

/* Finds phrase at or after `from`. Returns the position after it; n if it is not found. */
static size_t behind(const char *text, size_t n, size_t from, const char *phrase) {
    size_t m = strlen(phrase);
    for (size_t i = from; i + m <= n; i++)
        if (agrees(text + i, m, phrase)) return i + m;
    return n;
}

static size_t digits_at(const char *text, size_t n, size_t i, int32_t *out) {
    size_t first = i;
    *out = 0;
    while (i < n && i - first < 4 && text[i] >= '0' && text[i] <= '9')
        *out = *out * 10 + (text[i++] - '0');
    return i - first;
}

/* Parses "Step N is VERDICT" anywhere in the text. */
static void read_sentences(const char *text, size_t n, const struct prm_mark *marks, size_t n_mark,
                           struct prm_verdict *v) {
    for (size_t i = behind(text, n, 0, "step "); i < n; i = behind(text, n, i, "step ")) {
        int32_t k;
        size_t at = i + digits_at(text, n, i, &k);
        if (at == i || k < 1 || k > v->n_step || v->said[k - 1]) continue;
        if (at + 4 > n || memcmp(text + at, " is ", 4) != 0) continue;
        at += 4;
        while (at < n && text[at] == '*') at++;
        int word = verdict_at(text + at, n - at);
        if (!word) continue;
        v->said[k - 1] = true;
        v->step[k - 1] = odds(marks, n_mark, at, word);
    }
}

/* The k-th \boxed{VERDICT}, check mark or cross gives the verdict on step k, if no sentence did. */
static void read_boxes(const char *text, size_t n, const struct prm_mark *marks, size_t n_mark,
                       struct prm_verdict *v) {
    static const struct {
        const char *text;
        int verdict;
    } forms[] = {{"\\boxed{", 0},      {"\xe2\x9c\x93", 1},  {"\xe2\x9c\x94", 1},
                 {"\xe2\x9c\x97", -1}, {"\xe2\x9c\x98", -1}, {"\xe2\x9c\x85", 1},
                 {"\xe2\x9d\x8c", -1}};
    int32_t k = 0;
    for (size_t i = 0; i < n && k < v->n_step; i++) {
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            size_t m = strlen(forms[f].text);
            if (n - i < m || memcmp(text + i, forms[f].text, m) != 0) continue;
            size_t at = i + m;
            int word = forms[f].verdict ? forms[f].verdict : verdict_at(text + at, n - at);
            if (!word) continue;
            if (!v->said[k]) {
                v->step[k] = odds(forms[f].verdict ? NULL : marks, n_mark, at, word);
                v->said[k] = true;
            }
            k++;
            break;
        }
    }
}

static void read_whole(const char *text, size_t n, const struct prm_mark *marks, size_t n_mark,
                       struct prm_verdict *v) {
    size_t at = behind(text, n, 0, "solution correct?");
    if (at >= n) return;
    while (at < n && (text[at] == ' ' || text[at] == '\n' || text[at] == '*')) at++;
    int word = verdict_at(text + at, n - at);
    if (!word) return;
    v->has_whole = true;
    v->whole = odds(marks, n_mark, at, word);
}

void prm_read(const char *text, size_t n, int32_t n_step, const struct prm_mark *marks,
              size_t n_mark, struct prm_verdict *out) {
    *out = (struct prm_verdict){.n_step = n_step > PRM_MAX_STEPS ? PRM_MAX_STEPS : n_step,
                                .whole = 0.5};
    for (int32_t i = 0; i < out->n_step; i++) out->step[i] = 0.5;
    read_sentences(text, n, marks, n_mark, out);
    read_boxes(text, n, marks, n_mark, out);
    read_whole(text, n, marks, n_mark, out);
    prm_sum(out);
}

void prm_sum(struct prm_verdict *v) {
    v->n_said = 0;
    v->score = v->has_whole ? v->whole : 1;
    for (int32_t i = 0; i < v->n_step; i++) {
        v->n_said += v->said[i];
        if (v->said[i] && v->step[i] < v->score) v->score = v->step[i];
    }
    if (!v->n_said && !v->has_whole) v->score = 0.5;
}

/* ---- asking the judge ---- */

static const char instruction[] = "Check each step of this solution.";

static const char part_end[] = "Is the solution";
static const char *part_stops[] = {part_end};

struct hearing {            /* text of one judge so far */
    const struct tok *tok;  /* view; NULL: the texts of alternative tokens are unknown */
    struct buf text;        /* begins with the text of the earlier verdicts */
    struct prm_mark *marks; /* owned [MAX_MARKS] */
    size_t n_mark;
    int32_t n_step;
    struct request request;
};

static void hear(void *ud, const struct backend_event *ev) {
    struct hearing *h = ud;
    struct prm_mark m = {.at = h->text.n};
    for (int32_t i = 0; h->tok && ev->probs && i < ev->probs->n; i++) {
        struct slice piece = tok_piece(h->tok, ev->probs->ids[i]);
        int word = piece.p ? prm_word(piece.p, piece.n) : 0;
        if (word > 0) m.yes += exp((double)ev->probs->logprobs[i]);
        if (word < 0) m.no += exp((double)ev->probs->logprobs[i]);
    }
    if ((m.yes > 0 || m.no > 0) && h->n_mark < MAX_MARKS) h->marks[h->n_mark++] = m;
    buf_put(&h->text, ev->text, ev->n);
}

static void put_question(struct buf *b, const struct prm_item *it, struct prm_steps *steps) {
    size_t n = strlen(it->solution), n_problem = strlen(it->problem);
    prm_split(it->solution, n < PRM_MAX_SOLUTION ? n : PRM_MAX_SOLUTION, steps);
    prm_conclusion(steps);
    buf_puts(b, instruction);
    buf_puts(b, "\n\nProblem: ");
    buf_put(b, it->problem, n_problem < PRM_MAX_PROBLEM ? n_problem : PRM_MAX_PROBLEM);
    buf_puts(b, "\n\nSolution:");
    for (int32_t i = 0; i < steps->n; i++) {
        buf_printf(b, "\nStep %d: ", i + 1);
        buf_put(b, steps->step[i].p, steps->step[i].n);
    }
}

static int pose(const struct prm_item *it, struct hearing *h, struct err *e) {
    struct prm_steps steps;
    struct buf b;
    struct request *a = &h->request;
    request_init(a);
    buf_init(&h->text, BATCH_MAX_TEXT);
    buf_init(&b, (size_t)PRM_MAX_PROBLEM + PRM_MAX_SOLUTION + 4096);
    put_question(&b, it, &steps);
    a->messages =
        b.failed ? NULL : json_pack("[{s:s, s:s#}]", "role", "user", "content", b.p, (int)b.n);
    buf_fini(&b);
    h->n_step = steps.n;
    int32_t n_new = steps.n;
    if (a->messages && it->before && it->known && it->known->n_step < steps.n) {
        n_new -= it->known->n_step;
        a->continue_last = true;
        buf_puts(&h->text, it->before);
        json_array_append_new(a->messages,
                              json_pack("{s:s, s:s}", "role", "assistant", "content", it->before));
    }
    a->max_tokens = TOKENS_A_STEP * n_new + TOKENS_BEHIND;
    a->sampling.temperature = 0;
    a->sampling.n_probs = SAMPLER_MAX_PROBS;
    a->probs = true;
    if (it->is_part) {
        a->stops = part_stops;
        a->n_stop = 1;
    }
    return a->messages && !h->text.failed ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

static void judge(struct prm_item *it, struct batch_request *b, struct hearing *h) {
    size_t n_before = h->request.continue_last ? strlen(it->before) : 0;
    struct buf *text = &h->text;
    if (text->n == n_before && b->content.n) buf_put(text, b->content.p, b->content.n);
    it->stats = b->stats;
    it->failed = b->finish == FINISH_ERROR || b->finish == FINISH_CANCELLED;
    bool empty = it->failed || text->failed || !text->n;
    prm_read(empty ? "" : text->p, empty ? 0 : text->n, h->n_step, h->marks, h->n_mark,
             &it->verdict);
    for (int32_t i = 0; n_before && i < it->known->n_step; i++) {
        it->verdict.step[i] = it->known->step[i];
        it->verdict.said[i] = it->known->said[i];
    }
    prm_sum(&it->verdict);
    buf_init(&it->critique, BATCH_MAX_TEXT);
    if (empty) return;
    const char *end = memmem(text->p, text->n, part_end, sizeof part_end - 1);
    buf_put(&it->critique, text->p, end ? (size_t)(end - text->p) : text->n);
}

void prm_drop(struct prm_item *it) { buf_fini(&it->critique); }

/* Scores an item with a process reward model. What goes wrong leaves the neutral score, as with a judge. */
static int score_item(const struct prm_use *u, struct prm_item *it, struct err *e) {
    struct prm_verdict *v = &it->verdict;
    struct prm_steps steps;
    size_t n = strlen(it->solution), n_problem = strlen(it->problem);
    prm_split(it->solution, n < PRM_MAX_SOLUTION ? n : PRM_MAX_SOLUTION, &steps);
    *v = (struct prm_verdict){.n_step = steps.n, .whole = 0.5};
    buf_init(&it->critique, 0);
    for (int32_t i = 0; i < steps.n; i++) v->step[i] = 0.5;
    struct reward_call c = {
        .problem = {it->problem, n_problem < PRM_MAX_PROBLEM ? n_problem : PRM_MAX_PROBLEM},
        .steps = steps.step,
        .n_step = steps.n,
        .cancelled = u->cancelled,
        .deadline_ns = u->deadline_ns,
        .scores = v->step};
    int rc = reward_score(u->reward, &c, e);
    it->stats.n_prompt = c.n_tok;
    it->failed = rc || c.was_late;
    for (int32_t i = 0; i < c.n_scored && !it->failed; i++) v->said[i] = true;
    prm_sum(v);
    return rc == CHIMERE_ENOMEM ? rc : 0;
}

int prm_score(const struct prm_use *u, struct prm_item *items, int32_t n, struct err *e) {
    int rc = 0;
    for (int32_t i = 0; u->reward && i < n && !rc; i++) rc = score_item(u, &items[i], e);
    if (u->reward) return rc;
    struct batch_request *b = mem_alloc_array((size_t)n, sizeof *b);
    struct hearing *h = mem_alloc_array((size_t)n, sizeof *h);
    if (!b || !h) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    const struct backend_model *model = u->backend->model;
    int32_t n_posed = 0;
    for (; n_posed < n && !rc; n_posed++) {
        struct hearing *x = &h[n_posed];
        *x = (struct hearing){.tok = model ? model->tok : NULL,
                              .marks = mem_alloc_array(MAX_MARKS, sizeof *x->marks)};
        rc = pose(&items[n_posed], x, e);
        int32_t share = u->max_tokens / n;
        if (u->max_tokens && x->request.max_tokens > share)
            x->request.max_tokens = share > 0 ? share : 1;
        if (!x->marks) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        b[n_posed] = (struct batch_request){.request = &x->request, .on_token = hear, .ud = x};
    }
    if (!rc) {
        struct batch batch = {.backend = u->backend,
                              .items = b,
                              .n = n,
                              .cancelled = u->cancelled,
                              .deadline_ns = u->deadline_ns};
        batch_run(&batch, NULL); /* an item whose request failed keeps the neutral score */
        for (int32_t i = 0; i < n; i++) judge(&items[i], &b[i], &h[i]);
        batch_fini(b, n);
    }
    for (int32_t i = 0; i < n_posed; i++) {
        buf_fini(&h[i].text);
        mem_free(h[i].marks);
        request_fini(&h[i].request);
    }
    mem_free(b);
    mem_free(h);
    return rc;
}
