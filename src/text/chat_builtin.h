/* chat_builtin.h: built-in chat templates by name, for models whose file has none or a wrong one. */
#ifndef CHIMERE_TEXT_CHAT_BUILTIN_H
#define CHIMERE_TEXT_CHAT_BUILTIN_H

const char *chat_builtin(const char *name); /* static text; NULL: no such name */
const char *chat_builtin_names(void);       /* "chatml, llama3, ..." */

#endif
