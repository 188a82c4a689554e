#!/usr/bin/env bash
# bench_night.sh [BUDGET [STEPS]]: a simulated week of users and nights on chimere-nano: the exam of facts and style, all
# suites, and each step's gain. The default steps are those of the table in docs/night.md; nine minutes on two cores.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$CHIMERE" night simulate -m nano -q --week --steps "${2:-engram,examples}" --suite-items 5 --budget "${1:-15m}" --night-dir "$work/week"
