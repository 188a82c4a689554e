/* skill.h: a folder with instructions for one kind of task, SKILL.md, and perhaps a program.
 *
 *   ---
 *   name: word-count
 *   description: Counts the words and lines of a text. Use when a text is to be measured.
 *   command: [/usr/bin/python3, "{folder}/count.py", "{input}"]
 *   timeout_ms: 5000
 *   ---
 *   What the model reads when the skill is chosen.
 *
 * The command is a list of arguments: each stays one argument whatever it holds, and no shell reads it. It
 * runs in the sandbox, which shows its folder read-only as /skill; {folder} is that, an argument {input} is
 * what the model hands over (without one it comes on the standard input). Keys of other programs' skills
 * (license, allowed-tools, metadata, ...) are taken and not acted on. A skill is immutable once read. */
#ifndef CHIMERE_ODO_SKILL_H
#define CHIMERE_ODO_SKILL_H

#include "base/err.h"
#include "odo/yamlfile.h"

struct tool;

enum { SKILL_MAX_NAME = 48, SKILL_MAX_BYTES = 64 << 10, SKILL_MAX_TEXT = 16 << 10 };

struct skill { /* strings in the arena that it was read into */
    const char *name, *about;
    const char *text;             /* instructions; "" where there are none */
    const char *folder;           /* path */
    struct yamlfile_list command; /* n == 0: instructions alone */
    int32_t timeout_ms;
};

/* FOLDER/SKILL.md; its name must be the folder's own. */
int skill_read(struct skill *out, const char *folder, const char *name, struct arena *a,
               struct err *e);
/* The same from text [n], for tests. */
int skill_parse(struct skill *out, const char *folder, const char *name, const char *text, size_t n,
                struct arena *a, struct err *e);
/* Index of the skill that a question is about, by the words that it shares with names and descriptions; -1: none of
 * them. Words that many skills have count less. */
int skill_choose(const struct skill *const *skills, int n, const char *question);
/* A tool that runs its command; borrows the skill. CHIMERE_ENOENT where it has none. */
int skill_tool(const struct skill *s, struct tool *out, struct err *e);

#endif
