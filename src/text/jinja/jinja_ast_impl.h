/* jinja_ast_impl.h: tokens, the syntax tree, a compiled template. */
#ifndef CHIMERE_TEXT_JINJA_JINJA_AST_IMPL_H
#define CHIMERE_TEXT_JINJA_JINJA_AST_IMPL_H

#include "text/jinja/jinja_value_impl.h"

enum jn_kind {           /* a, b, c, list: children */
               JN_CONST, /* value */
               JN_NAME,  /* name */
               JN_TUPLE,
               JN_LIST,
               JN_CONCAT, /* list */
               JN_DICT,   /* list: key, value, key, value */
               JN_NEG,
               JN_POS,
               JN_NOT, /* a */
               JN_AND,
               JN_OR,      /* a, b */
               JN_BINARY,  /* op: token; a, b */
               JN_COMPARE, /* a, list of JN_OPERAND (op, a) */
               JN_OPERAND,
               JN_COND,    /* a if b else c; c may be NULL */
               JN_GETATTR, /* a, name */
               JN_GETITEM, /* a, b */
               JN_SLICE,   /* a:b:c, each may be NULL; only below JN_GETITEM */
               JN_CALL,    /* a, args */
               JN_FILTER,  /* a (NULL in filter blocks), fn, name, args */
               JN_TEST,    /* a, fn, name, args */
               JN_NSREF,   /* name.name2, as the target of an assignment */
               /* statements */
               JN_DATA,   /* value */
               JN_OUTPUT, /* list of expressions */
               JN_IF,     /* a, list = body, c = next JN_IF or JN_BODY of else */
               JN_BODY,   /* list */
               JN_FOR, /* a target, b iterable, c test or NULL, list body, args->pos else; op: recursive */
               JN_SET,          /* a target, b value */
               JN_SET_BLOCK,    /* a target, b filter chain or NULL, list body */
               JN_MACRO,        /* macro */
               JN_CALL_BLOCK,   /* a call, macro */
               JN_FILTER_BLOCK, /* b filter chain, list body */
               JN_WITH,         /* args: targets in list2, values; list body */
               JN_SCOPE,        /* generation block: list */
               JN_BREAK,
               JN_CONTINUE,
};

struct jnode;
struct jkw {
    struct jstr *name;
    struct jnode *value;
};
struct jhidden {   /* names that are unset at the start of a scope */
    uint32_t *ids; /* [n] */
    uint32_t n;
};
struct jargs {
    struct jnode **pos; /* [n_pos] */
    struct jkw *kw;     /* [n_kw] */
    struct jnode *star, *star2;
    uint32_t n_pos, n_kw;
    struct jhidden hidden; /* for the else part of a loop, whose body is pos */
};
struct jparam {
    uint32_t name;
    struct jstr *text;
    struct jnode *def; /* or NULL */
};
struct jmacro_def {
    struct jstr *name; /* NULL: the caller of a call block */
    struct jparam *params;
    struct jnode **body;
    uint32_t n_param, n_body;
    bool uses_varargs, uses_kwargs, uses_caller, has_caller_param;
    struct jhidden hidden;
};
struct jnode {
    uint8_t kind, op;
    uint16_t height; /* height of the expression below, which bounds recursion */
    uint32_t line;
    uint32_t name, name2; /* ids of interned names */
    uint32_t n;           /* of list */
    struct jnode *a, *b, *c;
    struct jnode **list;
    struct jargs *args;
    struct jhidden hidden; /* for the scope that the statement opens */
    union {
        struct jv value;
        const struct jbuiltin *fn;
        struct jmacro_def *macro;
    };
};

#define JINJA_MAX_HEIGHT 300 /* of one expression, and of nested statements */

struct jinja {
    struct arena arena;
    struct map ids;      /* name -> id */
    struct jstr **names; /* [n_name] */
    uint32_t n_name, cap_name;
    struct jnode **body;
    uint32_t n_body;
    struct jstr **literals; /* [n_literal] */
    uint32_t n_literal, cap_literal;
    uint32_t id_loop, id_caller, id_varargs, id_kwargs;
    struct jhidden hidden;
};

/* tokens; operator tokens are also the ops of JN_BINARY and JN_OPERAND */
enum jtok_kind {
    JT_EOF,
    JT_DATA,
    JT_VAR_BEGIN,
    JT_VAR_END,
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_NAME,
    JT_STRING,
    JT_INT,
    JT_FLOAT,
    JT_ADD,
    JT_SUB,
    JT_DIV,
    JT_FLOORDIV,
    JT_MUL,
    JT_MOD,
    JT_POW,
    JT_TILDE,
    JT_LBRACKET,
    JT_RBRACKET,
    JT_LPAREN,
    JT_RPAREN,
    JT_LBRACE,
    JT_RBRACE,
    JT_EQ,
    JT_NE,
    JT_GT,
    JT_GE,
    JT_LT,
    JT_LE,
    JT_ASSIGN,
    JT_DOT,
    JT_COLON,
    JT_PIPE,
    JT_COMMA,
    JT_SEMICOLON,
    JT_IN,
    JT_NOTIN,
};
struct jtok {
    uint8_t kind;
    uint32_t line;
    struct slice text; /* view into the arena or the source; strings have no escapes */
    int64_t i;
    double f;
};
/* Splits normalised source (only \n) into *toks (arena), ended by JT_EOF. */
int jinja_lex(struct arena *a, const char *src, size_t n, struct jtok **toks, size_t *n_tok,
              struct err *e);
const char *jtok_name(enum jtok_kind k);
void jinja_scopes(struct jinja *j); /* jinja_scope.c */
int jinja_parse(struct jinja *j, struct jtok *toks, size_t n_tok, struct err *e);

#endif
