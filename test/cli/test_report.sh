#!/usr/bin/env bash
# Reports: the renderer on rows of our own, stale rows, hostile text; the repository's pages against its rows; the
# check of figures on copies with one thing wrong each.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 cc pkg-config
scratch=$PWD
cd "$SOURCE_DIR"
start=$SECONDS
status=0
script/report --check >"$scratch/check" 2>&1 || status=$?
if [ $status = 77 ]; then
    cat "$scratch/check"
    exit 77
fi
[ $status = 0 ] || fail "$(cat "$scratch/check")"
report=$PWD/build/report/report
REPORT_NO_PDF=1 script/report all >"$scratch/all"
[ $((SECONDS - start)) -lt 120 ] || fail "rendering took $((SECONDS - start)) s"
for page in docs/reports/*.md; do
    name=$(basename "$page" .md)
    grep -q "build/reports/${name/README/index}.html" "$scratch/all" || fail "$name was not rendered"
done
# Everything is in the file: no script, no style sheet, no picture of another host.
! grep -l -i -E '<script|<link|src="?http|@import' build/reports/*.html || fail "a report needs another file"

cd "$scratch"
refuses 2 "no report 'nothing'" "$SOURCE_DIR/script/report" nothing
cat >a.jsonl <<'END'
{"id": "a.one", "date": "2026-11-01", "commit": "1234567", "device": "machine & co", "system": "ours", "test": "one | <b>two</b>", "metric": "speed", "value": 12345.5, "low": 11000, "high": 13000, "unit": "tok/s", "command": "run -m a", "provenance": "measured", "tree": {"src/a": "aaaa"}}
{"id": "a.two", "date": "2026-11-01", "device": "machine & co", "system": "theirs", "test": "one | <b>two</b>", "metric": "speed", "value": 5000, "unit": "tok/s", "source": "a paper"}
{"id": "a.old", "date": "2026-08-01", "commit": "1234567", "device": "machine", "test": "old", "metric": "size", "value": 3, "unit": "GB", "provenance": "recorded", "tree": {"src/b": "bbbb"}}
{"id": "a.oldspeed", "date": "2026-11-01", "device": "machine", "test": "old", "metric": "loss", "low": 1, "high": 2, "unit": "GB", "provenance": "none"}
END
cat >page.md <<'END'
# A page & more

<!-- pivot
rows: a.one a.two
by: test
across: system
ratio: ours / theirs
-->
<!-- end -->

<!-- table
rows: a.*
columns: test value command
-->
stale text that an update replaces
<!-- end -->

<!-- bars
rows: a.one a.two
title: Bars <of> speed
file: bars.svg
-->
<!-- end -->

<!-- points
rows: a.old*
x: size
y: loss
title: Points
file: points.svg
-->
<!-- end -->
END
printf '040000 tree aaaa1111\tsrc/a\n040000 tree cccc2222\tsrc/b\n' >trees
"$report" html --now 2026-11-26 --trees trees page.md page.html a.jsonl
cat >read.py <<'END'
import re, sys, xml.dom.minidom
html, page = open("page.html").read(), open("page.md").read()
assert "<title>A page &amp; more</title>" in html
assert "12,345.5 (11,000 to 13,000)" in html and ">2.47<" in html, html      # 12345.5 / 5000
assert "<b>" not in html, "a test's name is markup"
stale = re.findall(r'class="stale" title="([^"]*)"', html)
assert stale == ["measured on 2026-08-01, more than 90 days ago"], stale     # 117 days; src/a is the same
assert "1 to 2†" in html and "Recorded without commit or command" in html
assert html.count("<svg") == 2 and "stale text" not in html
for name in ("bars.svg", "points.svg"):
    dom = xml.dom.minidom.parse(name)
    assert dom.documentElement.tagName == "svg", name
bars = [r for r in xml.dom.minidom.parse("bars.svg").getElementsByTagName("rect") if r.getAttribute("height") == "18"]
widths = [float(r.getAttribute("width")) for r in bars]
assert abs(widths[0] / widths[1] - 12345.5 / 5000) < 0.01, widths
assert "| one \\| " in page and "stale" not in page.split("-->")[2], page
END
"$report" check page.md a.jsonl 2>/dev/null && fail "a page that was never filled passed"
"$report" update page.md a.jsonl
"$report" check page.md a.jsonl || fail "a filled page failed"
python3 read.py || fail "the page is wrong"
cp page.md filled.md
"$report" update page.md a.jsonl
cmp page.md filled.md || fail "a second update changed the page"
sed -i 's/12345.5/12346.5/' a.jsonl
refuses 1 'does not show the recorded results' "$report" check page.md a.jsonl
printf '040000 tree dddd\tsrc/a\n' >trees
"$report" list --now 2026-11-02 --trees trees a.jsonl | grep '^a.one.*src/a has changed since$' >/dev/null || fail "no stale folder"
for bad in '{"id": "b"}' 'no json' '[]' '{"id": "b", "date": "2026-11-01", "device": "d", "test": "t", "metric": "m", "unit": "u", "provenance": "none"}'; do
    echo "$bad" >b.jsonl
    refuses 1 'b.jsonl:1' "$report" list b.jsonl
done
cat a.jsonl a.jsonl >b.jsonl
refuses 1 'occurs twice' "$report" list b.jsonl
printf '<!-- table\nrows: none.*\n-->\n<!-- end -->\n' >bad.md
refuses 1 'no such result' "$report" update bad.md a.jsonl
printf '<!-- table\nrows: a.*\n-->\n' >bad.md
refuses 1 "without '<!-- end -->'" "$report" update bad.md a.jsonl

# The figures of README.md and docs/: all trace to rows; copies with one fault each do not.
(cd "$SOURCE_DIR" && python3 tools/figures.py) >out || fail "$(cat out)"
copy() {
    rm -rf copy
    mkdir -p copy/bench copy/tools
    cp -r "$SOURCE_DIR/README.md" "$SOURCE_DIR/docs" copy
    cp -r "$SOURCE_DIR/bench/results" copy/bench
    cp "$SOURCE_DIR/tools/figures_allow.txt" copy/tools
}
wrong() { # TEXT SED-SCRIPT FILE: the change makes the check say TEXT
    copy
    sed -i -E "$2" "copy/$3"
    ! cmp -s "copy/$3" "$SOURCE_DIR/$3" || fail "$2 changes nothing in $3"
    if (cd copy && python3 "$SOURCE_DIR/tools/figures.py") >out; then fail "$2 in $3 passed"; fi
    grep -qF -- "$1" out || fail "$2 in $3: expected '$1', got: $(cat out)"
}
wrong 'the text says 729' 's/\[728 tokens/[729 tokens/' README.md
wrong 'the text says 3.5' 's/\[3\.4 times/[3.5 times/' README.md
wrong 'has no row gpu.35b-ramp3.dec' 's/#gpu.35b-ramp3.decode\)/#gpu.35b-ramp3.dec)/' README.md
wrong 'no link to a row' '$aIt decodes 900 tokens per second.' README.md
wrong 'no link to a row' '$aIt loses 3.1 % on held-out text.' docs/engram.md
wrong 'occurs twice' '1{p}' bench/results/gpu.jsonl
wrong "unknown field 'speed'" '1s/^\{/{"speed": 1, /' bench/results/gpu.jsonl
wrong "a row has a commit or provenance 'none'" '1s/"commit": "[0-9a-f]*", //' bench/results/cpu.jsonl
wrong 'nothing needs the row' '$adocs/*.md | no such line | none' tools/figures_allow.txt
