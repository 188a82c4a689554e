#!/usr/bin/env bash
# run.sh TEST: runs one test file of the page, in Debian's Chromium.
set -euo pipefail
cd "$(dirname "$0")"
skip() {
    echo "skip: studio: $1; script/setup --test installs it"
    exit 77
}
node=$(find node_modules/node-linux-*/bin -name node 2>/dev/null | head -1) || true
node=${node:-node}
[ -d node_modules/playwright-core ] && [ -d node_modules/axe-core ] || skip "the npm packages are missing"
command -v "$node" >/dev/null || skip "node is missing"
[ "$("$node" -p 'process.versions.node.split(".")[0]')" -ge 20 ] || skip "node is older than 20"
[ -x "${CHROMIUM:-/usr/bin/chromium}" ] || skip "chromium is missing"
exec "$node" --test --test-reporter=spec "$1"
