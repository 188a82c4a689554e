/* Documents: PDF through its own program, the index, what it says about itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "retrieval/extract.h"

#include "library.h"
#include "scratch.h"
#include "tiny_bert.h"

/* ---- PDF ---- */

/* One object a line, its place noted for the table at the end. */
static void object(struct buf *b, size_t *places, int i, const char *text) {
    places[i] = b->n;
    buf_printf(b, "%d 0 obj\n%s\nendobj\n", i, text);
}

static void page(struct buf *b, size_t *places, int i, const char *text) {
    char content[400], body[600];
    snprintf(body, sizeof body,
             "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R"
             " /Resources << /Font << /F1 3 0 R >> >> >>",
             i + 1);
    object(b, places, i, body);
    int n = snprintf(content, sizeof content, "BT /F1 24 Tf 72 700 Td (%s) Tj ET", text);
    snprintf(body, sizeof body, "<< /Length %d >>\nstream\n%s\nendstream", n, content);
    object(b, places, i + 1, body);
}

/* A document of two pages as the format's specification describes one (ISO 32000-1, annex H). */
static void make_pdf(struct buf *b, const char *first, const char *second) {
    size_t places[9] = {0};
    buf_init(b, 1 << 16);
    buf_puts(b, "%PDF-1.4\n");
    object(b, places, 1, "<< /Type /Catalog /Pages 2 0 R >>");
    object(b, places, 2, "<< /Type /Pages /Kids [4 0 R 6 0 R] /Count 2 >>");
    object(b, places, 3, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>");
    page(b, places, 4, first);
    page(b, places, 6, second);
    object(b, places, 8, "<< /Title (Herons of the Loire) >>");
    size_t table = b->n;
    buf_puts(b, "xref\n0 9\n0000000000 65535 f \n");
    for (int i = 1; i < 9; ++i) buf_printf(b, "%010zu 00000 n \n", places[i]);
    buf_printf(b, "trailer\n<< /Size 9 /Root 1 0 R /Info 8 0 R >>\nstartxref\n%zu\n%%%%EOF\n",
               table);
    assert_int_equal(b->failed, 0);
}

static bool has_pdf(void) {
    if (!access("/usr/bin/pdftotext", X_OK)) return true;
    puts("skip: PDF, apt-get install poppler-utils");
    return false;
}

static const struct extract_how none = {0};

static void test_pdf(void **state) {
    (void)state;
    struct buf b;
    struct extract x;
    struct err e = {0};
    if (!has_pdf()) skip();
    make_pdf(&b, "Grey herons nest in April.", "Purple herons leave in August.");
    if (extract_text(&x, EXTRACT_PDF, b.p, b.n, &none, &e)) fail_msg("%s", e.text);
    assert_string_equal(x.title, "Herons of the Loire");
    assert_int_equal(x.n_page, 2);
    const char *second = strstr(x.text.p, "Purple herons leave in August.");
    assert_non_null(strstr(x.text.p, "Grey herons nest in April."));
    assert_non_null(second);
    assert_true(second - x.text.p >= x.pages[1]);
    assert_int_equal(x.pages[0], 0);
    extract_fini(&x);
    /* half of it, something else, and no time at all: a sentence each, nothing hangs */
    assert_int_not_equal(extract_text(&x, EXTRACT_PDF, "no PDF at all", 13, &none, &e), 0);
    assert_non_null(strstr(e.text, "not a PDF that can be read"));
    extract_fini(&x);
    int64_t start = clock_ns();
    extract_text(&x, EXTRACT_PDF, b.p, b.n, &(struct extract_how){.deadline_ns = clock_ns() - 1},
                 &e);
    extract_fini(&x);
    assert_true(clock_ms_since(start) < 30000);
    for (size_t n = 16; n < b.n; n += 97) {
        extract_text(&x, EXTRACT_PDF, b.p, n, &none, &e);
        extract_fini(&x);
    }
    buf_fini(&b);
}

/* ---- the index ---- */

/* A citation of a PDF names its page; a damaged one is said, and costs nothing else. */
static void test_pdf_index(void **state) {
    (void)state;
    struct library l;
    struct docs_report r;
    struct docs_hits h;
    struct buf b;
    if (!has_pdf()) skip();
    make_pdf(&b, "Grey herons nest in April.", "Purple herons leave in August.");
    scratch_put_bytes("pdf/herons.pdf", b.p, b.n);
    scratch_put_bytes("pdf/broken.pdf", b.p + 40, 200);
    buf_fini(&b);
    library_open(&l, "pdf", NULL);
    r = library_index(&l, "pdf", "test");
    assert_int_equal(r.n_read, 1);
    assert_int_equal(r.n_failed, 1);
    assert_non_null(strstr(r.first_failure, "broken.pdf: not a PDF that can be read"));
    assert_int_equal(
        docs_search(l.docs, "When do purple herons leave?", "test", 3, 0, NULL, &h, NULL), 0);
    assert_true(h.n >= 1);
    assert_string_equal(h.v[0].title, "Herons of the Loire");
    assert_true(h.v[0].page >= 1);
    assert_false(h.by_vectors);
    docs_hits_fini(&h);
    library_close(&l);
}

/* ---- vectors and the cross-encoder ---- */

static const struct tiny_word words[] = {{"gold", 0},      {"car", 1},    {"automobile", 1},
                                         {"spring", 2},    {"oil", 3},    {"engine", 4},
                                         {"physician", 5}, {"doctor", 5}, {"cat", 6},
                                         {"heron", 7},     {"stamps", 8}, {"museum", 9}};
enum { N_WORD = sizeof words / sizeof *words };

static void tiny(struct brain *b, const char *name, int n_word, bool ranks) {
    char path[160];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    if (tiny_bert_write(path, words, n_word, ranks, &e) || brain_open(b, path, ranks, &e))
        fail_msg("%s", e.text);
}

static void search(struct library *l, const char *question, struct docs_hits *h) {
    struct err e = {0};
    if (docs_search(l->docs, question, "test", 2, 0, NULL, h, &e)) fail_msg("%s", e.text);
}

/* Synonyms are found where words are not shared; without a model, or before the files have its vectors, words alone
 * rank, and the hits say so; files of another model's vectors are read again; a removed file's vectors go with it. */
static void test_vectors(void **state) {
    (void)state;
    static const char question[] = "doctor for a cat?";
    struct library l;
    struct docs_report r;
    struct docs_hits h;
    struct brain b, other;
    scratch_put("vec/a.md", "The physician saw the cat.\n");
    scratch_put("vec/b.md", "A museum of stamps and oil.\n");
    scratch_put("vec/c.md", "A doctor collects stamps.\n");
    library_open(&l, "vec", NULL);
    r = library_index(&l, "vec", "test");
    assert_int_equal(r.n_read, 3);
    library_close(&l);

    tiny(&b, "embed.gguf", N_WORD, false);
    struct docs_models models = {.embed = b.embed};
    library_open(&l, "vec", &models);
    search(&l, question, &h);
    assert_false(h.by_vectors);
    assert_string_equal(docs_ranking(&h), "bm25 alone");
    assert_non_null(strstr(h.why, "no file was indexed with this model"));
    docs_hits_fini(&h);
    r = library_index(&l, "vec", "test");
    assert_int_equal(r.n_read, 3); /* unchanged, but without vectors */
    search(&l, question, &h);
    assert_string_equal(docs_ranking(&h), "bm25+vectors");
    assert_string_equal(h.why, "");
    assert_true(h.n >= 1);
    assert_non_null(strstr(h.v[0].path, "/a.md")); /* both meanings; c.md shares the rarer word */
    docs_hits_fini(&h);
    /* no word in common at all */
    search(&l, "automobile physician?", &h);
    assert_true(h.n >= 1);
    assert_non_null(strstr(h.v[0].text, "physician"));
    docs_hits_fini(&h);
    r = library_index(&l, "vec", "test");
    assert_int_equal(r.n_kept, 3);
    library_close(&l);

    tiny(&other, "other.gguf", N_WORD - 1, false);
    models.embed = other.embed;
    library_open(&l, "vec", &models);
    search(&l, question, &h);
    assert_false(h.by_vectors); /* as many values, another meaning: not mixed */
    docs_hits_fini(&h);
    r = library_index(&l, "vec", "test");
    assert_int_equal(r.n_read, 3);
    search(&l, question, &h);
    assert_true(h.by_vectors);
    assert_non_null(strstr(h.v[0].path, "/a.md"));
    docs_hits_fini(&h);
    char path[160];
    snprintf(path, sizeof path, "%s/vec/a.md", scratch);
    unlink(path);
    r = library_index(&l, "vec", "test");
    assert_int_equal(r.n_removed, 1);
    search(&l, question, &h);
    for (int i = 0; i < h.n; ++i) assert_null(strstr(h.v[i].path, "/a.md"));
    docs_hits_fini(&h);
    library_close(&l);
    brain_close(&b);
    brain_close(&other);
}

/* The cross-encoder orders what the lists found; at the deadline their order stays, and the hits say so. */
/* Notebooks, UTF-16 and files without endings are read; what is not is named; a folder that is gone is forgotten. */
static void test_kinds(void **state) {
    (void)state;
    static const char notebook[] =
        "{\"cells\": [{\"cell_type\": \"markdown\", \"source\": [\"# Quokkas\\n\", \"They hop.\"]},"
        "{\"cell_type\": \"code\", \"source\": \"count(quokkas)\", \"outputs\": [{\"text\": "
        "\"numbat\"}]}]}";
    static const char little[] = "\xff\xfeZ\0o\0r\0b\0\x3d\xd8\x00\xde!\0\n",
                      big[] = "\xfe\xff\0b\0i\0l\0b\0y";
    struct library l;
    struct docs_hits h;
    scratch_put("kinds/a.ipynb", notebook);
    scratch_put("kinds/b.ipynb", "[1]");
    scratch_put_bytes("kinds/little.txt", little, sizeof little - 1);
    scratch_put_bytes("kinds/big.md", big, sizeof big - 1);
    scratch_put("kinds/README", "The numbats sleep.\n");
    scratch_put_bytes("kinds/program",
                      "\x7f"
                      "ELF\0\0",
                      6);
    scratch_put("kinds/disk.iso", "x");
    library_open(&l, "kinds", NULL);
    struct docs_report r = library_index(&l, "kinds", "test");
    assert_int_equal(r.n_read, 4);
    assert_int_equal(r.n_failed, 1);
    assert_non_null(strstr(r.first_failure, "b.ipynb"));
    assert_int_equal(r.n_skipped, 2);
    assert_non_null(strstr(r.skipped, "program"));
    assert_non_null(strstr(r.skipped, "disk.iso"));
    static const struct {
        const char *word, *text;
    } rows[] = {{"quokkas", "# Quokkas\nThey hop.\n\n```\ncount(quokkas)\n```"},
                {"zorb", "Zorb\xf0\x9f\x98\x80!"},
                {"bilby", "bilby"},
                {"numbats", "The numbats sleep."}};
    struct err e = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        assert_int_equal(docs_search(l.docs, rows[i].word, "test", 5, 0, NULL, &h, &e), 0);
        assert_int_equal(h.n, 1);
        assert_string_equal(h.v[0].text, rows[i].text);
        docs_hits_fini(&h);
    }
    char path[64], command[100];
    snprintf(path, sizeof path, "%s/kinds", scratch);
    snprintf(command, sizeof command, "rm -r '%s'", path);
    assert_int_equal(system(command), 0);
    assert_int_equal(docs_index(l.docs, path, "test", &r, &e), 0);
    assert_int_equal(r.n_removed, 4);
    assert_int_equal(docs_index(l.docs, path, "test", &r, &e),
                     CHIMERE_ENOENT); /* no such folder is known */
    library_close(&l);
}

/* A word that general text has often names no subject, however rare it is here; the calendar and single names do not
 * either. The same text under two names takes one place. */
static void test_general_words(void **state) {
    (void)state;
    struct library l;
    struct docs_hits h;
    scratch_put("plain/a.md", "Her sister Anna and a quokka came on 7 September.\n");
    scratch_put("plain/b.md", "Her sister Anna and a quokka came on 7 September.\n");
    library_open(&l, "plain", NULL);
    library_index(&l, "plain", "test");
    static const struct {
        const char *question;
        bool strong;
    } rows[] = {{"Name my sister.", false},
                {"3 days after 7 September is?", false},
                {"What colour does Anna prefer?", false},
                {"What about the quokka?", true}};
    struct err e = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        assert_int_equal(docs_search(l.docs, rows[i].question, "test", 5, 0, NULL, &h, &e), 0);
        assert_int_equal(h.strong, rows[i].strong);
        if (rows[i].strong) assert_int_equal(h.n, 1);
        docs_hits_fini(&h);
    }
    library_close(&l);
}

/* A title that is a name unknown elsewhere is the subject of a question that speaks of other things too. */
static void test_subject(void **state) {
    (void)state;
    struct library l;
    struct docs_hits h;
    scratch_put("subject/Livomur.txt", "The Livomur weighs 70 kilograms.\n");
    scratch_put("subject/notes.txt", "The committee met Rikod Zaper once.\n");
    library_open(&l, "subject", NULL);
    library_index(&l, "subject", "test");
    static const struct {
        const char *question;
        bool strong;
    } rows[] = {
        {"We need to lift a Livomur onto a truck tonight. What weight should we plan for?", true},
        {"We met Rikod at the station and lifted a trunk onto a truck. What weight was it?", false},
        {"They sold their Livomur, Gorvex, Tandil and Petsu last summer. What did they earn?",
         false}};
    struct err e = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        assert_int_equal(docs_search(l.docs, rows[i].question, "test", 5, 0, NULL, &h, &e), 0);
        assert_int_equal(h.strong, rows[i].strong);
        if (rows[i].strong) assert_non_null(strstr(h.v[0].path, "Livomur.txt"));
        docs_hits_fini(&h);
    }
    library_close(&l);
}

static void test_rerank(void **state) {
    (void)state;
    struct library l;
    struct docs_hits h;
    struct brain b;
    for (int i = 0; i < 9; ++i) {
        char name[32], text[200];
        snprintf(name, sizeof name, "rank/%d.md", i);
        snprintf(text, sizeof text, "Heron of the engine, heron of the oil %c.\n", 'a' + i);
        if (i == 7)
            strcpy(text, "A heron, and gold, gold, gold, the car, the spring, more words.\n");
        scratch_put(name, text);
    }
    tiny(&b, "rank.gguf", N_WORD, true);
    library_open(&l, "rank", NULL);
    library_index(&l, "rank", "test");
    search(&l, "heron?", &h);
    assert_int_equal(h.n, 2);
    assert_null(strstr(h.v[0].text, "gold")); /* BM25: the word stands there once, in a long text */
    assert_false(h.reranked);
    docs_hits_fini(&h);
    library_close(&l);
    struct docs_models models = {.rerank = b.rerank};
    library_open(&l, "rank", &models);
    /* it looks at three times as many as are asked for */
    struct err e = {0};
    _Atomic bool cancelled = true;
    assert_int_equal(docs_search(l.docs, "heron?", "test", 3, 0, &cancelled, &h, &e),
                     CHIMERE_ECANCELLED);
    docs_hits_fini(&h);
    assert_int_equal(docs_search(l.docs, "heron?", "test", 3, 0, NULL, &h, &e), 0);
    assert_int_equal(h.n, 3);
    assert_true(h.reranked);
    assert_string_equal(docs_ranking(&h), "bm25+reranker");
    assert_non_null(strstr(h.v[0].text, "gold"));
    docs_hits_fini(&h);
    assert_int_equal(docs_search(l.docs, "heron?", "test", 3, clock_ns() - 1, NULL, &h, &e), 0);
    assert_int_equal(h.n, 3);
    assert_false(h.reranked);
    assert_non_null(strstr(h.why, "reranker: the deadline came first"));
    docs_hits_fini(&h);
    library_close(&l);
    brain_close(&b);
}

/* Questions that share no word with their passage, by a published model. */
static void test_real_model(void **state) {
    (void)state;
    char path[4096];
    if (file_find_data("all-minilm-l6-v2.gguf", path, sizeof path)) {
        puts("skip: documents by a real model, script/embedder");
        skip();
    }
    static const char *const rows[][2] = {
        {"The automobile needs fresh lubricant every ten thousand kilometres.",
         "How often do I change the oil of my car?"},
        {"A feline will sleep for sixteen hours of the day.", "How long does my cat nap?"},
        {"The physician on call answers at night as well.", "Can I phone a doctor at 3 a.m.?"},
        {"Payment is due within thirty days of the invoice.", "When must I settle the bill?"},
        {"Pupils may not use telephones in the classroom.", "Are students allowed their mobiles?"},
        {"Bread is taken out of the oven when it sounds hollow.",
         "How do I know the loaf is done?"}};
    struct library l;
    struct docs_hits h;
    struct brain b;
    int n_right = 0;
    for (int i = 0; i < 6; ++i) {
        char name[32];
        snprintf(name, sizeof name, "real/%d.md", i);
        scratch_put(name, rows[i][0]);
    }
    struct err e = {0};
    if (brain_open(&b, path, false, &e)) fail_msg("%s", e.text);
    struct docs_models models = {.embed = b.embed};
    library_open(&l, "real", &models);
    library_index(&l, "real", "test");
    for (int i = 0; i < 6; ++i) {
        search(&l, rows[i][1], &h);
        bool shown = false;
        for (int k = 0; k < h.n; ++k) shown |= !strcmp(h.v[k].text, rows[i][0]);
        assert_true(shown);
        n_right += !strcmp(h.v[0].text, rows[i][0]);
        docs_hits_fini(&h);
    }
    print_message("paraphrased questions: %d of 6 find their passage first\n", n_right);
    assert_true(n_right >= 4); /* one shared word of no meaning outranks a synonym now and then */
    library_close(&l);
    brain_close(&b);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], EXTRACT_COMMAND)) return extract_child(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pdf),           cmocka_unit_test(test_pdf_index),
        cmocka_unit_test(test_vectors),       cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_general_words), cmocka_unit_test(test_subject),
        cmocka_unit_test(test_rerank),        cmocka_unit_test(test_real_model),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
