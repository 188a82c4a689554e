/* price_args.h: the price of a kilowatt-hour on the command line. */
#ifndef CHIMERE_CLI_PRICE_ARGS_H
#define CHIMERE_CLI_PRICE_ARGS_H

#include "base/err.h"

enum { PRICE_CURRENCY = 8 };

/* Parses "0.25", "0.25/kWh" or "0.25 EUR/kWh". currency [PRICE_CURRENCY]: "" if there is none; NULL: none is allowed. */
int price_args_read(const char *option, const char *text, double *per_kwh, char *currency,
                    struct err *e);

#endif
