/* skill.h: a folder with instructions for one kind of task, SKILL.md, and optionally a program.
 *
 *   ---
 *   name: word-count
 *   description: Counts the words and lines of a text. Use when a text is to be measured.
 *   command: [/usr/bin/python3, "{folder}/count.py", "{input}"]
 *   timeout_ms: 5000
 *   ---
 *   What the model reads when the skill is chosen.
 *
 * The command is a list of arguments. Each remains one argument whatever it contains, because no shell parses it.
 * The command runs in the sandbox, where the skill's folder is visible read-only as /skill. {folder} stands for
 * that path. An argument {input} is replaced by the text that the model passes; without such an argument the text
 * is sent to standard input. Keys that only other programs use (license, allowed-tools, metadata, ...) are
 * accepted and ignored. A skill is immutable once read. */
#ifndef CHIMERE_ODO_SKILL_H
#define CHIMERE_ODO_SKILL_H

#include "base/err.h"
#include "odo/pipeline/yamlfile.h"

struct tool;

enum { SKILL_MAX_NAME = 48, SKILL_MAX_BYTES = 64 << 10, SKILL_MAX_TEXT = 16 << 10 };

struct skill { /* strings are in the arena that it was read into */
    const char *name, *about;
    const char *text;             /* instructions; "": none */
    const char *folder;           /* path */
    struct yamlfile_list command; /* n == 0: instructions only */
    int32_t timeout_ms;
};

/* Reads FOLDER/SKILL.md; the name in it must be the folder's name. */
int skill_read(struct skill *out, const char *folder, const char *name, struct arena *a,
               struct err *e);
/* The same from text [n], for tests. */
int skill_parse(struct skill *out, const char *folder, const char *name, const char *text, size_t n,
                struct arena *a, struct err *e);
/* Returns the index of the skill that the question is about, or -1. The words that the question shares with names
 * and descriptions are counted; a word that many skills have counts less. */
int skill_choose(const struct skill *const *skills, int n, const char *question);
/* Makes a tool that runs the skill's command; borrows the skill. CHIMERE_ENOENT: it has no command. */
int skill_tool(const struct skill *s, struct tool *out, struct err *e);

#endif
