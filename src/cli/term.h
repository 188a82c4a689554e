/* term.h: prints text that a model wrote on a terminal. */
#ifndef CHIMERE_CLI_TERM_H
#define CHIMERE_CLI_TERM_H

#include <stddef.h>
#include <stdio.h>

/* Writes whole characters of untrusted text. A terminal receives no control characters except newline and tab,
 * because escape sequences could rewrite the screen or answer for the user. */
void term_write(FILE *f, const char *text, size_t n);

#endif
