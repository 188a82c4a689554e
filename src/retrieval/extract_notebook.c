/* extract_notebook.c: extracts the cells of a Jupyter notebook: prose unchanged, code between fences. Outputs are
 * left out, because they repeat what the code says and contain images. */
#include <jansson.h>
#include <string.h>

#include "retrieval/extract_impl.h"
#include "text/chat/chat.h"

static void put_source(struct buf *out, const json_t *source) {
    size_t i;
    json_t *line;
    if (json_is_string(source))
        extract_put_clean(out, json_string_value(source), json_string_length(source));
    json_array_foreach((json_t *)source, i, line) {
        if (json_is_string(line))
            extract_put_clean(out, json_string_value(line), json_string_length(line));
    }
    extract_new_line(out);
}

int extract_notebook(struct extract *x, const char *data, size_t n, struct err *e) {
    json_t *o = chat_json_object(data, n, "notebook", e), *cell;
    json_t *cells = json_object_get(o, "cells");
    size_t i;
    int rc = json_is_array(cells) ? 0 : CHIMERE_EFORMAT;
    if (o && rc) err_set(e, rc, "notebook: expected cells");
    json_array_foreach(cells, i, cell) {
        const char *type = json_string_value(json_object_get(cell, "cell_type"));
        bool code = type && !strcmp(type, "code");
        if (x->text.n) buf_putc(&x->text, '\n');
        if (code) buf_puts(&x->text, "```\n");
        put_source(&x->text, json_object_get(cell, "source"));
        if (code) buf_puts(&x->text, "```\n");
    }
    json_decref(o);
    return rc;
}
