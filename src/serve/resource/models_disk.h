/* models_disk.h: /chimere/v1/models: lists the files in the models directory with the memory that each would take, and
 * downloads models from a hub. */
#ifndef CHIMERE_SERVE_RESOURCE_MODELS_DISK_H
#define CHIMERE_SERVE_RESOURCE_MODELS_DISK_H

#include "serve/http/http.h"

/* The folder of downloaded models. */
int models_disk_dir(const struct server *s, char *out, size_t n, struct err *e);
void models_disk_list(struct http_request *r);
void models_disk_pull(struct http_request *r);

#endif
