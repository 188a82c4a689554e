/* llama_process.h: libllama in a process of its own, so that an abort inside it does not end this one.
 *
 * The functions are those of llama_shim.h. If the process ends, the call that notices fails with the reason, and the next
 * run starts it again: the model and its adapters are loaded once more, sequences and shared states are lost (epoch
 * tells). */
#ifndef CHIMERE_LLAMA_LLAMA_PROCESS_H
#define CHIMERE_LLAMA_LLAMA_PROCESS_H

#include "base/err.h"
#include "llama/llama_shim.h"

/* library: as llama_lib_open; it is not loaded into this process. The first path counts. */
int llama_process_open(const struct llama_shim **out, const char *library, struct err *e);

#define LLAMA_WORKER_COMMAND "libllama-worker"
/* What the hidden command of that name does; the exit status. */
int llama_worker(void);

#endif
