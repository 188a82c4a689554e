#include "cli/args/price_args.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int price_args_read(const char *option, const char *text, double *per_kwh, char *currency,
                    struct err *e) {
    char *end;
    size_t n = 0;
    *per_kwh = strtod(text, &end);
    bool ok = end != text && *per_kwh >= 0 && *per_kwh < 1e6;
    if (currency) {
        if (*end == ' ') end++;
        while (n < PRICE_CURRENCY - 1 && isalpha((unsigned char)end[n])) n++;
        memcpy(currency, end, n);
        currency[n] = 0;
        end += n;
    }
    if (ok && (!*end || strcmp(end, "/kWh") == 0)) return 0;
    return err_set(e, CHIMERE_EINVAL,
                   "--%s: expected a number and /kWh, such as 0.25%s/kWh, got '%.40s'", option,
                   currency ? " EUR" : "", text);
}
