#!/usr/bin/env bash
# bench_faults.sh [ARGUMENTS]: a server under load is killed at 980 random moments, meets a disk that is full or breaks at 60
# random writes, clocks that step, no free descriptor and no memory (test/faults/faults.py). With the 20 moments of
# test/cli/test_kill.sh these are 1,000. $CHIMERE is the program.
set -euo pipefail
# shellcheck disable=SC2086
exec python3 "$(dirname "$0")/../faults/faults.py" ${1:-}
