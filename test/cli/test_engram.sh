#!/usr/bin/env bash
# engram: tables from texts, what they answer, and their upkeep.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

mkdir -p texts/sub
printf 'the red fox jumps over the lazy dog\n<|doc|>\nthe red fox sleeps under the old tree\n' >texts/a.txt
printf 'the red fox jumps over the fence\n' >texts/sub/b.txt
printf '{"q": "Who jumps?", "a": "the red fox jumps"}\n' >texts/c.jsonl
printf 'bin\0ary' >texts/d.dat
engram() { "$CHIMERE" engram "$@"; }

engram build -q -o t.engram --date 2026-01-10 texts >built
grep -q 'from .* tokens of 4 documents' built || fail "build: $(cat built)"
grep -q '1 files that are no text' built || fail "a binary file: $(cat built)"
engram verify t.engram >/dev/null
engram build -q -o again.engram --date 2026-01-10 texts >/dev/null
cmp t.engram again.engram || fail "two builds differ"
engram query t.engram 'the red fox' --json >hits
grep -q '"text": " j"' hits || fail "query: $(cat hits)"
grep -q '"count": 3.0' hits || fail "query: $(cat hits)"
engram query t.engram 'zebra quark' | grep 'no context' >/dev/null || fail "query of what is not there"
engram stats t.engram --json | grep '"n_doc": 4' >/dev/null || fail "stats"

# a table that came with the program, by its name; what is changed of it becomes the user's own
(
    export XDG_DATA_HOME=$work/home
    engram stats kine --json | grep '"path": ".*engram/kine.engram"' >/dev/null || fail "stats of a shipped table"
    engram decay kine --date 2020-01-01 | grep "^$work/home/chimere/engram/kine.engram: " >/dev/null || fail "decay of a shipped table"
    engram stats kine --json | grep "\"path\": \"$work/home" >/dev/null || fail "the user's own comes first"
)

# forget; what came from elsewhere stays; a source that is not there is an error, and the table stays as it was
engram forget t.engram --source texts/sub/b.txt -o f.engram | grep '3 documents, 1 dropped' >/dev/null || fail forget
refuses 1 "there is no source 'texts/sub/b.txt'" engram forget f.engram --source texts/sub/b.txt -o g.engram
[ ! -e g.engram ] || fail "a table is written although nothing was forgotten"
# a table of nothing is refused
: >empty.txt
refuses 2 'the table would be empty' engram build -q -o empty.engram empty.txt
[ ! -e empty.engram ] || fail "an empty table is written"
engram query f.engram 'the red fox' --json | grep '"count": 2.0' >/dev/null || fail "what was forgotten counts"

# merge gives it back, and merging again changes nothing
engram build -q -o b.engram --date 2026-01-10 texts/sub/b.txt >/dev/null
engram merge -o m.engram f.engram b.engram >/dev/null
engram merge -o n.engram m.engram b.engram m.engram >/dev/null
cmp m.engram n.engram || fail "merging again changes something"
engram query m.engram 'the red fox' --json | grep '"count": 3.0' >/dev/null || fail "merge"

# decay: half after 30 days, gone after 90, the same when repeated
engram decay t.engram -o d.engram --date 2026-02-09 >/dev/null
engram decay d.engram -o e.engram --date 2026-02-09 >/dev/null
cmp d.engram e.engram || fail "decay repeated differs"
engram query d.engram 'the red fox' --json | grep '"count": 1.5' >/dev/null || fail "decay: $(engram query d.engram 'the red fox')"
engram decay t.engram -o e.engram --date 2026-04-11 | grep '0 documents, 4 dropped' >/dev/null || fail "drop"
engram verify e.engram >/dev/null

# sync: only what changed is read, and the result is that of a fresh build
sync_it() { engram sync --engram-dir tables --domain mine texts; }
sync_it | grep '0 files unchanged, 3 new' >/dev/null || fail "first sync"
sync_it | grep '3 files unchanged, 0 new, 0 changed, 0 gone; nothing to do' >/dev/null || fail "second sync"
printf 'the blue fox jumps\n' >texts/sub/b.txt
rm texts/c.jsonl
sync_it | grep '1 files unchanged, 0 new, 1 changed, 1 gone; 1 of 3 documents indexed anew' >/dev/null || fail "sync of changes"
engram query --engram-dir tables mine 'the blue fox' | grep '" j"' >/dev/null || fail "a changed file"
engram verify --engram-dir tables mine >/dev/null
cp tables/mine.engram kept
rm tables/mine.engram
sync_it >/dev/null
cmp tables/mine.engram kept || fail "in step differs from fresh"

# what a question names is found, and only with the table
printf 'Zubelok is a small town in the north. Zubelok lies on the river Kapipex. The mayor of Zubelok is Rina Botem. Zubelok was founded in 1472.\n' >z.txt
engram build -q -o z.engram z.txt >/dev/null
ask() { "$CHIMERE" run -q --temp 0 -p 'Which river flows through Zubelok?' "$@"; }
[ "$(ask --engram z.engram)" = Kapipex. ] || fail "recall: $(ask --engram z.engram)"
[ "$(ask --engram z.engram --engram-alpha 0)" = "$(ask)" ] || fail "alpha 0 changes the answer"
[ "$(ask)" != Kapipex. ] || fail "the model knows it"

# eval: the domain gains, other text does not lose, the weights go into the table
for i in 1 2 3 4 5 6; do printf 'Zubelok lies on the river Kapipex, and its mayor rides along the river in the year %s.\n<|doc|>\n' "$i"; done >in.txt
for i in 1 2 3 4; do printf 'The lantern stood on the table, and nobody came to light it for %s long winters.\n<|doc|>\n' "$i"; done >o.txt
engram eval -q z.engram --in in.txt --in z.txt --other o.txt --fit >table
grep -q '1 documents are in the table and are left out' table || fail "overlap: $(cat table)"
awk '/^domain/ { d = $5 < 0.85 * $4 } /^other/ { o = $5 < 1.005 * $4 } END { exit !(d && o) }' table || fail "eval: $(cat table)"
engram stats z.engram | grep 'fitted *yes' >/dev/null || fail "weights were not written"
engram verify z.engram >/dev/null

# text that the table was built from, only slightly changed, and items whose questions it contains: a warning
for i in 1 2 3; do sed "s/founded in/founded after $i in/" z.txt; echo '<|doc|>'; done >near.txt
engram eval -q z.engram --in near.txt >/dev/null 2>warned
grep -q 'warning: --in: most of the text of 3 documents is in the table' warned || fail "near text: $(cat warned)"
printf '{"id": "%s", "skill": "z", "messages": [{"role": "user", "content": "%s"}], "max_tokens": 4, "check": {"kind": "contains", "answer": ["x"]}}\n' \
    1 "Zubelok is a small town in the north. Zubelok lies on the river Kapipex. Is it so?" 2 "What is the highest mountain of that island, please?" >held.jsonl
"$CHIMERE" eval -q --suite held.jsonl --engram z.engram >/dev/null 2>warned
grep -q 'contains the questions of 1 of 2 items' warned || fail "held items: $(cat warned)"

# bad input
head -c 1000 t.engram >cut.engram
refuses 1 'cut n-gram table' engram stats cut.engram
refuses 1 'not an n-gram table' engram stats texts/a.txt
refuses 1 'No such file' engram stats nothing.engram
"$CHIMERE" synth qwen35moe-mini q8 m.gguf --layers 4 --experts 4 --vocab 512 >/dev/null
refuses 1 'another tokenizer' engram query -m m.gguf t.engram 'the red fox'
refuses 2 'expected text to measure' engram eval t.engram
refuses 2 'expected a subcommand' engram frobnicate
refuses 2 '--half-life: expected a time' engram decay t.engram --half-life soon
refuses 2 '--date: expected' engram decay t.engram --date yesterday
refuses 1 'expected an object with "text"' engram build -q -o x.engram <(:) "$(printf '[1]\n' >bad.jsonl; echo bad.jsonl)"
[ ! -e x.engram ] || fail "a failed build left a table"

# examples: validated answers by domain, with any embedding model; here one of random weights
cat >qa.jsonl <<'EOF'
{"q": "Who jumps over the dog?", "a": "The red fox.", "source": "test", "score": 4}
{"question": "Where does the river rise?", "answer": "In the hills."}
EOF
examples() { engram examples "$@" --db x.db --domain animals --embedding-model m.gguf; }
sed '2s/answer/reply/' qa.jsonl >half.jsonl
refuses 1 'half.jsonl:2: expected an object' examples add half.jsonl
[ -z "$(examples list)" ] || fail "a bad line's neighbours were added: $(examples list)"
examples add qa.jsonl | grep '2 examples added' >/dev/null || fail "examples add"
examples search 'Where does the river rise?' --json -n 1 >hits
grep -q '"nearness":\(1.0\|0.9999[0-9]*\),.*"answer":"In the hills."' hits || fail "examples search: $(cat hits)"
examples add qa.jsonl >/dev/null # again: in place of themselves
[ "$(examples list | wc -l)" = 2 ] || fail "the same question twice: $(examples list)"
examples remove "$(examples list | awk '/river/ { print $1 }')" | grep '1 removed' >/dev/null || fail "examples remove"
[ "$(examples search 'Where does the river rise?' --json | grep -c '"In the hills')" = 0 ] || fail "what was removed is found"
[ "$(examples search 'Where does the river rise?' --json | wc -l)" = 1 ] || fail "what is left is not found"
refuses 1 'there is no example 99' engram examples remove --db x.db --domain animals 99
refuses 2 'expected letters, digits' engram examples search --db x.db --domain a/b --embedding-model m.gguf x
refuses 2 'expected add, search' engram examples sing
echo "engram: ok"
