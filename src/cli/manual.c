/* manual.c: man pages and shell completions generated from the option tables. */
#include "cli/manual.h"

#include <stdio.h>
#include <string.h>

/* Options that base/config.h adds to every command. */
static const struct cfg_opt shared_options[] = {
    {"config", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "options from a YAML file (default: chimere/config.yaml in ~/.config, if it exists)"},
    {"help", 'h', CFG_BOOL, NULL, NULL, 0, 0, NULL, "list the options"},
    {0}};

/* ---- walking the tables ---- */

typedef void option_printer(const char *command, const struct cfg_opt *o);

static bool is_listed(const struct cfg_opt *o) {
    return o->type != CFG_ALIAS && o->type != CFG_ELSEWHERE;
}

static void each_option(const char *command, const struct cfg_opt *own, option_printer *print) {
    const struct cfg_opt *tables[CLI_MAX_TABLES];
    cli_tables(own, tables);
    for (int i = 0; tables[i]; i++)
        for (const struct cfg_opt *o = tables[i]; o->name; o++)
            if (is_listed(o)) print(command, o);
    for (const struct cfg_opt *o = shared_options; o->name; o++) print(command, o);
}

static void each_command(option_printer *print) {
    for (const struct cli_command *c = cli_commands; c->name; c++)
        if (c->options) each_option(c->name, c->options, print);
}

static bool names_file(const struct cfg_opt *o) {
    return o->arg && (strstr(o->arg, "FILE") || strstr(o->arg, "DIR") || strstr(o->arg, "FOLDER"));
}

/* Prints text with a backslash before each character of `special`. In zsh's quotes, a quote ends and reopens them. */
static void put_escaped(const char *text, const char *special, bool zsh) {
    for (const char *p = text; *p; p++) {
        if (zsh && *p == '\'') fputs("'\\'", stdout);
        else if (strchr(special, *p)) putchar('\\');
        putchar(*p);
    }
}

/* Prints a list of choices, which are separated by bars, separated by blanks. */
static void put_choices(const char *choices) {
    for (const char *p = choices; *p; p++) putchar(*p == '|' ? ' ' : *p);
}

/* ---- man pages ---- */

/* roff interprets a backslash, and a dot or a quote at the beginning of a line; it may turn a plain '-' into a
 * hyphen. */
static void put_roff(const char *text) {
    bool first = true;
    for (const char *p = text; *p; p++) {
        if (first && (*p == '.' || *p == '\'')) fputs("\\&", stdout);
        if (*p == '\\') fputs("\\e", stdout);
        else if (*p == '-') fputs("\\-", stdout);
        else putchar(*p);
        first = *p == '\n';
    }
}

static void put_heading(const char *name, const char *summary) {
    fputs(".TH CHIMERE", stdout);
    if (name) putchar('-');
    for (const char *p = name ? name : ""; *p; p++)
        putchar(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
    fputs(" 1 \"\" \"chimere " CLI_VERSION "\" \"Chimere manual\"\n.SH NAME\nchimere", stdout);
    if (name) printf("\\-%s", name);
    fputs(" \\- ", stdout);
    put_roff(summary);
    putchar('\n');
}

static void put_option(const char *command, const struct cfg_opt *o) {
    (void)command;
    fputs(".TP\n", stdout);
    if (o->letter) printf("\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", stdout);
    put_roff(o->name);
    fputs("\\fR", stdout);
    if (o->arg) fputs(" \\fI", stdout), put_roff(o->arg), fputs("\\fR", stdout);
    putchar('\n');
    put_roff(o->help);
    if (o->type == CFG_ENUM) fputs(" (", stdout), put_roff(o->choices), putchar(')');
    if (o->def && o->type != CFG_BOOL) fputs(" [", stdout), put_roff(o->def), putchar(']');
    putchar('\n');
}

static void put_status(void) {
    fputs(".SH EXIT STATUS\n0: done. 1: the input is bad, or the answer is no. 2: wrong usage.\n",
          stdout);
}

int manual_overview(void) {
    put_heading(NULL, "local inference system for hybrid language models");
    fputs(".SH SYNOPSIS\n.B chimere\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH COMMANDS\n", stdout);
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        printf(".TP\n.BR chimere\\-%s (1)\n", c->name);
        put_roff(c->summary);
        putchar('\n');
    }
    put_status();
    return 0;
}

int manual_page(const char *name, const struct cfg_opt *own, const char *usage) {
    const struct cli_command *c = cli_commands;
    while (c->name && strcmp(c->name, name) != 0) c++;
    const char *prefix = "usage: ";
    if (strncmp(usage, prefix, strlen(prefix)) == 0) usage += strlen(prefix);
    put_heading(name, c->name ? c->summary : "");
    fputs(".SH SYNOPSIS\n.nf\n", stdout);
    put_roff(usage);
    fputs("\n.fi\n.SH OPTIONS\n", stdout);
    each_option(name, own, put_option);
    fputs(".SH ENVIRONMENT\nEach option is also a variable, \\fBCHIMERE_\\fR and its name in "
          "capitals with "
          "underscores, and a key of the file of \\fB\\-\\-config\\fR. Options override variables, "
          "which override the file.\n",
          stdout);
    put_status();
    fputs(".SH SEE ALSO\n.BR chimere (1)\n", stdout);
    return 0;
}

/* ---- completions ---- */

static void put_name(const char *command, const struct cfg_opt *o) {
    (void)command;
    printf(" --%s", o->name);
}

static void put_bash_choices(const char *command, const struct cfg_opt *o) {
    if (o->type != CFG_ENUM) return;
    printf("    %s/--%s) words='", command, o->name);
    put_choices(o->choices);
    fputs("' ;;\n", stdout);
}

static void complete_bash(void) {
    fputs("# bash completion of chimere: source it, or install it as "
          "bash-completion/completions/chimere\n"
          "_chimere() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\n"
          "    case $command/${COMP_WORDS[COMP_CWORD - 1]} in\n",
          stdout);
    each_command(put_bash_choices);
    fputs("    *)\n        if [ \"$COMP_CWORD\" = 1 ]; then\n            words='", stdout);
    for (const struct cli_command *c = cli_commands; c->name; c++) printf("%s ", c->name);
    fputs("help completion version'\n        elif [[ $cur == -* ]]; then\n"
          "            case $command in\n",
          stdout);
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        if (!c->options) continue;
        printf("            %s) words='", c->name);
        each_option(c->name, c->options, put_name);
        fputs("' ;;\n", stdout);
    }
    fputs("            esac\n        fi\n        ;;\n    esac\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
          "}\ncomplete -o default -F _chimere chimere\n",
          stdout);
}

static void put_zsh(const char *command, const struct cfg_opt *o) {
    (void)command;
    printf("            '%s--%s[", o->type == CFG_LIST ? "*" : "", o->name);
    put_escaped(o->help, "[]:\\", true);
    putchar(']');
    if (o->arg) {
        putchar(':');
        put_escaped(o->arg, "[]:\\", true);
        putchar(':');
        if (o->type == CFG_ENUM) putchar('('), put_choices(o->choices), putchar(')');
        else if (names_file(o)) fputs("_files", stdout);
    }
    fputs("' \\\n", stdout);
}

static void complete_zsh(void) {
    fputs("#compdef chimere\n_chimere() {\n    local -a commands=(\n", stdout);
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        printf("        '%s:", c->name);
        put_escaped(c->summary, ":\\", true);
        fputs("'\n", stdout);
    }
    fputs("    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n        "
          "return\n    fi\n"
          "    local command=$words[2]\n    shift words\n    ((CURRENT--))\n    case $command in\n",
          stdout);
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        if (!c->options) continue;
        printf("    %s)\n        _arguments \\\n", c->name);
        each_option(c->name, c->options, put_zsh);
        fputs("            '*:file:_files'\n        ;;\n", stdout);
    }
    fputs("    esac\n}\n_chimere \"$@\"\n", stdout);
}

static void put_fish(const char *command, const struct cfg_opt *o) {
    printf("complete -c chimere -n '__fish_seen_subcommand_from %s' -l %s", command, o->name);
    if (o->letter) printf(" -s %c", o->letter);
    if (o->type == CFG_ENUM) fputs(" -x -a '", stdout), put_choices(o->choices), putchar('\'');
    else if (o->arg) fputs(names_file(o) ? " -r -F" : " -x", stdout);
    fputs(" -d '", stdout);
    put_escaped(o->help, "'\\", false);
    fputs("'\n", stdout);
}

static void complete_fish(void) {
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        printf("complete -c chimere -f -n __fish_use_subcommand -a %s -d '", c->name);
        put_escaped(c->summary, "'\\", false);
        fputs("'\n", stdout);
    }
    each_command(put_fish);
}

int manual_completion(const char *shell) {
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", complete_bash}, {"zsh", complete_zsh}, {"fish", complete_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shell, shells[i].name) != 0) continue;
        shells[i].print();
        return 0;
    }
    fprintf(stderr, "chimere: completion: unknown shell '%s'\n  bash, zsh or fish\n", shell);
    return 2;
}
