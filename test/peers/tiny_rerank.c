/* tiny_rerank.c: writes the reranker of llama_server.py, whose vocabulary is that of its documents.
 *
 *   tiny_rerank OUT.gguf */
#include "../unit/tiny_bert.h"

static const struct tiny_word words[] = {
    {"machine", 0},   {"learning", 0}, {"intelligence", 0}, {"algorithms", 0}, {"data", 0},
    {"is", 1},        {"power", 2},    {"forces", 2},       {"movement", 2},   {"devices", 2},
    {"knowledge", 3}, {"skills", 3},   {"humans", 3},       {"animals", 3},    {"paris", 4},
    {"france", 4},    {"ville", 4},    {"mode", 4},         {"culture", 4},    {"which", 5},
    {"city", 5},
};

int main(int argc, char **argv) {
    struct err e = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: tiny_rerank OUT.gguf\n");
        return 2;
    }
    if (!tiny_bert_write(argv[1], words, sizeof words / sizeof *words, true, &e)) return 0;
    fprintf(stderr, "tiny_rerank: %s\n", e.text);
    return 1;
}
