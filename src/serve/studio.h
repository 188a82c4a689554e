/* studio.h: serves the page at / from memory. Its files are embedded in the program, compressed
 * (cmake/studio.cmake). */
#ifndef CHIMERE_SERVE_STUDIO_H
#define CHIMERE_SERVE_STUDIO_H

#include "serve/http/http.h"

struct studio_file {
    const char *path; /* below /studio/ */
    const char *etag; /* quoted */
    const unsigned char *from, *to;
};
extern const struct studio_file studio_files[]; /* generated; ends with a NULL path */

/* GET /: the page if the client accepts HTML, else the server's health. */
void studio_home(struct http_request *r);
/* GET /studio/...: a file of the page. */
void studio_asset(struct http_request *r);

#endif
