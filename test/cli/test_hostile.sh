#!/usr/bin/env bash
# Attacks over HTTP with a model that obeys whatever it reads: each must fail.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || {
    echo "skip: attacks over HTTP: apt-get install python3"
    exit 0
}
export XDG_CONFIG_HOME=$work/config
python3 "$SOURCE_DIR/test/cli/hostile.py" "$CHIMERE" "$work" || fail "an attack went through"
