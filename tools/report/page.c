/* Pages: directives found and filled, Markdown turned into one HTML file that needs no other. */
#include "report.h"

#include <cmark-gfm-core-extensions.h>
#include <cmark-gfm.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    "body{max-width:46em;margin:2em auto;padding:0 1em;font:16px/1.5 Georgia,serif;color:#222}"
    "h1,h2,h3{font-family:sans-serif;line-height:1.2}table{border-collapse:collapse;font:13px/1.35 "
    "sans-serif;"
    "display:block;overflow-x:auto;margin:1em 0}th,td{border:1px solid #ccc;padding:.25em "
    ".5em;text-align:left;"
    "vertical-align:top}td[align=right],th[align=right]{text-align:right}code{font-size:.85em;"
    "background:#f3f3f3;"
    "overflow-wrap:anywhere}abbr.stale{color:#a33;font-size:.8em;text-decoration:none;border-"
    "bottom:1px dotted}"
    "figure{margin:1em 0}figcaption{font:13px sans-serif;color:#555}svg{max-width:100%;height:auto}"
    "@media "
    "print{body{max-width:none;margin:0;font-size:11pt}table{font-size:8pt;display:table;break-"
    "inside:auto}"
    "tr,figure{break-inside:avoid}}@page{margin:18mm}";

/* Splits "kind\nkey: value\n..." in place. */
static void options_read(struct options *o, char *text) {
    char *save = NULL;
    o->n = 0;
    o->kind = strtok_r(text, " \n", &save);
    for (char *s = strtok_r(NULL, "\n", &save); s && o->n < MAX_OPTIONS;
         s = strtok_r(NULL, "\n", &save)) {
        char *colon = strstr(s, ": ");
        if (!colon) continue;
        *colon = '\0';
        o->key[o->n] = s;
        o->value[o->n++] = colon + 2;
    }
}

static void svg_write(FILE *out, const struct pick *p, const struct options *o) {
    if (!strcmp(o->kind, "bars")) bars_write(out, p, o);
    else points_write(out, p, o);
}

/* A figure stands in the HTML page itself; a Markdown page links a file beside it. */
static void figure_write(FILE *out, const char *path, const struct pick *p, const struct options *o,
                         enum page_mode mode) {
    if (mode == PAGE_HTML) {
        fputs("<figure>\n", out);
        svg_write(out, p, o);
        fputs("</figure>\n", out);
        return;
    }
    char file[512], *text = NULL;
    size_t size = 0;
    const char *slash = strrchr(path, '/'), *name = option(o, "file", NULL);
    if (!name) fail("%s: a figure without 'file'", path);
    snprintf(file, sizeof file, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, name);
    FILE *memory = open_memstream(&text, &size);
    if (!memory) fail("out of memory");
    svg_write(memory, p, o);
    fclose(memory);
    if (mode == PAGE_UPDATE) file_write(file, text);
    else if (strcmp(text, file_read(file)) != 0)
        fail("%s does not show the recorded results: script/report --update", file);
    free(text);
    fprintf(out, "![%s](%s)\n", option(o, "title", ""), name);
}

static void directive_write(FILE *out, const char *path, const struct results *r,
                            const struct options *o, enum page_mode mode) {
    static struct pick p;
    pick_rows(&p, r, o);
    if (!strcmp(o->kind, "table")) table_write(out, &p, o, mode == PAGE_HTML);
    else if (!strcmp(o->kind, "pivot")) pivot_write(out, &p, o, mode == PAGE_HTML);
    else figure_write(out, path, &p, o, mode);
}

static const char *directive_next(const char *s) {
    static const char *const kinds[] = {"<!-- table\n", "<!-- pivot\n", "<!-- bars\n",
                                        "<!-- points\n"};
    const char *first = NULL;
    for (size_t k = 0; k < 4; k++) {
        const char *at = strstr(s, kinds[k]);
        if (at && (!first || at < first)) first = at;
    }
    return first;
}

char *page_fill(const char *path, const struct results *r, enum page_mode mode) {
    bool html = mode == PAGE_HTML;
    const char *text = file_read(path);
    char *filled = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&filled, &size);
    if (!out) fail("out of memory");
    for (const char *at; (at = directive_next(text)) != NULL;) {
        const char *close = strstr(at, "-->\n"),
                   *end = close ? strstr(close, "<!-- end -->\n") : NULL;
        if (!end) fail("%s: a directive without '<!-- end -->'", path);
        struct options o;
        char *inside = strndup(at + 5, (size_t)(close - at - 5));
        if (!inside) fail("out of memory");
        fwrite(text, 1, (size_t)(html ? at - text : close + 4 - text), out);
        options_read(&o, inside);
        fputc('\n', out);
        directive_write(out, path, r, &o, mode);
        fputs(html ? "\n" : "\n<!-- end -->\n", out);
        text = end + strlen("<!-- end -->\n");
    }
    fputs(text, out);
    if (fclose(out)) fail("out of memory");
    return filled;
}

void page_html(FILE *out, const char *markdown) {
    int options = CMARK_OPT_UNSAFE | CMARK_OPT_VALIDATE_UTF8; /* the page's own SVG passes */
    const char *title = !strncmp(markdown, "# ", 2) ? markdown + 2 : "Report";
    cmark_gfm_core_extensions_ensure_registered();
    cmark_parser *parser = cmark_parser_new(options);
    cmark_syntax_extension *tables = cmark_find_syntax_extension("table");
    if (!parser || !tables) fail("libcmark-gfm has no tables");
    cmark_parser_attach_syntax_extension(parser, tables);
    cmark_parser_feed(parser, markdown, strlen(markdown));
    cmark_node *document = cmark_parser_finish(parser);
    char *html = cmark_render_html(document, options, cmark_parser_get_syntax_extensions(parser));
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          out);
    char *head = strndup(title, strcspn(title, "\n"));
    put_xml(out, head ? head : "");
    fprintf(out, "</title>\n<style>%s</style>\n%s</html>\n", style, html);
    free(head);
    free(html);
    cmark_node_free(document);
    cmark_parser_free(parser);
}
