#!/bin/bash
# test_schema_suite.sh: the JSON-Schema-Test-Suite through `chimere grammar --check-file`: for every case
# whose schema is taken, the answer must be the suite's. Prints how many agree, how many schemas are
# refused by name, and the named cases where the two differ by design. SCHEMA_SUITE_EVERY=N: every Nth case.
#
# The suite is fetched at test time: drafts 2020-12 and 7 from the source archive of Python's jsonschema
# (pip), draft 4 from the npm package json-schema-test-suite; what is there is kept beside the build.
set -eu
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
unset CHIMERE_MODEL # answers without a vocabulary
needs python3 tar
dir=$(dirname "$CHIMERE")/schema-suite
mkdir -p "$dir"

if [ ! -d "$dir/draft2020-12" ]; then
  pip=("$SOURCE_DIR/.venv/bin/pip")
  [ -x "${pip[0]}" ] || pip=(python3 -m pip)
  if timeout 300 "${pip[@]}" download -q --no-deps --no-binary jsonschema -d "$dir" jsonschema==4.26.0 > "$dir/pip.log" 2>&1; then
    tar -xzf "$dir/jsonschema-4.26.0.tar.gz" -C "$dir"
    mv "$dir"/jsonschema-4.26.0/json/tests/draft2020-12 "$dir"/jsonschema-4.26.0/json/tests/draft7 "$dir"
  else
    echo "skip: drafts 2020-12 and 7: pip could not fetch jsonschema 4.26.0"
  fi
fi
if [ ! -d "$dir/draft4" ]; then
  if command -v npm > /dev/null && (cd "$dir" && timeout 120 npm pack --silent json-schema-test-suite@0.0.10) > "$dir/npm.log" 2>&1; then
    tar -xzf "$dir/json-schema-test-suite-0.0.10.tgz" -C "$dir"
    mv "$dir/package/tests/draft4" "$dir"
  else
    echo "skip: draft 4: npm could not fetch json-schema-test-suite"
  fi
fi
ls -d "$dir"/draft*/ > /dev/null 2>&1 || { echo "skip: JSON-Schema-Test-Suite: needs pip or npm and a network"; exit 77; }

python3 - "$CHIMERE" "$dir" <<'PY'
import collections, concurrent.futures, decimal, glob, json, os, subprocess, sys, tempfile

chimere, root = sys.argv[1:]
every = int(os.environ.get("SCHEMA_SUITE_EVERY", "1"))

# Where the answer differs by design: (draft or None, file, start of the case's or group's description).
BY_DESIGN = [
    # encoded international names cannot be checked letter by letter: none is let through
    (None, "optional/format/hostname.json", ""),
    # leap seconds at 23:59:60 UTC, written with another offset
    (None, "optional/format/time.json", "valid leap second, "),
    (None, "optional/format/date-time.json", "a valid date-time with a leap second, with minus offset"),
    # read as draft 2020-12: 1.0 is an integer, formats are asserted, $ref does not hide its neighbours
    (None, "optional/zeroTerminatedFloats.json", ""),
    (None, "format.json", ""),
    # formats without a grammar assert nothing
    (None, "optional/format/ecmascript-regex.json", ""),
    (None, "optional/format/idn-email.json", ""),
    (None, "optional/format/idn-hostname.json", ""),
    (None, "optional/format/regex.json", ""),
    (None, "optional/format/uri-template.json", ""),
    ("draft7", "optional/content.json", ""), # annotations since
    ("draft4", "optional/format.json", "a valid protocol-relative URI"), # no URI by RFC 3986
    ("draft4", "type.json", "a float with zero fractional part is not an integer"),
    ("draft4", "ref.json", "ref overrides any sibling keywords"),
    ("draft7", "ref.json", "ref overrides any sibling keywords"),
    ("draft7", "ref.json", "$ref prevents a sibling $id from changing the base uri"),
]

def text_of(x):
    """JSON as the grammar writes it: numbers without exponent."""
    if isinstance(x, float):
        return format(decimal.Decimal(repr(x)), "f")
    if isinstance(x, list):
        return "[" + ",".join(map(text_of, x)) + "]"
    if isinstance(x, dict):
        return "{" + ",".join(text_of(k) + ":" + text_of(v) for k, v in x.items()) + "}"
    return json.dumps(x)

def ask(case):
    schema, instance = case
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/s", "w") as f: f.write(schema)
        with open(d + "/t", "w") as f: f.write(instance)
        p = subprocess.run([chimere, "grammar", "--schema", d + "/s", "--check-file", d + "/t"],
                           capture_output=True, text=True)
    if p.returncode not in (0, 1): return "status %d: %s" % (p.returncode, p.stderr)
    if p.stderr and "no value satisfies it" not in p.stderr:
        return "refused" if "schema: " in p.stderr else p.stderr
    return "yes" if p.returncode == 0 else "no"

failed = False
for draft in sorted(os.listdir(root)):
    if not draft.startswith("draft"): continue
    names, cases = [], []
    for path in sorted(glob.glob(root + "/" + draft + "/**/*.json", recursive=True)):
        for group in json.load(open(path)):
            for test in group["tests"]:
                names.append((os.path.relpath(path, root + "/" + draft), group["description"],
                              test["description"], test["valid"]))
                cases.append((json.dumps(group["schema"]), text_of(test["data"])))
    names, cases = names[::every], cases[::every]
    with concurrent.futures.ThreadPoolExecutor(4) as pool: answers = list(pool.map(ask, cases))
    count = collections.Counter()
    for (file, group, test, valid), case, answer in zip(names, cases, answers):
        if answer == "refused" or answer == ("yes" if valid else "no"):
            count["refused" if answer == "refused" else "agree"] += 1
        elif any(d in (None, draft) and file == f and (test.startswith(t) or group.startswith(t)) for d, f, t in BY_DESIGN):
            count["by design"] += 1
        else:
            failed = True
            print("FAILED: %s %s: %s: %s: %s, not %s: %s on %s" %
                  (draft, file, group, test, answer, valid, case[0][:200], case[1][:100]))
    print("%s: %d of %d cases agree, %d refused by name, %d differ by design" %
          (draft, count["agree"], len(cases), count["refused"], count["by design"]))
    if count["agree"] * every < {"draft2020-12": 1280, "draft7": 1100, "draft4": 220}.get(draft, 1):
        failed = True
        print("FAILED: fewer cases agree than should")
sys.exit(failed)
PY
echo ok
