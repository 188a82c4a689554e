#!/bin/bash
# chimere template: every case of test/data/templates byte for byte, refusals, bad input.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3
exec python3 - "$CHIMERE" "$TEST_DATA" <<'PY'
import glob, json, os, subprocess, sys, tempfile

exe, data = sys.argv[1:3]
failed = ran = 0
tmp = tempfile.mkdtemp()
context = os.path.join(tmp, "context.json")
template = os.path.join(tmp, "t.jinja")


def run(path, text, *more):
    with open(context, "wb") as f:
        f.write(text)
    return subprocess.run([exe, "template", "--template", path, "--json", context, *more], capture_output=True)


def check(what, good, shown=b""):
    global failed, ran
    ran += 1
    if not good:
        failed += 1
        print("FAIL", what, shown[:400])


for cases in sorted(glob.glob(data + "/templates/*.cases.json")):
    for case in json.load(open(cases, encoding="utf-8")):
        r = run(cases.replace(".cases.json", ".jinja"), json.dumps(case["context"], ensure_ascii=False).encode(),
                "--now", "2026-03-14T09:26:53")
        name = os.path.basename(cases) + " " + case["name"]
        if "error" in case:
            message = case["error"].split(": ", 1)[1].encode()
            check(name, r.returncode == 1 and not r.stdout and message in r.stderr, r.stderr)
        else:
            check(name, r.returncode == 0 and r.stdout == case["expected"].encode(), r.stdout + r.stderr)
check("number of template cases", ran >= 80, str(ran).encode())

# what is given, and words the error must have
bad = [
    ("{{ 1 + }}", b"{}", b"line 1"),
    ("\n\n{% for x in y %}", b"{}", b"endfor"),
    ("a\n{{ x.y.z }}", b'{"x": {}}', b"line 2"),
    ("{{ raise_exception('no ' ~ x) }}", b'{"x": "way"}', b"no way"),
    ("{% include 'other' %}", b"{}", b"include"),
    ("{% for i in range(10**9) %}{% endfor %}", b"{}", b"Range too big"),
    ("{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}", b"{}", b"steps"),
    ("{{ 'a' * 10**9 }}", b"{}", b"bytes"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", b"{}", b"deep"),
    ("{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", b"{}", b"bytes"),
    ("{{ 9223372036854775807 + 1 }}", b"{}", b"64 bits"),
    ("{{ x }}", b'{"x": ' + b"[" * 10000 + b"]" * 10000 + b"}", b"deep"),
    ("{{ x }}", b'{"x": ' + b"[" * 1000 + b"]" * 1000 + b"}", b"deep"),
    ("{{ x }}", b"[1]", b"object"),
    ("{{ x }}", b'{"x": "\xff"}', b"UTF-8"),
    ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", b"{}", b"deep"),
    ("{{ x.append(1) }}", b'{"x": []}', b"unsafe"),
]
for text, json_text, words in bad:
    with open(template, "w", encoding="utf-8") as f:
        f.write(text)
    r = run(template, json_text)
    check(text[:60], r.returncode == 1 and words in r.stderr, r.stderr)

# numbers and strings that JSON allows and no prompt can hold
with open(template, "w") as f:
    f.write("{{ x }}")
for json_text, expected in ((b'{"x": 9223372036854775808}', b"9.223372036854776e+18"),
                            (b'{"x": "a\\u0000"}', b"a\xef\xbf\xbd"), (b'{"x": "\\ud800b"}', b"\xef\xbf\xbdb")):
    r = run(template, json_text)
    check(json_text.decode(), r.returncode == 0 and r.stdout == expected, r.stdout + r.stderr)

with open(template, "w") as f:
    f.write("{{ strftime_now('%d %b %Y %H:%M') }}|{{ 1e22 }}|{{ 0.1 + 0.2 }}|{{ true }}|{{ none }}|{{ 7 // -2 }}\n")
r = run(template, b"{}", "--now", "2026-03-14T09:26:53")
check("numbers and clock", r.stdout == b"14 Mar 2026 09:26|1e+22|0.30000000000000004|True|None|-4", r.stdout)
r = run(template, b"{}", "--now", "yesterday")
check("bad --now", r.returncode == 2 and b"--now" in r.stderr, r.stderr)
print(ran, "checks,", failed, "failed")
sys.exit(failed > 0)
PY
