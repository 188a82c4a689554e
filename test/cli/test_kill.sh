#!/usr/bin/env bash
# What faults of the machine may do to a server under load (test/faults/faults.py): a sample of what `script/bench faults` does
# in full. Nothing that was acknowledged is lost, nothing wrong is served.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

faults() { python3 "$SOURCE_DIR/test/faults/faults.py" "$@" >out 2>&1 || fail "$(cat out)"; }
faults --kills 20 kill
[ -f "$FAULT_CLOCK" ] || fail "no $FAULT_CLOCK"
if LD_PRELOAD=$FAULT_FULL FAULT_COUNT=$PWD/count "$CHIMERE" --version >/dev/null 2>&1 && [ -s count ]; then
    faults --rounds 3 disk
    faults --rounds 1 clock fds
fi
echo "kill: ok"
