#!/usr/bin/env bash
# night_canary: a share of the conversations of a running server tries what a night promoted. Bad ratings end the trial;
# without them it serves everybody when the time is over.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 curl

trap 'stop_server; rm -rf "$work"' EXIT
night() { "$CHIMERE" night "$@" --night-dir nights; }
# said_ TEXT: the server has said this within two minutes.
said_() {
    for ((i = 0; i < 600; i++)); do
        ! grep -qF -- "$1" said || return 0
        kill -0 "$server" || fail "the server ended: $(tail -5 said)"
        sleep 0.2
    done
    fail "not within the time: $1: $(tail -20 said)"
}
# ask QUESTION: sets id, tried: the night that answered, and kept: whether the answer is one that the server keeps
ask() {
    curl -sf -m 120 -D head "$url/v1/chat/completions" -d "{\"temperature\":0,\"max_tokens\":200,\"stop\":[\" \"],\"messages\":[{\"role\":\"user\",\"content\":\"$1\"}]}" >answer ||
        fail "ask: $(cat answer said)"
    tried=$(sed -n 's/^x-night: *\([0-9]*\).*/\1/ip' head | grep . || echo 0)
    id=$(python3 -c 'import json; print(json.load(open("answer"))["id"])')
    kept=$(python3 -c 'import json; c = json.load(open("answer"))["choices"][0]; print(int(c["finish_reason"] == "stop" and bool(c["message"]["content"])))')
}
# rate SCORE: the row is written a moment after the answer
rate() {
    for ((i = 0; i < 600; i++)); do
        curl -s -m 300 "$url/v1/feedback" -d "{\"answer\":\"$id\",\"score\":$1}" >rated
        ! grep -q '"object":"feedback"' rated || return 0
        sleep 0.2
    done
    fail "the answer $id was not kept: $(cat rated)"
}

answered_day
night schedule lora=off engram=off >/dev/null
refuses 2 'canary: expected a share' night run -m nano --db day.db --canary 120%
: >said
start_server --db day.db --no-odo --night --night-dir nights --state-dir state --log-level info --learn local
run=(run -m nano --db day.db -q -n 1 --steps engram --canary 50%)
night "${run[@]}" >ran || fail "night: $(cat ran)"
grep -q 'canary .*50 % of the conversations: on trial' ran || fail "report: $(cat ran)"
status_has() { # not through a pipe: grep -q ends before all is written
    night status >status
    grep -q "$1" status || fail "status: $(cat status)"
}
status_has 'serving   the model as it is'
status_has 'on trial  night 1, 50 %'
said_ '50 % of the conversations try night 1'

# a conversation keeps its version; its users reject what the trial answers and like the rest
counts=(0 0)
for ((q = 0; q < 100; q++)); do
    ! grep -q 'the trial of night 1 ended' said || break
    ask "What is the number $q good for?"
    [ "$kept" = 1 ] || continue
    counts[tried]=$((counts[tried] + 1))
    if [ "$tried" = 1 ]; then rate 1; else rate 5; fi
    [ "${counts[1]}" -lt 8 ] || [ "${counts[0]}" -lt 8 ] || break
done
[ "${counts[1]}" -gt 0 ] || fail "no conversation tried the night: ${counts[*]}"
[ "${counts[0]}" -gt 0 ] || fail "all conversations tried the night: ${counts[*]}"
said_ 'the trial of night 1 ended: rolled back'
night report 1 | grep 'rolled back: users reject its answers' >/dev/null || fail "report: $(night report 1)"
! night status | grep 'on trial' >/dev/null || fail "a trial goes on: $(night status)"
status_has 'serving   the model as it is'
said_ 'requests use the model without files of a night now'
for ((q = 0; q < 12; q++)); do
    ask "What is the number $q good for?"
    [ "$tried" = 0 ] || fail "a version that was rolled back answers: $(cat head)"
done

# if no user rejects the second one, it serves all users after its trial
night "${run[@]}" >ran || fail "night: $(cat ran)"
said_ '50 % of the conversations try night 2'
python3 - <<'PY'
import json, os
t = json.load(open("nights/trial"))
assert t["night"] == 2 and 3600 < t["until"] - t["from"] < 86400, t
t["until"] = t["from"]
json.dump(t, open("trial.new", "w"))
os.rename("trial.new", "nights/trial")
PY
said_ 'the trial of night 2 ended: it serves all conversations'
said_ 'requests use the files of night 2 now'
ask 'Where does Miravik live?'
[ "$tried" = 2 ] || fail "what was promoted is not used: $(cat head)"
status_has 'serving   night 2'
night report 2 | grep 'of the conversations: promoted' >/dev/null || fail "report: $(night report 2)"
night rollback | grep 'serves as it is' >/dev/null || fail "rollback"

# by hand, a damaged file, and a clock that was set back
night "${run[@]}" >ran || fail "night: $(cat ran)"
night rollback | grep 'the trial of night 3 ended' >/dev/null || fail "rollback of a trial"
echo '{' >nights/trial
status_has 'serving   the model as it is'
echo '{"night":3,"share":0.5,"from":99999999999,"until":99999999999}' >nights/trial
said_ 'the trial of night 3 ended: it serves all conversations'
