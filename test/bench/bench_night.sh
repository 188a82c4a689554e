#!/usr/bin/env bash
# A simulated week of users and nights on chimere-nano: the exam of facts and style, all suites, and each step's gain.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$CHIMERE" night simulate -m nano -q --week --budget "${1:-15m}" --night-dir "$work/week"
