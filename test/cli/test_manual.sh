#!/bin/bash
# test_manual.sh: man pages and shell completions have every command and every option of the help.
set -eu
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

"$CHIMERE" help --man > chimere.1
"$CHIMERE" --help | sed -n 's/^  \([a-z]*\)  *.*/\1/p' > commands
[ "$(wc -l < commands)" -gt 20 ] || fail "commands: $(cat commands)"
for shell in bash zsh fish; do "$CHIMERE" completion $shell > "completion.$shell"; done
while read -r command; do
    grep -q "^\.BR chimere.-$command (1)" chimere.1 || fail "$command is not in the overview"
    "$CHIMERE" help --man "$command" > page || fail "$command: no page"
    grep -q '^\.SH SYNOPSIS' page || fail "$command: no synopsis"
    "$CHIMERE" "$command" --help | sed -n 's/^  *\(-., \)*--\([a-z0-9-]*\) .*/\2/p' > options
    [ -s options ] || fail "$command: no options"
    grep -E "^ +$command\) words=' " completion.bash > bash_words || fail "$command: not in bash"
    while read -r option; do
        grep -qF -- "fB\\-\\-${option//-/\\-}\\fR" page || fail "$command: --$option is not in the page"
        grep -qE -- " --$option( |')" bash_words || fail "$command: --$option is not in bash"
        grep -qE -- "_from $command' -l $option( |\$)" completion.fish || fail "$command: --$option is not in fish"
        grep -qF -- "--$option[" completion.zsh || fail "$command: --$option is not in zsh"
    done < options
done < commands

# bash itself completes from it
complete_words() { # WORD...: what is offered for the last one
    bash --norc -c '. ./completion.bash; COMP_WORDS=(chimere "$@"); COMP_CWORD=$#; _chimere; echo "${COMPREPLY[*]}"' - "$@"
}
[ "$(complete_words toke)" = tokenize ] || fail "bash: commands"
[ "$(complete_words serve --log-l)" = --log-level ] || fail "bash: options"
[ "$(complete_words serve --log-level de)" = debug ] || fail "bash: choices"
[ -z "$(complete_words run fil)" ] || fail "bash: files are left to the shell"

refuses 2 "unknown shell 'csh'" "$CHIMERE" completion csh
refuses 2 "unknown command 'rum'" "$CHIMERE" help --man rum
[ "$("$CHIMERE" help tokenize)" = "$("$CHIMERE" tokenize --help)" ] || fail "help COMMAND"

# syntax, by the programs that read it, if they are installed
for shell in zsh fish; do
    if command -v $shell > /dev/null; then $shell -n "completion.$shell" || fail "$shell: syntax"; fi
done
if command -v mandoc > /dev/null; then mandoc -T lint -W error page || fail "mandoc"; fi
