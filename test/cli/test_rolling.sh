#!/usr/bin/env bash
# Three replicas behind a stand-in gateway are restarted one after another under load: no request is lost.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3
export PYTHONDONTWRITEBYTECODE=1
timeout 240 python3 "$SOURCE_DIR/test/deploy/rolling.py" "$CHIMERE" >said 2>err || fail "$(cat said err)"
cat said
