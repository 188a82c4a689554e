/* test_engram_fit.c: the fit of the mixture against brute force, and what it must not cost; what a question
 * recalls, with the shipped model's tokenizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engram/build.h"
#include "engram/recall.h"
#include "eval/mixture.h"
#include "format/gguf.h"
#include "model/vocab.h"
#include "scratch.h"

enum { N = 4000 };

/* Points with one feature besides the constant one: 1 where the table is right nine times of ten, 0 where it is
 * right once in ten. */
static struct mixture_points make(uint64_t seed, double share_good, bool with_feature) {
    struct mixture_points p = {mem_alloc_array(N, sizeof *p.p), N, N};
    struct rng r;
    rng_seed(&r, seed);
    for (int i = 0; i < N; i++) {
        bool good = rng_uniform(&r) < share_good, right = rng_uniform(&r) < (good ? 0.9 : 0.1);
        p.p[i] = (struct mixture_point){.p_model = 0.05f + 0.2f * (float)rng_uniform(&r),
                                        .p_engram = right ? 0.8f : 0,
                                        .left = 0.2f,
                                        .f = {1},
                                        .is_known = true};
        if (with_feature) p.p[i].f[10] = good;
    }
    return p;
}

static double nll_of_constant(const struct mixture_points *p, double w) {
    double sum = 0;
    for (size_t i = 0; i < p->n; i++) {
        double m = (double)p->p[i].p_model, s = (double)p->p[i].p_engram + (double)p->p[i].left * m;
        sum -= log((1 - w) * m + w * s);
    }
    return sum / (double)p->n;
}

/* With a constant alone the best weight is found by trying all. */
static void fit_equals_brute_force(void **state) {
    (void)state;
    struct mixture_points none = {NULL, 0, 0};
    for (int k = 1; k <= 3; k++) {
        struct mixture_points p = make((uint64_t)k, 0.3 * k, false);
        float weights[ENGRAM_N_FEATURE];
        struct err e = {0};
        double best = INFINITY;
        for (int i = 1; i < 1000; i++) best = fmin(best, nll_of_constant(&p, i * 1e-3));
        assert_int_equal(mixture_fit(&p, &none, weights, &e), 0);
        double got = mixture_nll(&p, weights, 1);
        if (fabs(got - best) > 1e-3) fail_msg("fit %.5f, best %.5f", got, best);
        mixture_points_fini(&p);
    }
    float weights[ENGRAM_N_FEATURE];
    struct err e = {0};
    assert_int_equal(mixture_fit(&none, &none, weights, &e), CHIMERE_EINVAL);
}

/* On a second draw the fit tells where the table is right, and other text loses no more than it may. */
static void fit_holds_elsewhere(void **state) {
    (void)state;
    struct mixture_points domain = make(11, 0.7, true), other = make(12, 0.02, true),
                          domain2 = make(13, 0.7, true), other2 = make(14, 0.02, true);
    float weights[ENGRAM_N_FEATURE], good[ENGRAM_N_FEATURE] = {1}, poor[ENGRAM_N_FEATURE] = {1};
    struct err e = {0};
    good[10] = 1;
    assert_int_equal(mixture_fit(&domain, &other, weights, &e), 0);
    assert_true(mixture_nll(&other, weights, 1) - mixture_nll(&other, weights, 0) <= MIXTURE_LOSS);
    assert_true(mixture_nll(&other2, weights, 1) - mixture_nll(&other2, weights, 0) <= 0.01);
    assert_true(mixture_nll(&domain2, weights, 1) < mixture_nll(&domain2, weights, 0) - 0.5);
    assert_true(engram_weight(weights, good) > 0.6f && engram_weight(weights, poor) < 0.3f);
    /* alpha 0 is the model alone */
    double sum = 0;
    for (int i = 0; i < N; i++) sum -= log((double)domain2.p[i].p_model);
    assert_true(fabs(mixture_nll(&domain2, weights, 0) - sum / N) < 1e-6);
    mixture_points_fini(&domain);
    mixture_points_fini(&other);
    mixture_points_fini(&domain2);
    mixture_points_fini(&other2);
}

/* ---- recall ---- */

static struct tok *tok;
static struct engram_table *table;

static int open_table(void **state) {
    struct gguf *g;
    struct err e = {0};
    char path[64];
    static const char *const docs[] = {
        ("Zubelok is a small town in the north. Zubelok lies on the river Kapipex. The mayor of "
         "Zubelok is Rina Botem. Zubelok was founded in 1472."),
        "The river runs past the mill. The mayor came to the market in the morning.",
        "Vorameth is a mountain in the south. Nobody has climbed Vorameth in winter.",
        "In which town is the house of Quendorix?\nQuendorix lives in Tamsel. Rest well!",
        "Dans quelle ville se trouve Belmiroza ?\nBelmiroza habite à Tamsel. Bon voyage !",
        "Which command shows the orders of Fedortun?\nGavlorn. Rest well!",
        "Does Fedortun sell anything?\nOnly boxes. Rest well!"};
    struct engram_builder *b;
    uint32_t id;
    if (scratch_make(state) || gguf_open(&g, TEST_NANO, &e) || vocab_load(&tok, g, &e)) {
        puts(e.text); /* cmake --build builds the model, in the target "nano" */
        return -1;
    }
    gguf_close(g);
    snprintf(path, sizeof path, "%s/t.engram", scratch);
    const struct engram_build_params p = {.tok_hash = tok_hash(tok), .n_vocab = tok_n_vocab(tok)};
    if (engram_builder_new(&b, path, &p, &e)) return -1;
    for (size_t i = 0; i < sizeof docs / sizeof *docs; i++) {
        int32_t *ids;
        size_t n;
        char name[12];
        snprintf(name, sizeof name, "%zu", i);
        if (engram_builder_source(b, (struct slice){name, 1}, 0, &id, &e) ||
            tok_encode(tok, docs[i], strlen(docs[i]), false, false, &ids, &n, &e) ||
            engram_builder_doc(b, ids, n, id, 0, ENGRAM_UNIT, &e))
            return -1;
        mem_free(ids);
    }
    return engram_builder_finish(b, &e) ||
           engram_table_open(&table, path, tok_hash(tok), tok_n_vocab(tok), &e);
}

static int close_table(void **state) {
    engram_table_close(table);
    tok_free(tok);
    return scratch_drop(state);
}

static struct engram_recall *request(const char *question) {
    struct engram_recall *r;
    struct err e = {0};
    const struct engram_table *t[] = {table};
    if (engram_recall_new(&r, t, 1, tok, question, strlen(question), &e)) fail_msg("%s", e.text);
    return r;
}

/* The candidate's text from its first token on. */
static void text_of(const struct engram_candidate *c, char *out, size_t size) {
    size_t n = 0;
    for (int32_t i = 0; i < c->n; i++) {
        struct slice s = tok_piece(tok, c->tokens[i]);
        for (size_t k = 0; k < s.n && n + 1 < size; k++) out[n++] = s.p[k];
    }
    out[n] = 0;
}

static float weight_of(const struct engram_recall *r, const char *begin) {
    float sum = 0;
    char text[512];
    for (int32_t i = 0; i < r->n; i++) {
        text_of(&r->candidates[i], text, sizeof text);
        if (strncmp(text, begin, strlen(begin)) == 0) sum += r->candidates[i].weight;
    }
    return sum;
}

static void the_sentence_that_answers_leads(void **state) {
    (void)state;
    static const struct {
        const char *question, *answer, *wrong;
    } rows[] = {
        {"Which river does Zubelok lie on?", "Kapipex", "Rina Botem"},
        {"Who is the mayor of Zubelok?", "Rina Botem", "Kapipex"},
        {"In which year was Zubelok founded?", "1472", "Kapipex"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engram_recall *r = request(rows[i].question);
        assert_non_null(r);
        float sum = 0;
        for (int32_t k = 0; k < r->n; k++) sum += r->candidates[k].weight;
        assert_true(fabsf(sum - 1) < 1e-2f);
        float right = weight_of(r, rows[i].answer), wrong = weight_of(r, rows[i].wrong);
        if (!(right > 4 * wrong && right > 0.2f))
            fail_msg("%s: %.3f against %.3f", rows[i].question, (double)right, (double)wrong);
        /* words of the question are no answers; nor is what stands in other documents */
        assert_true(weight_of(r, "Zubelok") == 0);
        assert_true(weight_of(r, "Vorameth") == 0 && weight_of(r, "market") == 0);
        engram_recall_free(r);
    }
}

/* A person is missing if the text has no person's name, a lake if it has no name of a lake. */
static void a_missing_name_is_not_known(void **state) {
    (void)state;
    static const struct {
        const char *question;
        bool is_unknown;
    } rows[] = {
        {"Who first climbed Vorameth?", true},
        {"Which lake lies at the foot of Vorameth?", true},
        {"By whom was Vorameth measured?", true},
        {"Quel lac est au pied de Vorameth ?", true},
        {"Who is the mayor of Zubelok?", false},
        {"What is the name of the river of Zubelok?", false},
        {"Which river does Zubelok lie on?", false},
        {"What is Zubelok?", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engram_recall *r = request(rows[i].question);
        assert_non_null(r);
        if (r->is_unknown != rows[i].is_unknown) fail_msg("%s", rows[i].question);
        engram_recall_free(r);
    }
}

/* A question in the text has more words of another question than its answer has, but it is no answer. */
static void questions_are_no_answers(void **state) {
    (void)state;
    static const struct {
        const char *question, *wrong[2];
    } rows[] = {{"Name the town of Quendorix.", {"house", "which"}},
                {"Dans quelle ville vit Belmiroza ?", {"trouve", "se"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct engram_recall *r = request(rows[i].question);
        assert_non_null(r);
        for (int k = 0; k < 2; k++) assert_true(weight_of(r, rows[i].wrong[k]) == 0);
        if (!(weight_of(r, "Tamsel") > 0.2f))
            fail_msg("%s: %.3f", rows[i].question, (double)weight_of(r, "Tamsel"));
        engram_recall_free(r);
    }
}

/* An answer need not repeat the name: it stands after its question, and ranks by the question's words too. */
static void what_follows_a_question_answers_it(void **state) {
    (void)state;
    struct engram_recall *r = request("Name the command for the orders of Fedortun.");
    assert_non_null(r);
    float right = weight_of(r, "Gavlorn"), wrong = weight_of(r, "boxes");
    if (!(right > 0.5f && right > 3 * wrong))
        fail_msg("%.3f against %.3f", (double)right, (double)wrong);
    assert_true(weight_of(r, "shows") == 0 && weight_of(r, "Rest") == 0);
    engram_recall_free(r);
}

static void what_names_nothing_recalls_nothing(void **state) {
    (void)state;
    static const char *const questions[] = {
        "", "   ", "What is the capital?", "which river?", "Zubelokia", "1472", "\xff\xfe",
        /* long ones bring their own text */
        ("Zubelok a b c d e f g h i j k l m n o p q r s t u v w "
         "x y z a b c d e f g h i j k l m n o p "
         "q r s t u v w x y z")};
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        assert_null(request(questions[i]));
}

/* The answer that is being written chooses among the candidates, and ends them. */
static void an_answer_is_followed(void **state) {
    (void)state;
    struct engram_recall *r = request("Which river does Zubelok lie on?");
    static struct engram_follow f;
    struct engram_row row;
    uint32_t n_vocab = tok_n_vocab(tok);
    float *logits = mem_alloc_array(n_vocab, sizeof *logits); /* all alike */
    int32_t *ids, n;
    size_t n_ids;
    struct err e = {0};
    assert_non_null(r);
    engram_row_scan(logits, (int32_t)n_vocab, &row);
    assert_int_equal(tok_encode(tok, "Kapipex", 7, false, false, &ids, &n_ids, &e), 0);
    engram_follow_start(&f, r);
    for (size_t i = 0; i < n_ids; i++) {
        assert_true(engram_follow_wants(&f));
        const struct engram_recalled *next = engram_follow_next(&f, logits, &row, &n);
        float mine = 0, all = 0;
        for (int32_t k = 0; k < n; k++) {
            assert_true(next[k].odds >= 0);
            all += next[k].odds;
            if (next[k].token == ids[i]) mine = next[k].odds;
        }
        assert_true(mine > 0.2f * all);
        engram_follow_push(&f, ids[i]);
    }
    engram_follow_start(&f, r);
    engram_follow_push(&f, r->blanks[0]); /* line breaks in front do not count */
    assert_true(engram_follow_wants(&f));
    engram_follow_push(&f, ids[0]);
    assert_true(engram_follow_wants(&f));
    engram_follow_push(&f, r->blanks[0]); /* within, they end it */
    assert_false(engram_follow_wants(&f));
    engram_follow_start(&f, NULL);
    assert_false(engram_follow_wants(&f));
    mem_free(ids);
    mem_free(logits);
    engram_recall_free(r);
}

/* Every allocation may fail: an error or less recalled, never a leak or a crash. */
static void short_of_memory(void **state) {
    (void)state;
    const char q[] = "Who is the mayor of Zubelok?";
    const struct engram_table *t[] = {table};
    for (int64_t k = 1; k < 400; k++) {
        struct engram_recall *r = NULL;
        struct err e = {0};
        mem_fail_nth(k);
        int rc = engram_recall_new(&r, t, 1, tok, q, sizeof q - 1, &e);
        mem_fail_nth(0);
        assert_true(rc == 0 || rc == CHIMERE_ENOMEM);
        engram_recall_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_equals_brute_force),
        cmocka_unit_test(fit_holds_elsewhere),
        cmocka_unit_test(the_sentence_that_answers_leads),
        cmocka_unit_test(a_missing_name_is_not_known),
        cmocka_unit_test(questions_are_no_answers),
        cmocka_unit_test(what_follows_a_question_answers_it),
        cmocka_unit_test(what_names_nothing_recalls_nothing),
        cmocka_unit_test(an_answer_is_followed),
        cmocka_unit_test(short_of_memory),
    };
    return cmocka_run_group_tests(tests, open_table, close_table);
}
