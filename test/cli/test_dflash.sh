#!/usr/bin/env bash
# dflash: the list of prompts is what its script writes; where torch is installed a drafter is trained from the model's
# own answers, resumes where it was cut off, is opened, and changes no text.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

dflash=$SOURCE_DIR/train/dflash
python3 "$dflash/prompts.py" >list
cmp -s list "$dflash/prompts.txt" || fail "prompts.txt is not what prompts.py writes"
n=$(sort -u list | wc -l)
[ "$n" -ge 4000 ] || fail "$n different prompts"

python=$SOURCE_DIR/.venv/bin/python
[ -x "$python" ] || python=python3
"$python" -c 'import numpy, torch' 2>/dev/null || {
    echo "skip: dflash: training: no torch; script/setup --dev installs it"
    exit 77
}
cp "$(dirname "$CHIMERE")/chimere-nano.gguf" nano.gguf # quantised: its own hidden states are what is learned from
train() {
    OMP_NUM_THREADS=1 "$python" "$dflash/train.py" --chimere "$CHIMERE" --model nano.gguf --out out --prompts 10 --answer 24 \
        --depth 1 --ff 64 --steps 2 --batch 1 --anchors 4 "$@" >log 2>&1 || fail "train.py: $(cat log)"
}
train
grep -q "tokens per round of 8 held out" log || fail "no figure: $(cat log)"
cp out/answers.jsonl answers
head -n 4 answers >out/answers.jsonl # cut off, by half a line
printf '{"i": 4, "tok' >>out/answers.jsonl
rm -r out/taps
train
cmp -s <(head -n 4 answers) <(head -n 4 out/answers.jsonl) || fail "answers that were there are others"
[ "$(wc -l <out/answers.jsonl)" = 10 ] || fail "$(wc -l <out/answers.jsonl) answers of 10"
ask() { "$CHIMERE" run -m nano.gguf --raw -p "Once upon a time" -n 40 --temp 0 --ignore-eos -t 1 -q "$@"; }
ask --no-speculate >plain
ask --draft out/drafter.gguf >drafted
cmp -s plain drafted || fail "another text: $(cat drafted)"

# a night leaves it as it is and says so; it is trained again on the day's questions
long_day
"$CHIMERE" night run -m nano.gguf --db day.db -q -n 1 --steps drafts --draft out/drafter.gguf --night-dir nights >night
grep -q 'drafter   drafter.gguf stays as it is' night || fail "the report of a night: $(cat night)"
"$CHIMERE" night export --db day.db -q >day.jsonl
train --questions day.jsonl --out again
grep -q '"n_prompt"' again/answers.jsonl || fail "trained on the day: $(cat log)"
