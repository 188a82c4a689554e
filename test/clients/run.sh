#!/usr/bin/env bash
# run.sh TEST: runs one test file with a Node.js that the packages run on.
set -euo pipefail
cd "$(dirname "$0")"
skip() {
    echo "skip: clients: $1; script/setup --test installs it"
    exit 77
}
node=$(find node_modules/node-linux-*/bin -name node 2>/dev/null | head -1) || true
node=${node:-node}
[ -d node_modules/openai ] && [ -d node_modules/@anthropic-ai/sdk ] && [ -d node_modules/@modelcontextprotocol/sdk ] || skip "the npm packages are not there"
command -v "$node" >/dev/null || skip "node does not run"
[ "$("$node" -p 'process.versions.node.split(".")[0]')" -ge 20 ] || skip "node is older than 20"
command -v curl >/dev/null || skip "curl is not there"
exec "$node" --test --test-reporter=spec "$1"
