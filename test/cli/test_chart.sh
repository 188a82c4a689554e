#!/usr/bin/env bash
# The Helm chart and the plain manifests: rendered and validated for five versions of Kubernetes.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl
venv=$SOURCE_DIR/.venv-deploy/bin
[ -x "$venv/python" ] && "$venv/python" -c 'import helm_sdkpy, kubernetes_validate' 2>err || {
    echo "skip: chart: no Helm; script/setup --test installs it if there is a Python of 3.12 or newer"
    exit 77
}
export HOME=$work PYTHONDONTWRITEBYTECODE=1
# alerts and dashboards may only ask for what a server reports
"$CHIMERE" serve --port 0 -q -m nano --ctx 256 --metrics-compat vllm --night --night-dir nights >served 2>log &
pid=$!
trap 'kill $pid 2>/dev/null || true; wait; rm -rf "$work"' EXIT
for _ in $(seq 2400); do grep -q 'http://' served && break || sleep 0.05; done
url=$(grep -om1 'http://[^ ]*' served | head -1)
[ -n "$url" ] || fail "the server does not start: $(cat log)"
curl -sf -m 300 "$url/metrics" >metrics || fail "no metrics"
"$venv/python" "$SOURCE_DIR/test/deploy/chart.py" "$SOURCE_DIR/deploy/helm/chimere" --metrics metrics \
    --chimere "$CHIMERE" --kubectl "$venv/kubectl" >said 2>err || fail "$(cat err said)"
grep -q ', 0 failures$' said || fail "$(cat said)"
cat said
