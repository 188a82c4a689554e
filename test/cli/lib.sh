# What the command line tests share: a scratch folder that is the working one, and ways to fail.
# $CHIMERE is the program under test.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# A command that fails without a word is named.
set -E
trap 'echo "$(basename "$0"): line $LINENO: ended with $?: $BASH_COMMAND" >&2' ERR

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
# needs PROGRAM...: skips the rest of the test, by name, unless every program is installed. A test calls it
# once, before anything else; tools/house_rules.py checks that what a test runs is named here.
needs() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null && continue
        echo "skip: $(basename "$0" .sh): no $program; script/setup --test installs it"
        exit 77
    done
}
# refuses STATUS TEXT COMMAND...: the command must end with that status and say TEXT on stderr.
refuses() {
    local want=$1 text=$2 status=0
    shift 2
    "$@" >out 2>err || status=$?
    [ "$status" = "$want" ] || fail "$*: expected status $want, got $status: $(cat err)"
    grep -qF -- "$text" err || fail "$*: expected '$text', got: $(cat err)"
}
