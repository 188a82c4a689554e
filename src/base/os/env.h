/* env.h: sets environment variables for a program that this process will execute. Call before any thread is started. */
#ifndef CHIMERE_BASE_ENV_H
#define CHIMERE_BASE_ENV_H

/* NULL: removes it. Returns 0 or CHIMERE_ENOMEM */
int env_set(const char *name, const char *value);

#endif
