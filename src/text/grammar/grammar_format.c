/* grammar_format.c: the formats of JSON Schema as patterns for the whole text.
 *
 * date and time are exact (leap years; leap seconds only at 23:59:60 UTC). Host names follow the syntax of RFC
 * 1123. Labels of the form ??-- (encoded internationalised names) are not allowed, because their letters alone do
 * not show whether they are valid. */
#include <string.h>

#include "text/grammar/grammar_schema_impl.h"

#define H16 "[0-9A-Fa-f]{1,4}"
#define BYTE_DEC "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 "(?:" BYTE_DEC "\\." BYTE_DEC "\\." BYTE_DEC "\\." BYTE_DEC ")"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"

#define YEAR_LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-" \
    "9]|30)"                                                                                       \
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))|" YEAR_LEAP "-02-29)"
#define HOUR_MINUTE "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME                                                                                       \
    "(?:" HOUR_MINUTE ":[0-5][0-9](?:\\.[0-9]+)?(?:[zZ]|[+\\-]" HOUR_MINUTE ")"                    \
    "|23:59:60(?:\\.[0-9]+)?(?:[zZ]|[+\\-]00:00))"
#define DUR_TIME "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DUR_DATE "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)"

#define ALNUM "[A-Za-z0-9]"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-]"
#define DOMAIN                                                                                     \
    "(?:" ALNUM "(?:[A-Za-z0-9\\-]{0,61}" ALNUM ")?(?:\\." ALNUM "(?:[A-Za-z0-9\\-]{0,61}" ALNUM   \
    ")?)*)"
#define EMAIL                                                                                      \
    "(?:" ATEXT "+(?:\\." ATEXT "+)*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")@(?:" DOMAIN "|\\[" IPV4    \
    "\\]|\\[IPv6:" IPV6 "\\])"

#define PCT "%[0-9A-Fa-f]{2}"
#define PCHAR(more) "(?:[A-Za-z0-9\\-._~!$&'()*+,;=:@" more "]|" PCT ")"
#define UCS                                                                                        \
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}"      \
    "\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}"
#define PRIVATE "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"
#define SCHEME "[A-Za-z][A-Za-z0-9+.\\-]*:"
#define HOST(more)                                                                                 \
    "(?:\\[(?:" IPV6 "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9\\-._~!$&'()*+,;=:]+)\\]"                      \
    "|(?:[A-Za-z0-9\\-._~!$&'()*+,;=" more "]|" PCT ")*)"
#define AUTHORITY(more)                                                                            \
    "//(?:(?:[A-Za-z0-9\\-._~!$&'()*+,;=:" more "]|" PCT ")*@)?" HOST(more) "(?::[0-9]*)?"
#define TAIL(more, private)                                                                        \
    "(?:\\?(?:" PCHAR("/?" more private) ")*)?(?:#(?:" PCHAR("/?" more) ")*)?"
#define ABSOLUTE(more) "/(?:" PCHAR(more) "+(?:/" PCHAR(more) "*)*)?"
#define HIER(more)                                                                                 \
    "(?:" AUTHORITY(more) "(?:/" PCHAR(more) "*)*|" ABSOLUTE(more) "|" PCHAR(more) "+(?:/" PCHAR(  \
        more) "*)*)?"
#define RELATIVE(more)                                                                             \
    "(?:" AUTHORITY(more) "(?:/" PCHAR(more) "*)*|" ABSOLUTE(                                      \
        more) "|(?:[A-Za-z0-9\\-._~!$&'()*+,;=@" more "]|" PCT ")+(?:/" PCHAR(more) "*)*)?"
#define URI(more, private) SCHEME HIER(more) TAIL(more, private)
#define URI_REFERENCE(more, private)                                                               \
    "(?:" SCHEME HIER(more) "|" RELATIVE(more) ")" TAIL(more, private)
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "[tT]" TIME},
    {"duration", "P(?:[0-9]+W|" DUR_DATE "(?:" DUR_TIME ")?|" DUR_TIME ")"},
    {"email", EMAIL},
    {"hostname", DOMAIN},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", URI("", "")},
    {"uri-reference", URI_REFERENCE("", "")},
    {"iri", URI(UCS, PRIVATE)},
    {"iri-reference", URI_REFERENCE(UCS, PRIVATE)},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")"},
};

const char *schema_format_pattern(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].pattern;
    return NULL;
}
