/* bench_url.h: a load generator against a server that speaks OpenAI's API. */
#ifndef CHIMERE_CLI_BENCH_URL_H
#define CHIMERE_CLI_BENCH_URL_H

#include "cli/cli.h"

/* clang-format off */
#define LOAD_OPTIONS                                                                               \
    {"concurrency", 0, CFG_STR, "LIST", "1,8", 0, 0, NULL, "with --url: numbers of concurrent streams, one row each"}, \
    {"requests", 0, CFG_INT, "N", "0", 0, 1 << 24, NULL, "with --url: requests per row; 0: 4 per stream, at least 16"}, \
    {"rate", 0, CFG_FLOAT, "N", "0", 0, 1e6, NULL, "with --url: arrivals per second, at random; 0: a stream sends its next request when one ends"}
/* clang-format on */

int bench_url(const struct cfg *c, struct err *e);

#endif
