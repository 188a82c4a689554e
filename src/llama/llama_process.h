/* llama_process.h: runs libllama in a separate process, so that an abort inside it does not end this one.
 *
 * The functions are those of llama_shim.h. If the process ends, the call that notices this fails with the reason, and
 * the next run starts a new process. The model and its adapters are then loaded again; sequences and shared states are
 * lost, which epoch() reports. */
#ifndef CHIMERE_LLAMA_LLAMA_PROCESS_H
#define CHIMERE_LLAMA_LLAMA_PROCESS_H

#include "base/err.h"
#include "llama/llama_shim.h"

/* library: as in llama_lib_open; it is not loaded into this process. Only the path of the first call is used. */
int llama_process_open(const struct llama_shim **out, const char *library, struct err *e);

#define LLAMA_WORKER_COMMAND "libllama-worker"
/* Main function of the hidden command that the child process runs; returns its exit status. */
int llama_worker(void);

#endif
