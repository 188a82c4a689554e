#!/usr/bin/env bash
# bench_night_kills.sh [KILLS]: nights that are killed at random moments, 200: what serves stays whole.
set -euo pipefail
bash "$(dirname "$0")/../cli/test_night.sh" "${1:-200}"
echo "no damage after ${1:-200} kills"
