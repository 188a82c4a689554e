/* fields_read.c: reads values of one JSON type; an error begins with the field's name. */
#include <math.h>
#include <string.h>

#include "serve/fields/fields_impl.h"

int fields_expected(struct err *e, const char *name, const char *what) {
    return err_set(e, CHIMERE_EINVAL, "%s: expected %s", name, what);
}

int fields_bool(const json_t *v, const char *name, bool *out, struct err *e) {
    if (!json_is_boolean(v)) return fields_expected(e, name, "true or false");
    *out = json_is_true(v);
    return 0;
}

int fields_int(const json_t *v, const char *name, double low, double high, int64_t *out,
               struct err *e) {
    double x = json_number_value(v);
    bool whole = json_is_integer(v) || (json_is_real(v) && x == floor(x));
    if (!whole || x < low || x > high)
        return err_set(e, CHIMERE_EINVAL, "%s: expected a whole number from %.0f to %.0f", name,
                       low, high);
    *out = json_is_integer(v) ? json_integer_value(v) : (int64_t)x;
    return 0;
}

int fields_str(struct fields *f, const json_t *v, const char *name, size_t max, const char **out,
               struct err *e) {
    size_t n = json_string_length(v);
    if (!json_is_string(v) || !n || n > max)
        return err_set(e, CHIMERE_EINVAL, "%s: expected a text of 1 to %zu bytes", name, max);
    *out = arena_strndup(&f->request->arena, json_string_value(v), n);
    return *out ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}
