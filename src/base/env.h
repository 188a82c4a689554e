/* env.h: what a program that this one becomes finds in its environment. Before any thread is started. */
#ifndef CHIMERE_BASE_ENV_H
#define CHIMERE_BASE_ENV_H

int env_set(const char *name, const char *value); /* NULL: removes it. 0 or CHIMERE_ENOMEM */

#endif
