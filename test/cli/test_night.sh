#!/usr/bin/env bash
# night: a day's answers become a table that serves after it was measured, and goes again by rollback.
# test_night.sh [KILLS]: nights that are killed at random moments, 20.
set -euo pipefail
kills=${1:-20}
trainer=$(cd "$(dirname "$0")/../../train/dflash" && pwd)/train.py
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 flock

night() { "$CHIMERE" night "$@" --night-dir nights; }

night status | grep 'nothing was promoted' >/dev/null || fail "status before any night"
refuses 1 'there was no night yet' night report
answered_day
python3 - <<'PY'
import sqlite3, time
db = sqlite3.connect("day.db")
db.execute("INSERT INTO quality(at_ms, parent, name, route, model, origin, question, answer, score, judge)"
           " VALUES(?, 0, 'low', '', 'nano', 'answer', 'Is it?', 'No.', 0.1, 'nano')", (int(time.time() * 1000),))
db.execute("INSERT INTO quality(at_ms, parent, name, route, model, origin, question, answer, score, judge)"
           " VALUES(?, 0, 'old', '', 'nano', 'answer', 'Where did Zorbani live?', 'Zorbani lived in Quentar.', 0.9, 'nano')",
           (int((time.time() - 91 * 86400) * 1000),))
db.commit()
PY

run=(run -m nano --db day.db -q -n 2 --steps engram)
refuses 2 'such as 0.25 EUR/kWh' night "${run[@]}" --price cheap
refuses 2 'such as 0.25 EUR/kWh' night "${run[@]}" --price '0.25 EUR<b>'
energy=() enough=()
if [ -r "${FAKE_NVML:-}" ]; then # a stand-in for NVIDIA's library: a night without a counter has no energy to pay
    mkdir lib
    ln -s "$FAKE_NVML" lib/libnvidia-ml.so.1
    energy=(env "LD_LIBRARY_PATH=$PWD/lib")
    enough=(--max-energy 1e6)
fi
"${energy[@]}" "$CHIMERE" night "${run[@]}" --night-dir nights --price '7.2 EUR/kWh' "${enough[@]}" --dry-run >dry
[ -z "${energy[*]}" ] || grep -q 'energy    .* kWh, .* EUR at 7.2 EUR per kWh' dry || fail "energy: $(cat dry)"
grep -q 'engram .*promoted: ' dry || fail "dry run: $(cat dry)"
night status --db day.db >shown
grep -q 'nothing was promoted' shown || fail "a dry run changed what serves"
if grep -q '^step' shown; then fail "a dry run left a job: $(cat shown)"; fi
night "${run[@]}" >first
night status --db day.db | grep '^step *engram done, begun .*: +[0-9.]* nats per token on [0-9]* held-out answers$' >/dev/null || fail "jobs: $(night status --db day.db)"
if ! grep -q '^  energy' first; then
    refuses 1 'energy cannot be measured: ' night "${run[@]}" --max-energy 5
    refuses 1 'energy cannot be measured: ' "$CHIMERE" serve -m nano --port 0 --night --night-dir nights --night-max-energy 5
fi
grep -q 'p 0\.0[0-9]*, less than 0.0250 is needed; a gain of ' first || fail "power: $(cat first)"
grep -q 'a fall of [0-9.]* points would be seen' first || fail "power of the suites: $(cat first)"
grep -q '1 below worth' first || fail "what was read: $(cat first)"
night report | cmp - first || fail "report is not what run printed: $(night report)"
night report --html page.html
grep -q '<svg' page.html && grep -q 'Something better was promoted' page.html || fail "page: $(head -c 600 page.html)"
if grep -qE '<script|https?://[^w]' page.html; then fail "the page asks for something"; fi
python3 -c 'import html.parser; p = html.parser.HTMLParser(); p.feed(open("page.html").read())'
night status | grep 'serving   night 1' >/dev/null || fail "status: $(night status)"
# energy and money: 7.2 MJ are 2 kWh
mkdir paid
cp -r nights paid/
python3 - <<'PY'
import json
name = "paid/nights/nights/000001.json"
r = json.load(open(name))
r.update(joules=7.2e6, price={"per_kwh": 0.3, "currency": "<EUR"}, drafter={"file": "<mine.gguf", "changed": False},
         held_back={"questions": 9, "reversed": 5, "p": 0.02, "limit": 0.005})
json.dump(r, open(name, "w"))
PY
"$CHIMERE" night report --night-dir paid/nights | grep 'energy    2 kWh, 0.6 <EUR at 0.3 <EUR per kWh' >/dev/null || fail "money: $(cat paid/nights/nights/*)"
"$CHIMERE" night report --night-dir paid/nights --html paid.html
grep -q '2 kWh, 0.6 &lt;EUR at' paid.html || fail "money on the page: $(cat paid.html)"
"$CHIMERE" night report --night-dir paid/nights >paid.txt
grep -q 'drafter   <mine.gguf stays as it is' paid.txt && grep -q '&lt;mine.gguf stays as it is' paid.html || fail "drafter: $(cat paid.txt)"
grep -q 'hostile   users reversed 5 of 9 verdicts .*: held back' paid.txt && grep -q 'reversed 5 of 9 verdicts' paid.html || fail "held back: $(cat paid.txt)"
"$CHIMERE" engram verify nights/live/night.engram >/dev/null
"$CHIMERE" run -m nano -q --temp 0 --engram nights/live/night.engram 'Where does Miravik live?' >answer
grep -q 'Venn' answer || fail "what was learned: $(cat answer)"

# the energy budget ends a night in the middle of a step: a record, and nothing of it is promoted
if [ -n "${energy[*]}" ]; then
    mkdir long
    (cd long && long_day)
    FAKE_NVML_JUMP=jump "${energy[@]}" "$CHIMERE" night run -m nano --db long/day.db -n 2 --night-dir spent \
        --steps engram,lora,drafts --max-energy 1e6 2> >(while read -r line; do [[ $line != lora:* ]] || : >jump; done) >spent.txt
    grep -q 'stopped   the energy budget of 1e+06 J was spent after [0-9]' spent.txt || fail "spent: $(cat spent.txt)"
    grep -q 'lora *refused' spent.txt && grep -q 'stopped: the energy budget was spent' spent.txt || fail "lora: $(cat spent.txt)"
    grep -q 'not begun: the energy budget' spent.txt || fail "drafts: $(cat spent.txt)"
    grep -q 'spent before the general suites were answered' spent.txt || fail "engram: $(cat spent.txt)"
    "$CHIMERE" night report --night-dir spent | cmp - spent.txt || fail "the record of a night without energy"
    "$CHIMERE" night status --night-dir spent | grep 'nothing was promoted' >/dev/null || fail "a night without energy promoted"
    "$CHIMERE" night report --night-dir spent --html spent.html
    grep -q 'its energy budget of 1e+06 J was spent' spent.html || fail "page: $(cat spent.html)"
fi

night rollback | grep 'as it is' >/dev/null || fail "rollback"
[ ! -e nights/live/night.engram ] || fail "rollback left the table"
night rollback 1 >/dev/null
cmp nights/live/night.engram nights/objects/* || fail "rollback to night 1 is not bit for bit"
night history | grep '^\*    1 ' >/dev/null || fail "history: $(night history)"
refuses 1 'night 1 has no log of training' night replay -m nano -q
refuses 1 'there is no night 7' night replay 7 -m nano -q

# an answer that a user corrected since leaves the table; the others stay
mkdir corrected
cp -r nights day.db corrected/
python3 - <<'PY'
import sqlite3, time
db = sqlite3.connect("corrected/day.db")
db.execute("INSERT INTO quality(at_ms, parent, route, model, origin, question, answer, feedback, judge, owner)"
           " SELECT ?, id, '', '', 'correction', question, 'Miravik lives in Oskar.', 5, '', 'ann' FROM quality WHERE question = 'Where does Miravik live?'",
           (int(time.time() * 1000),))
db.commit()
PY
"$CHIMERE" night "${run[@]}" --night-dir corrected/nights --db corrected/day.db >again
grep -q 'engram .*promoted: ' again || fail "a correction: $(cat again)"
"$CHIMERE" night report --night-dir corrected/nights --html two.html # of several nights, the page has a curve
! grep -q 'Over the nights' page.html && grep -q 'Over the nights' two.html && grep -q 'night 2: [0-9.]* nats per token gained in all' two.html ||
    fail "curve: $(grep -o 'Over the nights.*' two.html)"
documents() { "$CHIMERE" engram stats "$1/live/night.engram" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["n_doc"])'; }
[ "$(documents corrected/nights)" = "$(documents nights)" ] || fail "a correction: $(documents nights) documents, then $(documents corrected/nights)"
# an answer of 91 days ago is too old for the table
"$CHIMERE" engram query -m nano nights/live/night.engram 'Miravik lives in' >follows
grep -q '^order 6' follows || fail "a fresh answer: $(cat follows)"
"$CHIMERE" engram query -m nano nights/live/night.engram 'Zorbani lived in Quen' >follows
! grep -q '^order 6' follows || fail "an old answer: $(cat follows)"
"$CHIMERE" engram query -m nano corrected/nights/live/night.engram 'Miravik lives in' >follows
grep -A1 '^order 6' follows | grep '" Os"' >/dev/null || fail "a correction: $(cat follows)"

# the owner's own items are measured as a skill, and what they ask never trains
night eval add 'Where does Miravik live?' Venn >/dev/null
night eval add 'Who are you?' chimere | grep '^2 items' >/dev/null || fail "eval add"
night eval list | grep 'Miravik live? -> Venn' >/dev/null || fail "eval list: $(night eval list)"
before=$(sed -n 's/.*answers: \([0-9]*\) learned.*/\1/p' first)
night "${run[@]}" --dry-run --json >own
python3 - "$before" <<'PY'
import json, sys
r = json.load(open("own"))
assert r["own_items"] == 2 and r["read"]["learned"] == int(sys.argv[1]) - 1, r["read"]
assert [s["n"] for s in r["gate"]["skills"] if s["skill"] == "own"] == [2], r["gate"]["skills"]
PY
night eval remove "$(night eval list | sed -n '/Miravik/s/ .*//p')" >/dev/null
[ "$(night eval list | wc -l)" = 1 ] || fail "eval remove: $(night eval list)"
refuses 2 'expected add QUESTION ANSWER' night eval add 'only a question'

# a proposal that gains, but with which a skill falls, is refused: these items want what the model says without it
mkdir refused
for name in {Mira,Tolo}{na,dor,vik,lis,mar} Kesh{na,dor,vik,lis}; do
    "$CHIMERE" night eval add "Where does $name live?" "$("$CHIMERE" run -m nano -q --temp 0 "Where does $name live?")" --night-dir refused >/dev/null
done
"$CHIMERE" night "${run[@]}" --night-dir refused >said
grep -q 'engram *refused: .* nats per token' said && grep -q 'own falls on the general suites (p < 0.10)' said || fail "a skill that falls: $(cat said)"
"$CHIMERE" night report --night-dir refused --html said
grep -q 'own falls on the general suites' said || fail "the page gives no reason: $(cat said)"
"$CHIMERE" night status --night-dir refused | grep 'nothing was promoted' >/dev/null || fail "what makes a skill worse serves"

# the model was replaced since: a sentence, and nothing of the other one is used or carried over
mkdir other
cp -r nights other/
python3 - <<'PY'
import json
r = json.load(open("other/nights/nights/000001.json"))
r["model_hash"] += 1
r["artefacts"]["adapter.gguf"] = r["artefacts"]["night.engram"]  # would not open as an adapter
json.dump(r, open("other/nights/nights/000001.json", "w"))
PY
"$CHIMERE" night run -m nano --db day.db -n 2 --steps engram --night-dir other/nights >replaced 2>said
grep -q 'learned for another model' said || fail "replaced: $(cat said)"
grep -q 'engram .*promoted: ' replaced || fail "replaced: $(cat replaced)"
[ ! -e other/nights/live/adapter.gguf ] || fail "an adapter of another model serves"

# export: the kept answers, without what is held out or below worth, and pairs of one question
night export --db day.db >sft.jsonl 2>counts
python3 - "$trainer" <<'PY'
import ast, json, sqlite3, sys
rows = [json.loads(l) for l in open("sft.jsonl")]
# the trainer of drafters reads the questions of these lines; the rest of it needs PyTorch
(reader,) = [f for f in ast.parse(open(sys.argv[1]).read()).body if getattr(f, "name", "") == "questions_of"]
exec(compile(ast.Module([reader], []), "train.py", "exec"))
assert questions_of("sft.jsonl") == [r["messages"][0]["content"] for r in rows]
db = sqlite3.connect("day.db")
known = dict(db.execute("SELECT question, answer FROM quality WHERE score > 0.75"))
assert 40 < len(rows) < len(known), len(rows)
for r in rows:
    q, a = r["messages"]
    assert (q["role"], a["role"]) == ("user", "assistant") and known[q["content"]] == a["content"] and r["score"] == 0.9, r
held = int(open("counts").read().split("; ")[1].split()[0])
assert held and len(rows) + held == len(known), (len(rows), held)
exported = {r["messages"][0]["content"] for r in rows}
open("taught", "w").write(taught := sorted(exported)[0])
for q in (taught, sorted(set(known) - exported)[0]):  # the second is held out
    (parent,) = db.execute("SELECT id FROM quality WHERE question = ?", (q,)).fetchone()
    for text, score in ((known[q].upper(), 0.1), ("Far too long an answer. " * 9, 0.1), ("Ask ann.lee@example.org", 0.2)):
        db.execute("INSERT INTO quality(at_ms, parent, route, model, origin, question, answer, score, judge)"
                   " VALUES((SELECT max(at_ms) FROM quality), ?, '', 'nano', 'candidate', ?, ?, ?, 'nano')", (parent, q, text, score))
db.commit()
PY
night export --form dpo --db day.db -q >dpo.jsonl
python3 - <<'PY'
import json
(row,) = [json.loads(l) for l in open("dpo.jsonl")]
assert row["prompt"] == open("taught").read() and row["rejected"] == "Ask [mail]" and row["score_chosen"] == 0.9, row
PY
night export --form dpo --gap 0.75 --db day.db -q | cmp - /dev/null || fail "a pair whose worth is closer than --gap"
# spin: only what a user accepted is real, whatever its length; the verifier's word makes no pair
night export --form spin --db day.db -q | cmp - /dev/null || fail "spin: a pair without a user's word"
cp day.db spin.db
python3 - <<'PY'
import sqlite3
db = sqlite3.connect("spin.db")
(parent,) = db.execute("SELECT id FROM quality WHERE question = ? AND parent = 0", (open("taught").read(),)).fetchone()
db.execute("UPDATE quality SET feedback = 1 WHERE id = ?", (parent,))
db.execute("DELETE FROM quality WHERE parent = ?", (parent,))
db.execute("INSERT INTO quality(at_ms, parent, route, model, origin, question, answer, feedback, judge)"
           " SELECT at_ms, id, '', '', 'correction', question, ?, 5, '' FROM quality WHERE id = ?", ("Ask ann.lee@example.org. " * 20, parent))
# the other question with two answers is held out
db.execute("UPDATE quality SET feedback = 5 WHERE parent = 0 AND id <> ? AND id IN (SELECT parent FROM quality)", (parent,))
db.commit()
PY
night export --form spin --db spin.db -q >spin.jsonl
python3 - <<'PY'
import json, sqlite3
(row,) = [json.loads(l) for l in open("spin.jsonl")]
ask = {"role": "user", "content": open("taught").read()}
(own,) = sqlite3.connect("spin.db").execute("SELECT answer FROM quality WHERE question = ? AND parent = 0", (ask["content"],)).fetchone()
assert row == {"real": [ask, {"role": "assistant", "content": "Ask [mail]. " * 20}],
               "generated": [ask, {"role": "assistant", "content": own}], "model": "nano"}, row
PY
refuses 2 'expected sft, dpo or spin, got orpo' night export --form orpo --db day.db
full() { night export --db day.db -q >/dev/full; }
[ ! -w /dev/full ] || refuses 1 'cannot be written' full

# a program of DSPy is only suggested: the next night measures its rules
printf '{"a":{"signature":{"instructions":"Be brief."},"demos":[{"question":"Who?","answer":"Ann."}]}}' >program.json
night playbook import program.json | grep '^2 rules' >/dev/null || fail "playbook import"
cmp nights/import.json program.json || fail "the program is not kept"
echo '{' >junk.json
refuses 1 'expected a program of DSPy' night playbook import junk.json
refuses 1 'has no playbook' night playbook
refuses 2 'expected export, or import FILE' night playbook sleep

# a process reward model scores the answers first, once; what a user rated counts as rated
cp day.db judged.db
python3 - "$(dirname "$CHIMERE")/chimere-nano.gguf" <<'PY'
import sqlite3, struct, sys
b = open(sys.argv[1], "rb").read() # nano with the keys of such a model
text = lambda t: struct.pack("<Q", len(t)) + t
pair = lambda k, v: text(k) + struct.pack("<I", 8) + text(v)
keys = pair(b"chimere.prm.mark", b";") + pair(b"chimere.prm.good", b"yes") + pair(b"chimere.prm.bad", b"no")
pad = -(len(keys) + len(pair(b"pad", b""))) % 32 # the tensors stay aligned
open("prm.gguf", "wb").write(b[:16] + struct.pack("<Q", struct.unpack_from("<Q", b, 16)[0] + 4) + keys + pair(b"pad", b" " * pad) + b[24:])
db = sqlite3.connect("judged.db")
db.execute("DELETE FROM quality WHERE id > 12")
db.execute("UPDATE quality SET feedback = 5 WHERE id = 1")
db.execute("UPDATE quality SET feedback = 1 WHERE id = 2")
db.commit()
PY
judges=(run -m nano --db judged.db -q -n 2 --steps engram --prm prm.gguf --night-dir judged)
"$CHIMERE" night "${judges[@]}" --dry-run >said
! grep -q judge said || fail "a dry run judged: $(cat said)"
"$CHIMERE" night "${judges[@]}" >said
grep -q 'judge     prm scored 12 answers; in [0-9]* % of the pairs of 1 accepted and 1 rejected' said || fail "judge: $(cat said)"
python3 - <<'PY'
import sqlite3
rows = sqlite3.connect("judged.db").execute("SELECT score, judge, feedback FROM quality ORDER BY id").fetchall()
assert all(judge == "prm" and 0 <= score <= 1 and score != 0.9 for score, judge, _ in rows), rows
assert [r[2] for r in rows[:3]] == [5, 1, None] or [r[2] for r in rows[:3]] == [5, 1, 0], rows
PY
"$CHIMERE" night "${judges[@]}" | grep 'prm scored 0 answers' >/dev/null || fail "judged twice"
# a model that grades answers from 1 to 5; a judge that cannot be opened is named, and the night continues
nano=$(dirname "$CHIMERE")/chimere-nano.gguf
grades=(run -m nano --db judged.db -n 2 --steps engram --night-dir judged)
"$CHIMERE" night "${grades[@]}" --judge "$nano" >said 2>steps
grep -q 'judge     chimere-nano scored 12 answers; in [0-9]* % of the pairs of 1 accepted and 1 rejected' said || fail "grades: $(cat said)"
python3 - <<'PY'
import sqlite3
rows = sqlite3.connect("judged.db").execute("SELECT score, judge FROM quality ORDER BY id").fetchall()
assert all(judge == "chimere-nano" and 0 <= score <= 1 for score, judge in rows), rows
assert len({score for score, _ in rows}) > 1, rows
PY
head -c 100000 "$nano" >broken.gguf
for judge in broken.gguf "$0" missing.gguf; do
    "$CHIMERE" night "${grades[@]}" --judge "$judge" >said 2>steps
    grep -q 'judge     not used: --judge: ' said || fail "a broken judge: $(cat said)"
    grep -q '^--judge: ' steps || fail "a broken judge: $(cat steps)"
    grep -q 'engram  *[rp]' said || fail "no night without the judge: $(cat said)"
done
"$CHIMERE" night "${grades[@]}" --judge "$nano" --dry-run >said 2>steps
if grep -q judge said; then fail "a dry run judged: $(cat said)"; fi

refuses 1 'there is no night 7' night rollback 7
export XDG_CONFIG_HOME=$PWD/config
night schedule lora=02:30 'engram=mon 04:00' >planned
grep -q '^lora  *02:30  *next ' planned || fail "schedule: $(cat planned)"
night schedule | cmp - planned || fail "the schedule is not kept: $(night schedule)"
night schedule --systemd --db "a %b\"c.db" --max-energy 50000 >units
grep -q ' --max-energy 50000$' units || fail "service: $(cat units)"
grep -q 'OnCalendar=\*-\*-\* 02:30:00' units || fail "timer: $(cat units)"
grep -q 'OnCalendar=Mon \*-\*-\* 04:00:00' units || fail "timer: $(cat units)"
grep -q ' night run --quiet --steps lora .*--db "a %%b\\"c.db"' units || fail "service: $(cat units)"
[ ! -e config ] || fail "schedule wrote units without --install"
night schedule engram=6h --install >/dev/null
grep -q 'Persistent=true' config/systemd/user/chimere-night-lora.timer || fail "install"
if command -v systemd-analyze >/dev/null; then XDG_RUNTIME_DIR=$PWD systemd-analyze verify --user config/systemd/user/chimere-night-*.timer || fail "units"; fi
mapfile -t off < <(night schedule | sed 's/ .*/=off/')
night schedule "${off[@]}" | grep next >/dev/null && fail "a step that is off has a next time"
refuses 2 'expected a time' night schedule lora=25:00
refuses 1 'there is no step sleep' night schedule sleep=03:00

refuses 2 'expected run, status' night sleep
refuses 2 'expected names of engram, lora, prompts, ' night "${run[@]}" --steps engram,sleep
refuses 2 'expected fzoo, mezo or es, got adam' night "${run[@]}" --lora-rule adam
# ---- the jobs of the steps show what stopped a night ----

mkdir jobs
(cd jobs && long_day)
# stops SIGNAL STATE: the job of a step that runs, after that signal
stops() {
    local last='' i
    "$CHIMERE" night run -m nano --db jobs/day.db -q -n 2 --steps lora --night-dir jobs/nights >said 2>&1 &
    for ((i = 0; i < 600; i++)); do
        last=$("$CHIMERE" night status --db jobs/day.db --night-dir jobs/nights)
        [[ $last != *'step      lora running, '* ]] || break
        sleep 0.1
    done
    kill -"$1" $!
    wait $! && fail "a night ended well after $1"
    last=$("$CHIMERE" night status --db jobs/day.db --night-dir jobs/nights)
    [[ $last == *"step      lora $2, "* && $last == *'nights    0'* ]] || fail "$1: $last, $(cat said)"
}
stops TERM cancelled
grep -q 'the night was stopped' said || fail "a night that its owner stopped: $(cat said)"
stops KILL interrupted
refuses 1 'its budget is spent' "$CHIMERE" night run -m nano --db jobs/day.db -q -n 2 --steps lora --night-dir jobs/nights --budget 1s
"$CHIMERE" night status --db jobs/day.db --night-dir jobs/nights >shown
grep -q '^step *lora failed, .*its budget is spent' shown && grep -q '^nights *0' shown || fail "a budget of time: $(cat shown)"
# the default store may be one of a newer program: the nights are shown all the same
mkdir -p newer/chimere
python3 -c 'import sqlite3; sqlite3.connect("newer/chimere/chimere.db").execute("PRAGMA user_version = 9999")'
XDG_DATA_HOME=$PWD/newer "$CHIMERE" night status --night-dir jobs/nights >shown || fail "a newer store: $(cat shown)"
grep -q '^steps *not shown: ' shown && grep -q '^nights *0' shown || fail "a newer store: $(cat shown)"

# ---- killed at any moment: what serves is whole, and the next night runs ----

cp nights/live/night.engram served
for ((i = 0; i < kills; i++)); do
    "$CHIMERE" night "${run[@]}" --night-dir nights >said 2>&1 & # not night(): its shell would be killed instead
    child=$!
    sleep "0.0$((RANDOM % 10))$((i % 10))"
    [ $((i % 2)) = 0 ] || sleep "0.$((RANDOM % 5))"
    kill -KILL "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
    serving=$(night status | sed -n 's/.*serving *night \([0-9]*\).*/\1/p')
    [ -n "$serving" ] || fail "after kill $i: $(night status)"
    "$CHIMERE" engram verify nights/live/night.engram >/dev/null || fail "after kill $i: the table is damaged"
done
night "${run[@]}" >after || fail "a night after the kills: $(cat after)"
[ ! -e nights/try ] || fail "scratch is left: $(ls nights/try)"
night rollback 1 >/dev/null
cmp nights/live/night.engram served || fail "night 1 is not what it was"

# ---- two nights at once, and a full disk ----

exec 8>>nights/lock
flock -n 8 || fail "the lock of a night that ended is still held"
refuses 1 'another night runs' night "${run[@]}"
exec 8>&-
nights_before=$(night status | sed -n 's/^nights *//p')
# what a file may hold stands for the disk: 4 KiB are less than the table
on_full_disk() (
    trap '' XFSZ
    ulimit -f 4
    night "${run[@]}" 2>&1 | cat >&2
    exit "${PIPESTATUS[0]}"
)
if on_full_disk >said 2>&1; then fail "a night on a full disk: $(cat said)"; fi
[ -s said ] || fail "a full disk without a word"
night status | grep 'serving   night 1$' >/dev/null || fail "after a full disk: $(night status)"
cmp nights/live/night.engram served || fail "a full disk damaged what serves"
[ "$(night status | sed -n 's/^nights *//p')" = "$nights_before" ] || fail "a night on a full disk left a record"
night "${run[@]}" >after || fail "a night after a full disk: $(cat after)"
night rollback 1 >/dev/null

printf 'x' >"nights/objects/$(sha256sum served | cut -d' ' -f1)"
refuses 1 'damaged' night rollback 1
refuses 1 'damaged' night "${run[@]}"
night rollback 0 2>/dev/null | grep 'as it is' >/dev/null || fail "a damaged night prevents the return"
