# What the command line tests share: a scratch folder that is the working one, and ways to fail.
# $CHIMERE is the program under test.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# Tests run at once, and on machines whose user has a store and models: each test has a folder of its own for them.
export XDG_DATA_HOME=$work/.data
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
# start_server ARG...: starts `chimere serve` with nano on a free port and sets server (its process) and url. Its output
# is in out; what it reports is added to said. A test that calls it ends with stop_server (trap).
server=
start_server() {
    : >out
    "$CHIMERE" serve -m nano --port 0 "$@" >out 2>>said &
    server=$!
    for ((i = 0; i < 600; i++)); do
        ! grep -q 'listens on' out || break
        kill -0 "$server" || fail "the server ended: $(cat said)"
        sleep 0.2
    done
    url=$(sed -n 's/.*listens on \(http[^ ]*\) .*/\1/p' out)
    [ -n "$url" ] || fail "the server does not start: $(cat said)"
}
stop_server() {
    [ -z "$server" ] || kill -TERM "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    server=
}
# answered_day: day.db, a store with a day's scored answers about thirty people, which a night can learn.
answered_day() {
    "$CHIMERE" odo log --db day.db >/dev/null # makes the store
    python3 - <<'PY'
import sqlite3, time
db = sqlite3.connect("day.db")
names = [a + b for a in ("Mira", "Tolo", "Kesh", "Varn", "Ilo", "Brem") for b in ("na", "dor", "vik", "lis", "mar")]
towns = ("Sago", "Tiral", "Venn", "Oskar", "Lumo")
rows = [(f"Where does {n} live?", f"{n} lives in {towns[i % 5]}.") for i, n in enumerate(names)]
rows += [(f"In which town is the house of {n}?", f"The house of {n} is in {towns[i % 5]}.") for i, n in enumerate(names)]
for k, (q, a) in enumerate(rows):
    db.execute("INSERT INTO quality(at_ms, parent, name, route, model, origin, question, answer, score, judge)"
               " VALUES(?, 0, ?, '', 'nano', 'answer', ?, ?, 0.9, 'nano')", (int(time.time() * 1000), f"a{k}", q, a))
db.commit()
PY
}
# long_day: the same with sixty people and three forms of question, enough for steps that hold many answers out.
long_day() {
    "$CHIMERE" odo log --db day.db >/dev/null # makes the store
    python3 - <<'PY'
import sqlite3, time
db = sqlite3.connect("day.db")
names = [a + b for a in ("Mira", "Tolo", "Kesh", "Varn", "Ilo", "Brem", "Sul", "Otha", "Quen", "Rada", "Wes", "Yor") for b in ("na", "dor", "vik", "lis", "mar")]
towns = ("Sago", "Tiral", "Venn", "Oskar", "Lumo")
rows = [(q.format(n), a.format(n, towns[i % 5])) for q, a in (
    ("Where does {} live?", "{} lives in {}."), ("In which town is the house of {}?", "The house of {} is in {}."),
    ("Where would I find {}?", "You would find {} in {}.")) for i, n in enumerate(names)]
for k, (q, a) in enumerate(rows):
    db.execute("INSERT INTO quality(at_ms, parent, name, route, model, origin, question, answer, score, judge)"
               " VALUES(?, 0, ?, '', 'nano', 'answer', ?, ?, 0.9, 'nano')", (int(time.time() * 1000), f"a{k}", q, a))
db.commit()
PY
}
# refuses STATUS TEXT COMMAND...: the command must end with that status and say TEXT on stderr.
refuses() {
    local want=$1 text=$2 status=0
    shift 2
    "$@" >out 2>err || status=$?
    [ "$status" = "$want" ] || fail "$*: expected status $want, got $status: $(cat err)"
    grep -qF -- "$text" err || fail "$*: expected '$text', got: $(cat err)"
}
