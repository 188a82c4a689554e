/* llama_lib.h: finds and loads chimere-llama.so, once per process. Any thread may call this. */
#ifndef CHIMERE_LLAMA_LLAMA_LIB_H
#define CHIMERE_LLAMA_LLAMA_LIB_H

#include "base/err.h"
#include "llama/llama_shim.h"

#define LLAMA_LIB_FILE "chimere-llama.so"

typedef void llama_lib_log(int level, const char *line); /* as the log of llama_shim's start */

/* path NULL: the file of that name next to the program, in the user's data directory, or in the folder of `cmake
 * --install`. CHIMERE_ENOENT: it is missing; the hint tells how to build it. CHIMERE_EUNSUPPORTED: the file, or the
 * libllama that it loads, has another version or lacks a symbol. log NULL: base/log.h. Later calls with another path
 * return the first library. */
int llama_lib_open(const struct llama_shim **out, const char *path, llama_lib_log *log,
                   struct err *e);
/* Returns the path that llama_lib_open(NULL) would load. */
int llama_lib_find(char *out, size_t out_size, struct err *e);

#endif
