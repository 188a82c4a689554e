/* llama_lib.h: finds and loads chimere-llama.so, once for the process. Any thread. */
#ifndef CHIMERE_LLAMA_LLAMA_LIB_H
#define CHIMERE_LLAMA_LLAMA_LIB_H

#include "base/err.h"
#include "llama/llama_shim.h"

#define LLAMA_LIB_FILE "chimere-llama.so"

typedef void llama_lib_log(int level, const char *line); /* as llama_shim's start */

/* path NULL: the file of that name beside the program, in the user's data directory, or where `cmake --install` puts
 * it. CHIMERE_ENOENT: it is not there, with the hint how to build it. CHIMERE_EUNSUPPORTED: it, or the libllama that it
 * loads, is of another version or lacks a symbol. log NULL: base/log.h. Later calls with another path return the first library. */
int llama_lib_open(const struct llama_shim **out, const char *path, llama_lib_log *log,
                   struct err *e);
/* The path that llama_lib_open(NULL) would load. */
int llama_lib_find(char *out, size_t out_size, struct err *e);

#endif
