#!/usr/bin/env bash
# Published weights: logits of decoders and vectors of an encoder as transformers computes them.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

here=${SOURCE_DIR:?}/test
models=${CHIMERE_TEST_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/chimere-test-models}
python3 "$here/golden/real_weights.py" "$CHIMERE" "$models" "$here/data/real.json" .
