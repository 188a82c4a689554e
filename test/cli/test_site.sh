#!/usr/bin/env bash
# The site: dead links are found, the HTTP reference has every row of the tables, and where mkdocs is installed the
# site builds from what is here alone.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3 git
(cd "$SOURCE_DIR" && python3 tools/links.py) || fail "dead links"
git init -q repo
cd repo
mkdir docs
printf '# One\n\n## A title, with `code`\n\n## Twice\n\n## Twice\n' >docs/a.md
printf '[x](docs/a.md) [y](docs/a.md#a-title-with-code) [z](docs/a.md#twice-1) [w](https://example.org/none) `[n](none)`\n' >README.md
python3 "$SOURCE_DIR/tools/links.py" || fail "good links were refused"
[ "$(python3 "$SOURCE_DIR/tools/links.py" --files)" = docs/a.md ] || fail "files: $(python3 "$SOURCE_DIR/tools/links.py" --files)"
for dead in 'docs/b.md' 'docs/a.md#a-title' 'docs/a.md#twice-2' '../README.md' '#nothing'; do
    printf '[x](%s)\n' "$dead" >README.md
    if python3 "$SOURCE_DIR/tools/links.py" >out; then fail "$dead passed"; fi
    grep -q '^README.md:1: links: ' out || fail "$dead: $(cat out)"
done
cd ..

"$CHIMERE" help --http >http.md
n=$(grep -c '^    {"[A-Z]*", "/' "$SOURCE_DIR/src/serve/routes.c")
[ "$n" -gt 50 ] && [ "$(grep -cE '^\| (GET|POST|DELETE) \| `/' http.md)" = "$n" ] || fail "$n routes, not all of them in the reference"
grep -qF '| POST | `/models/load` | admin | OpenAI |' http.md || fail "/models/load"
grep -qF '| GET | `/health` | open | OpenAI |' http.md || fail "/health"
grep -qF '| `top_p` | chat, completions, responses, messages | number, 0 to 1 |' http.md || fail "top_p"
grep -qF '| `truncation` | responses | refused, except disabled or auto |' http.md || fail "truncation"
grep -qF '| `service_tier` | chat, responses, messages | no effect here |' http.md || fail "service_tier"
n=$(sed -n '/^static const struct row rows/,/^};/p' "$SOURCE_DIR/src/serve/fields/fields.c" | grep -cE '^    (\{|[A-Z]+\()"')
[ "$(grep -cE '^\| `[a-z]' http.md)" = "$n" ] || fail "$n fields, $(grep -cE '^\| `[a-z]' http.md) in the reference"

cd "$SOURCE_DIR"
status=0
script/site >"$OLDPWD/site" 2>&1 || status=$?
[ $status = 77 ] && { cat "$OLDPWD/site"; exit 0; }
[ $status = 0 ] || fail "$(cat "$OLDPWD/site")"
for page in README docs/http docs/commands docs/reports/system; do
    [ -s "build/site/html/$page.html" ] || [ -s "build/site/html/${page/README/index}.html" ] || fail "no page $page"
done
grep -q 'chimere cost' build/site/html/docs/commands.html || fail "the commands lack cost"
