#!/usr/bin/env bash
# `chimere launch`: the environment and options that an agent is started with, seen by stand-ins of the agents.
# --chat-template and --chat-template-kwargs: what the prompt becomes.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs curl
mkdir bin
for name in claude codex opencode; do
    printf '#!/bin/sh\necho "$0" "$@"\nenv\n' >"bin/$name"
    chmod +x "bin/$name"
done
nano=$(dirname "$CHIMERE")/chimere-nano.gguf
printf '{%% for m in messages %%}[{{ m.role }}]{{ m.content }}{{ mood }}{%% endfor %%}' >own.jinja
"$CHIMERE" serve -m "$nano" --name tiny --port 0 -q --no-odo --no-keys --chat-template own.jinja \
    --chat-template-kwargs '{"mood":"!"}' >serve.out 2>serve.err &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
for _ in $(seq 1200); do grep -q http serve.out && break || sleep 0.1; done
url=$(grep -o 'http://[0-9.:]*' serve.out | head -1)
launch() { PATH=$PWD/bin:$PATH "$CHIMERE" launch --url "$url" "$@"; }

launch claude -p "hello there" --verbose >out
grep -q 'claude -p hello there --verbose' out
grep -qx "ANTHROPIC_BASE_URL=$url" out
grep -qx 'ANTHROPIC_MODEL=tiny' out
launch --url-key secret codex exec hi >out
grep -q "model_providers.chimere.base_url=\"$url/v1\"" out
grep -q -- '-m tiny exec hi' out
grep -qx 'CHIMERE_URL_KEY=secret' out
launch --url-model other opencode run >out
grep -q '"model":"chimere/other"' out
grep -q "\"baseURL\":\"$url/v1\"" out
if launch vim 2>err; then exit 1; fi
grep -q 'expected claude, codex or opencode' err
if PATH=/nonexistent "$CHIMERE" launch --url "$url" claude 2>err; then exit 1; fi
grep -q 'npm install -g @anthropic-ai/claude-code' err

ask() { curl -s "$url/apply-template" -d "$1"; }
ask '{"messages":[{"role":"user","content":"hi"}]}' | grep -F '[user]hi!' >/dev/null
ask '{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"mood":"?"}}' | grep -F '[user]hi?' >/dev/null
if "$CHIMERE" run -m "$nano" -q -p hi --chat-template nope 2>err; then exit 1; fi
grep -q 'chatml, llama3' err
if "$CHIMERE" run -m "$nano" -q -p hi --chat-template-kwargs '[1]' 2>err; then exit 1; fi
grep -q 'chat-template-kwargs: expected a JSON object' err
for name in chatml llama3 mistral gemma phi3 zephyr; do
    "$CHIMERE" run -m "$nano" -q -p hi --system s -n 2 --chat-template "$name" >/dev/null
done
