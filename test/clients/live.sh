#!/usr/bin/env bash
# live.sh [--open-webui] [FOLDER]: runs coding agents and clients themselves, from npm and PyPI, against `chimere serve` on loopback, and
# prints a row of docs/compatibility.md for each. Needs node, npm, python3 and the network for the installation only;
# telemetry and updates are off. FOLDER keeps the packages (default: a new one). The model is chimere-nano with a header that allows
# 256 k positions, so that system prompts fit; what it answers there means nothing, that it answers is the test.
# --open-webui runs that program too: 7 GB of packages.
set -euo pipefail
open_webui=
[ "${1:-}" != --open-webui ] || { open_webui=yes; shift; }
chimere=${CHIMERE:-$(cd "$(dirname "$0")/../.." && pwd)/build/release/chimere}
folder=${1:-$(mktemp -d)}
mkdir -p "$folder/home/project"
cd "$folder"
[ -f package.json ] || npm init -y >/dev/null
npm install --silent --no-fund --no-audit @anthropic-ai/claude-code @openai/codex opencode-ai @qwen-code/qwen-code ollama \
    @continuedev/cli
[ -x venv/bin/aider ] || { python3 -m venv venv && venv/bin/pip -q install --disable-pip-version-check aider-chat; }
node -e '
const fs = require("fs"), b = fs.readFileSync(process.argv[1]), key = "qwen35moe.context_length";
b.writeUInt32LE(262144, b.indexOf(key) + key.length + 4);
fs.writeFileSync("long.gguf", b);' "$(dirname "$chimere")/chimere-nano.gguf"
"$chimere" serve -m long.gguf --name chimere-nano --ctx 65536 --parallel 2 --port 0 -q --no-odo --no-keys --seed 1 >serve.out 2>serve.err &
server=$!
trap 'kill "$server"; wait "$server" 2>/dev/null || true' EXIT
for _ in $(seq 600); do grep -q http serve.out && break; sleep 0.1; done
url=$(grep -o 'http://[0-9.:]*' serve.out | head -1)

export HOME=$folder/home PATH=$folder/node_modules/.bin:$PATH
export DISABLE_TELEMETRY=1 DISABLE_ERROR_REPORTING=1 DISABLE_AUTOUPDATER=1 CLAUDE_CODE_MAX_OUTPUT_TOKENS=200
export OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1
unset ANTHROPIC_API_KEY
cd home/project
question='What is 12 plus 30?'
status=0
# try NAME VERSION COMMAND...: it must end by itself, say something, and have asked us for an answer.
try() {
    local name=$1 version=$2 before after said result=ok
    shift 2
    before=$(asked)
    said=$(timeout 300 "$@" </dev/null 2>err.txt) || result="failed ($?)"
    after=$(asked)
    [ -n "$said" ] || result="said nothing"
    [ "$after" -gt "$before" ] || result="asked nothing"
    [ "$result" = ok ] || { status=1; tail -3 err.txt >&2; }
    echo "| $name | $version | $(date -u +%Y-%m-%d) | $result |"
}
of() { node -p "require('$folder/node_modules/$1/package.json').version"; }
asked() { curl -s "$url/metrics" | sed -n 's/^chimere_prompt_tokens_total //p'; }

try "Claude Code" "$(of @anthropic-ai/claude-code)" "$chimere" launch --url "$url" claude -p "$question" --max-turns 2
try Codex "$(of @openai/codex)" "$chimere" launch --url "$url" codex exec --skip-git-repo-check "$question"
try opencode "$(of opencode-ai)" "$chimere" launch --url "$url" opencode run "$question"
OPENAI_API_KEY=none OPENAI_BASE_URL=$url/v1 OPENAI_MODEL=chimere-nano try qwen-code "$(of @qwen-code/qwen-code)" \
    qwen --auth-type openai -p "$question"
OPENAI_API_KEY=none OPENAI_API_BASE=$url/v1 try aider "$("$folder/venv/bin/pip" show aider-chat | sed -n 's/^Version: //p')" \
    "$folder/venv/bin/aider" --model openai/chimere-nano --no-analytics --no-check-update --no-show-model-warnings \
    --no-show-release-notes --no-git --yes-always --message "$question" --exit
mkdir -p "$HOME/.continue"
cat >"$HOME/.continue/config.yaml" <<END
name: local
version: 1.0.0
schema: v1
models:
  - {name: chimere-nano, provider: openai, model: chimere-nano, apiBase: "$url/v1", apiKey: none, roles: [chat]}
END
CONTINUE_TELEMETRY_ENABLED=0 try "Continue (cn)" "$(of @continuedev/cli)" cn -p "$question" --config "$HOME/.continue/config.yaml"
try ollama-js "$(of ollama)" node --input-type=module -e "
import { Ollama } from '$folder/node_modules/ollama/dist/index.mjs';
const o = new Ollama({ host: '$url' }), model = (await o.list()).models[0].name;
for await (const part of await o.chat({ model, messages: [{ role: 'user', content: '$question' }], stream: true }))
    process.stdout.write(part.message.content);"
# Over both of its connections: chimere-nano by OpenAI's routes, chimere-nano:latest by Ollama's.
if [ -n "$open_webui" ]; then
    [ -x "$folder/webui/bin/open-webui" ] || { python3 -m venv "$folder/webui" && "$folder/webui/bin/pip" -q install --no-compile open-webui; }
    rm -rf "$folder/webui-data" # where it keeps the addresses of an earlier run
    OPENAI_API_BASE_URL=$url/v1 OPENAI_API_KEY=none OLLAMA_BASE_URL=$url WEBUI_AUTH=False OFFLINE_MODE=True HF_HUB_OFFLINE=1 \
        RAG_EMBEDDING_ENGINE=openai DATA_DIR=$folder/webui-data WEBUI_SECRET_KEY=none SCARF_NO_ANALYTICS=true DO_NOT_TRACK=true \
        "$folder/webui/bin/open-webui" serve --host 127.0.0.1 --port 28800 >webui.out 2>&1 &
    webui=$!
    trap 'kill "$webui" "$server"; wait "$webui" "$server" 2>/dev/null || true' EXIT
    page=http://127.0.0.1:28800
    for _ in $(seq 240); do curl -s -m 2 "$page/health" | grep -q true && break; sleep 1; done
    token=$(curl -s "$page/api/v1/auths/signin" -H 'Content-Type: application/json' -d '{"email":"","password":""}' |
        sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
    curl -s "$page/api/models" -H "Authorization: Bearer $token" >/dev/null
    for model in chimere-nano chimere-nano:latest; do
        try "Open WebUI ($model)" "$("$folder/webui/bin/python3" -m pip show open-webui | sed -n 's/^Version: //p')" \
            curl -sf "$page/api/chat/completions" -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \
            -d '{"model":"'$model'","stream":true,"max_tokens":20,"messages":[{"role":"user","content":"'"$question"'"}]}'
    done
fi
exit $status
