#!/usr/bin/env bash
# chat: a conversation through a pipe, and one in a terminal: editing, history, stopping, commands.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3
session=chimere-test-$$
n_terminal=0
# shellcheck disable=SC2317
cleanup() {
    for i in $(seq "$n_terminal"); do tmux -L "$session-$i" kill-server 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT
export XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config

expect() { grep -qF -- "$1" "$2" || fail "expected '$1' in $2: $(cat "$2")"; }

# ---- a pipe: answers only, one a message ----
printf 'What is 12 + 30?\n' >q
"$CHIMERE" chat --temp 0 -q <q >one 2>err || fail "$(cat err)"
expect 42 one
[ "$(LC_ALL=C tr -d '\n\40-\176' <one | wc -c)" = 0 ] || fail "escape sequences in a pipe"
"$CHIMERE" run --temp 0 -q -p "What is 12 + 30?" >run
[ "$(cat one)" = "$(cat run)" ] || fail "chat says '$(cat one)', run says '$(cat run)'"

# messages of several lines; commands; the saved file is the conversation
cat >script <<'END'
/system Be brief.
"""My name is
Bob."""
What is \
my name?
/save saved.json
/undo
/save undone.json
END
"$CHIMERE" chat --temp 0 -q <script >out 2>err || fail "$(cat err)"
python3 - <<'END' || fail "saved files"
import json
m = json.load(open("saved.json"))["messages"]
assert [x["role"] for x in m] == ["system", "user", "assistant", "user", "assistant"], m
assert m[0]["content"] == "Be brief." and m[1]["content"] == "My name is\nBob.", m
assert m[3]["content"] == "What is \nmy name?", m
assert "".join(x["content"].lstrip("\n") + "\n" for x in (m[2], m[4])) == open("out").read(), m
assert json.load(open("undone.json"))["messages"] == m[:3]
END
# loading it and asking again gives the same answer, as does regenerating one
printf '/load undone.json\nWhat is \\\nmy name?\n/regen\n' | "$CHIMERE" chat --temp 0 -q >again
[ "$(tail -n 1 out)" = "$(tail -n 1 again)" ] || fail "the loaded conversation went on differently"
[ "$(wc -l <again)" = 2 ] && [ "$(sort -u again | wc -l)" = 1 ] || fail "regen: $(cat again)"

# thinking is not shown in a pipe
printf 'What is 17 + 25?\n' | "$CHIMERE" chat --temp 0 -q --think >thought
grep -qi think thought && fail "thinking in a pipe: $(cat thought)"
expect 42 thought

refused() {
    local want=$1
    if printf '%s\n' "$2" | "$CHIMERE" chat --temp 0 -q >out 2>err; then fail "'$2' was taken"; fi
    expect "$want" err
}
refused "unknown command '/nope'" "/nope"
refused "unknown setting 'colour'" "/set colour red"
refused "temp: expected a number from 0 to 100, got 'hot'" "/set temp hot"
refused "no-such-file: cannot open" "/load no-such-file"
echo '{"messages": [{"content": "x"}]}' >bad.json
refused "message 0 has no role" "/load bad.json"
refused "there is no message to answer yet" "/regen"
refused "expected valid UTF-8" $'a \xff b'

# ---- a terminal ----
needs tmux
t() { tmux -L "$session-$n_terminal" "$@"; }
screen() { t capture-pane -p -S -200 -t x >screen; }
await() { # TEXT [COUNT]: until it stands on the screen that often
    for _ in $(seq 600); do
        screen
        [ "$(grep -cF -- "$1" screen)" -ge "${2:-1}" ] && return
        sleep 0.1
    done
    fail "the terminal never showed '$1': $(cat screen)"
}
start() { # ENVIRONMENT ARGS...: a chat in a fresh terminal
    local environment=$1
    shift
    n_terminal=$((n_terminal + 1)) # a server each: one that is being killed refuses sessions
    t -f /dev/null new-session -d -x 100 -y 40 -s x \
        "env $environment XDG_DATA_HOME=$XDG_DATA_HOME $CHIMERE chat -q --temp 0 $*; echo left with \$?; sleep 60"
    await '>>>'
}
type_line() {
    t send-keys -t x -l "$1"
    t send-keys -t x Enter
}

start "A=1"
await "Ctrl-D leaves"
# editing: a typo mended with the arrow keys, accents, history by the up key
t send-keys -t x -l 'What is 12 + 3?'
t send-keys -t x Left
t send-keys -t x -l '0'
t send-keys -t x Enter
await '42'
type_line '/system été'
type_line '/system'
await 'été' 2
t send-keys -t x Up Up Up Enter
await '42' 2
# Ctrl-C drops the line that is being typed
t send-keys -t x -l 'never sent'
t send-keys -t x C-c
await 'never sent^C'
type_line '/show'
await 'assistant:' 2
screen
grep -q 'user:.*never sent' screen && fail "a dropped line was sent"
# pasted lines are one message
t set-buffer $'/system one\ntwo'
t paste-buffer -p -t x
t send-keys -t x Enter
type_line '/system'
await 'two' 2
# completion
t send-keys -t x -l '/sys'
t send-keys -t x Tab Enter
await '>>> /system'
# thinking shows, between two lines that say so
type_line '/think on'
await 'Thinking is on.'
type_line '/reset'
type_line 'What is 17 + 25?'
await '...done thinking.'
await '>>>' 11
# what an answer costs
type_line '/stats'
await 'tokens, '
t send-keys -t x C-d
await 'left with 0'

# the next chat knows what was typed in the last one
[ "$(stat -c %a data/chimere/chat_history)" = 600 ] || fail "history: mode $(stat -c %a data/chimere/chat_history)"
start "A=1"
t send-keys -t x Up
await '>>> /stats'
t send-keys -t x C-c
type_line '/quit'
await 'left with 0'

# Ctrl-C stops an answer that would run on, and the chat goes on
start "A=1" --ignore-eos --ctx 30000
type_line 'Tell me a story.'
for _ in $(seq 600); do # until the answer's first line stands there
    screen
    [ "$(grep -c . screen)" -ge 3 ] && break
    sleep 0.1
done
t send-keys -t x C-c
await '(stopped)'
type_line '/stats'
await 'tokens, '
type_line '/quit'
await 'left with 0'

# colours: only where they are wanted
start "A=1" --no-history
t capture-pane -e -p -t x >colors
grep -q $'\033\\[1m' colors || fail "the prompt has no colour: $(cat colors)"
start "NO_COLOR=1" --no-history
t capture-pane -e -p -t x >colors
grep -q $'\033' colors && fail "NO_COLOR: $(cat colors)"
echo "chat: ok"
