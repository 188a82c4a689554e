#!/usr/bin/env bash
# docs: the commands that docs/laptop.md, server.md, cluster.md and windows.md show, in their order. A command runs with the
# program under test, on a stand-in for the hub and a database of its own; one that would change the system names the check
# that runs it. A command that is in no row of `try` fails. Under Wine (CHIMERE_EXE): the page for Windows alone.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl node openssl python3
pages=(windows) pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
if [ -z "${CHIMERE_EXE:-}" ]; then
    # shellcheck source=test/cli/postgres.sh
    . "$(dirname "$0")/postgres.sh"
    pages=(laptop server cluster windows)
    started
fi
export XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config CHIMERE_MODELS_DIR=$work/models
mkdir -p hub/tiny/model
cp "$(dirname "$CHIMERE")/chimere-nano.gguf" hub/tiny/model/Tiny-Q8_0.gguf
exec 9> >(exec node "$SOURCE_DIR/test/net/standin.mjs" hub >port)
pids+=($!)
cp -r "$SOURCE_DIR/deploy" deploy
for _ in $(seq 2400); do [ -s port ] || sleep 0.05; done
CHIMERE_HF_ENDPOINT=http://127.0.0.1:$(cut -d' ' -f1 port)
export CHIMERE_HF_ENDPOINT

by() { # FILE WORDS: a check of the repository that runs the command
    grep -qF -- "$2" "$SOURCE_DIR/$1" || fail "$page.md: '$line': $1 does not say '$2'"
}
chimere() { "$CHIMERE" "$@"; }
sqlite() { python3 -c 'import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute(sys.argv[2]); d.commit()' "$@"; }
# with WORDS: the words of a page in place of its examples
with() {
    local w=${1//build\/release\/chimere/chimere}
    w=${w//chimere.exe/chimere}
    w=${w//NAME/hf:tiny\/model}
    w=${w//D:\\chimere/state}
    w=${w//\/etc\/chimere/deploy}
    w=${w//postgres:\/\/chimere:PASSWORD@db.internal\/chimere/postgres:\/\/chimere@\/chimere?host=$work\/db}
    echo "${w//\/var\/lib\/chimere/$work\/state}"
}
runs() { # WORDS [INPUT]: sets said
    said=$(eval "$(with "$1")" 2>err <<<"${2:-}") || fail "$page.md: '$1' ends with $?: $(cat err)"
}
# serves WORDS: starts it, asks with the command of cluster.md, stops it as Ctrl-C does
serves() {
    : >out
    local words
    words=$(with "$1")
    eval "exec \"\$CHIMERE\" ${words#chimere } --port 0 -q" >out 2>err 9>&- &
    server=$!
    pids+=("$server")
    for _ in $(seq 1200); do
        ! grep -q 'listens on' out || break
        kill -0 "$server" || fail "$page.md: '$1': $(cat err)"
        sleep 0.1
    done
    url=$(sed -n 's/.*listens on \(http[^ ]*\) .*/\1/p' out)
    said=$(eval "${ask//http:\/\/127.0.0.1:8081/$url} -sS -m 300")
    grep -q '"role":"assistant","content":"[^"]' <<<"$said" || fail "$page.md: '$1' answers $said"
    kill -TERM "$server"
    wait "$server" || fail "$page.md: '$1' ends with $?: $(cat err)"
    unset 'pids[-1]'
}
compose() { # FILE...
    local file
    for file in "$@"; do
        [[ $file != deploy/* ]] || { [ -f "$file" ] && by test/cli/test_compose.sh "${file#deploy/}"; } || fail "$page.md: no $file"
    done
}
# named KIND NAME: an object of the plain manifests
named() {
    [ ! -s manifests ] || grep -Pzq "kind: $1\nmetadata:\n(  [^\n]*\n)*?  name: $2\n" manifests || fail "$page.md: no $1 $2"
}

try() {
    # shellcheck disable=SC2016
    case $1 in
    'git clone REPOSITORY chimere && cd chimere') by script/fresh 'git clone' ;;
    script/server) by test/cli/test_server.sh '/script/server"' ;;
    *'script/release deb') by script/release 'deb       a package' ;;
    'apt-get install ./build/dist/'*) by script/release-check-deb 'apt-get install -y --no-install-recommends /packages/this.deb' ;;
    'systemctl enable --now chimere') by test/cli/test_package.sh 'systemd-analyze verify' ;;
    'docker compose '*)
        # shellcheck disable=SC2086
        compose $1
        ;;
    'echo "$(openssl rand -hex 24) me admin" > deploy/keys')
        runs "$1"
        runs "chimere serve --check -m nano --api-key deploy/keys"
        ;;
    'createdb chimere') runs "$bin/createdb -h $work/db -U chimere chimere" ;;
    'chimere store copy '*)
        from=$(with "${1#chimere store copy }")
        mkdir -p "$(dirname "${from%% *}")"
        chimere odo log --db "${from%% *}" >/dev/null # makes the store
        row="answers(owner, name, at_ms, n_bytes, input, response) VALUES('', 'r', 0, 2, 'i', 'o')"
        [[ $from != *.local* ]] || row="personas(owner, name, text) VALUES('', 'pirate', 'Speak so.')"
        sqlite "${from%% *}" "INSERT INTO $row"
        runs "$1"
        [ "$said" = "1 rows copied" ] || fail "$page.md: '$1' says $said"
        ;;
    'helm install '*) by test/cli/test_chart.sh deploy/helm/chimere ;;
    'kubectl apply -k '*) by test/deploy/chart.py kustomize ;;
    'kubectl rollout status deployment/chimere') named Deployment chimere ;;
    'kubectl port-forward service/chimere 8081:80')
        named Service chimere
        [ ! -s manifests ] || grep -Eq '^ +port: 80$' manifests || fail "no port 80"
        ;;
    'curl http://127.0.0.1:8081/v1/'*) serves "chimere serve -m nano" ;;
    *' chat -m NAME') runs "$1" "What is 12 plus 30?" ;;
    *' run "What is 12 plus 30?"')
        runs "$1 --temp 0"
        [[ $said == *42* ]] || fail "$page.md: '$1' says $said"
        ;;
    *' recommend' | *' pull NAME' | *' doctor' | 'chimere serve --check '* | 'chimere key add alice '*)
        runs "$1"
        [ -n "$said" ] || fail "$page.md: '$1' says nothing"
        ;;
    'start.bat '*) by script/release-check-windows start.bat ;;
    'chimere serve '* | 'chimere.exe serve '*) serves "$1" ;;
    *) fail "$page.md: no check runs '$1'; a new command needs a row in $0" ;;
    esac
}

ask=$(grep '^curl ' "$SOURCE_DIR/docs/cluster.md")
kubectl=$SOURCE_DIR/.venv-deploy/bin/kubectl
[ ! -x "$kubectl" ] || HOME=$work "$kubectl" kustomize deploy/kustomize/base >manifests || fail "kustomize"
n=0
declare -A seen # two pages may show the same
for page in "${pages[@]}"; do
    awk '/^```/ { on = !on && $0 ~ /^```(sh|bat)$/; next } on && NF { sub(/  +# .*/, ""); print }' "$SOURCE_DIR/docs/$page.md" >lines
    [ -s lines ] || fail "$page.md has no commands"
    while read -r line <&8; do
        [ -n "${seen["$(with "$line")"]:-}" ] || try "$line"
        seen["$(with "$line")"]=1
        n=$((n + 1))
    done 8<lines
done
# the configuration of server.md
if [[ " ${pages[*]} " == *" server "* ]]; then
    awk '/^```/ { on = !on && $0 == "```yaml"; next } on' "$SOURCE_DIR/docs/server.md" >page.yaml
    with "$(cat page.yaml)" >config.yaml
    cp hub/tiny/model/Tiny-Q8_0.gguf state/model.gguf
    page=server
    runs "chimere serve --check --config config.yaml"
fi
echo "docs: $n commands of ${pages[*]}"
