#!/usr/bin/env bash
# Memory that is short at one allocation (test/faults/torture.py): a sample of what `script/bench torture` does in full. No
# crash, a sentence, and never a wrong answer or a wrong file.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

[ -f "$FAULT_ALLOC" ] || fail "no $FAULT_ALLOC"
head -c 16 /dev/zero >moment
LD_PRELOAD=$FAULT_ALLOC FAULT_FILE=$work/moment "$CHIMERE" --version >/dev/null 2>&1 || true
if cmp -s moment <(head -c 16 /dev/zero); then
    echo "skip: torture: LD_PRELOAD has no effect on this program, a build without sanitizers"
    exit 77
fi
python3 "$SOURCE_DIR/test/faults/torture.py" --first 4 --drawn 6 run index quantize convert >out 2>&1 || fail "$(cat out)"
python3 "$SOURCE_DIR/test/faults/torture.py" --first 90 --drawn 0 --share 3/15 ask >out 2>&1 || fail "$(cat out)"
python3 "$SOURCE_DIR/test/faults/torture.py" --first 0 --drawn 30 chat stream tools >out 2>&1 || fail "$(cat out)"
echo "torture: ok"
