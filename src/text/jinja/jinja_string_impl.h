/* jinja_string_impl.h: text with provenance (jinja_string.c), numbers and formats (jinja_format.c). */
#ifndef CHIMERE_TEXT_JINJA_JINJA_STRING_IMPL_H
#define CHIMERE_TEXT_JINJA_JINJA_STRING_IMPL_H

#include "text/jinja/jinja_value_impl.h"

/* jinja_string.c: text. Builders write to the top of r->out. */
struct jv jv_text(struct jr *r, const char *p, size_t n, bool tmpl); /* copies */
/* does not copy p */
struct jv jv_view(struct jr *r, const char *p, size_t n, bool tmpl);
struct jv jv_slice(struct jr *r, const struct jstr *s, size_t from, size_t to); /* bytes */
struct jv jstr_escape(struct jr *r, struct jstr *s); /* HTML; the result is markup */
struct jv jstr_concat(struct jr *r, const struct jstr *a, const struct jstr *b);
size_t jb_begin(struct jr *r);
struct jv jb_end(struct jr *r, size_t outer); /* returns everything put since jb_begin */
void jb_put(struct jr *r, const char *p, size_t n, bool tmpl);
/* appends as computed text, which is not from the template */
void jb_puts(struct jr *r, const char *s);
void jb_put_jstr(struct jr *r, const struct jstr *s, size_t from, size_t to);
void jb_put_value(struct jr *r, struct jv v); /* appends like str() */
void jb_put_repr(struct jr *r, struct jv v);
struct jstr *jv_to_str(struct jr *r, struct jv v); /* str(); never NULL (empty after a failure) */
size_t jstr_len(struct jstr *s);                   /* code points */
size_t jstr_offset(struct jstr *s, size_t i_char); /* byte offset of code point i; n past the end */
bool jstr_eq(const struct jstr *a, const char *p, size_t n);
bool py_is_space(uint32_t cp);
size_t jstr_find(const struct jstr *s, const struct jstr *sub, size_t from,
                 size_t to); /* SIZE_MAX: not found */
size_t jstr_rfind(const struct jstr *s, const struct jstr *sub, size_t from, size_t to);
struct jv jstr_strip(struct jr *r, struct jstr *s, const struct jstr *chars,
                     int sides); /* sides: 1 left, 2 right */
struct jv jstr_replace(struct jr *r, struct jstr *s, struct jstr *old, struct jstr *new_text,
                       int64_t count);
enum jcase { JC_UPPER, JC_LOWER, JC_TITLE, JC_CAPITALIZE, JC_SWAP, JC_FOLD, JC_TITLE_FILTER };
struct jv jstr_case(struct jr *r, struct jstr *s, enum jcase how);
struct jv jstr_lines(struct jr *r, struct jstr *s, bool keep);
/* Returns +1 if all cased characters are upper case, -1 if all are lower case, 0 otherwise. */
int jstr_case_kind(const struct jstr *s);

/* jinja_format.c */
size_t jf_float_repr(char out[40], double f);
struct jv jf_percent(struct jr *r, struct jstr *fmt, struct jv args);
struct jv jf_format(struct jr *r, struct jstr *fmt, const struct jcall *call,
                    const struct jdict *named);
bool jf_parse_float(const char *p, size_t n, double *out); /* like Python's float() */
/* Like Python's int(): 0, or -1 if malformed, -2 if beyond 64 bits. */
int jf_parse_int(const char *p, size_t n, int base, int64_t *out);

#endif
