#!/usr/bin/env bash
# compose: the compose files define what they use, keep the container confined, and start the program with options that it
# accepts; so does the image recipe.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3
python3 -c 'import yaml' 2>/dev/null || {
    echo "skip: compose: no yaml; apt-get install python3-yaml"
    exit 77
}
printf '0123456789abcdef me admin\n' >keys
printf 'store: postgres://chimere:hidden@127.0.0.1:1/chimere\n' >store
chmod 600 keys store
python3 - "$SOURCE_DIR" "$("$CHIMERE" version | cut -d' ' -f2)" <<'PY' || fail "the files of compose"
import json, re, sys
import yaml
root, version = sys.argv[1:]
base = yaml.safe_load(open(f"{root}/deploy/compose.yaml"))
more = yaml.safe_load(open(f"{root}/deploy/compose.postgres.yaml"))
scorer = yaml.safe_load(open(f"{root}/deploy/compose.scorer.yaml"))


def merge(a, b):
    """As compose merges a second file: maps by key, lists one after another, except commands."""
    if not isinstance(a, dict):
        return list(dict.fromkeys(a + b)) if isinstance(a, list) else b
    return {k: b[k] if k not in a or (k == "command" and k in b) else merge(a[k], b[k]) if b.get(k) is not None else a[k]
            for k in {**a, **b}}


recipe = open(f"{root}/deploy/Containerfile").read()
uid = re.search(r"^USER (\d+):\d+$", recipe, re.M)
assert uid and int(uid[1]) > 0, "the image runs as root"
assert re.search(r"^ENTRYPOINT \[\"chimere\"\]$", recipe, re.M), "entry point"
commands = [json.loads(re.search(r"^CMD (\[.*\])$", recipe, re.M)[1])]
environments = [{}]
for name, whole in (("compose.yaml", base), ("compose.postgres.yaml", merge(base, more)),
                    ("compose.scorer.yaml", merge(base, scorer)), ("all", merge(merge(base, more), scorer))):
    for service, row in whole["services"].items():
        for secret in row.get("secrets", []):
            assert secret in whole["secrets"], (name, secret)
        for volume in row.get("volumes", []):
            assert volume.split(":")[0] in whole["volumes"] or re.fullmatch(r"\./\w+:/\w+:ro", volume), (name, volume)
        for other in row.get("depends_on", {}):
            assert whole["services"][other]["healthcheck"], (name, other)
        for port in row.get("ports", []):
            assert port.startswith("127.0.0.1:"), (name, port)
    row = whole["services"]["chimere"]
    assert row["image"] == f"chimere:{version}", (row["image"], version)
    assert row["read_only"] is True and row["cap_drop"] == ["ALL"] and "no-new-privileges:true" in row["security_opt"], row
    used = {w.rsplit("/", 1)[1] for w in row["command"] if w.startswith("/run/secrets/")}
    assert used <= set(row["secrets"]), (name, used)
    commands.append(row["command"])
    environments.append(row.get("environment", {}))
    mounts = [v.split(":")[1] + "/" for v in row["volumes"]]
    assert all(any(v.startswith(m) for m in mounts) for v in environments[-1].values()), (name, environments[-1])
json.dump(commands, open("commands.json", "w"))
json.dump(environments, open("environments.json", "w"))
PY
mkdir models
cp "$(dirname "$CHIMERE")/chimere-nano.gguf" models/scorer.gguf # --check looks at the file, not at what it was trained for
for n in 0 1 2 3 4; do
    mapfile -t settings < <(python3 -c '
import json, sys
for name, value in json.load(open("environments.json"))[int(sys.argv[1])].items():
    print(name + "=" + value.replace("/models/", "./models/"))' $n)
    mapfile -t words < <(python3 -c '
import json, sys
for word in json.load(open("commands.json"))[int(sys.argv[1])]:
    print(word.replace("/run/secrets/", "./").replace("/var/lib/chimere", "./state"))' $n)
    env "${settings[@]}" "$CHIMERE" "${words[@]}" --check -m nano --ctx 256 >out 2>err || fail "command $n: ${words[*]}: $(cat err)"
    grep -q '^the configuration is valid' out || fail "command $n: $(cat out err)"
done
mv models/scorer.gguf elsewhere.gguf
refuses 1 'models/scorer.gguf' env "${settings[@]}" "$CHIMERE" "${words[@]}" --check -m nano --ctx 256
refuses 2 'unknown option' "$CHIMERE" "${words[@]}" --check --portt 1
echo "compose: ok"
