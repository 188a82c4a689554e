#!/usr/bin/env bash
# bench_torture.sh [ARGUMENTS]: the n-th allocation fails, for commands and for requests to a server: every n up to 1,000,
# then 500 values of n drawn to the last allocation, with a check for leaks (test/faults/torture.py has the rows). $CHIMERE is
# the program.
set -euo pipefail
# shellcheck disable=SC2086
exec python3 "$(dirname "$0")/../faults/torture.py" ${1:-}
