#!/usr/bin/env bash
# night forget: everything of one user goes, from the store, from every version of the table and from adapters; the rest stays.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3

night() { "$CHIMERE" night "$@" --night-dir nights --db kept/chimere.db; }

"$CHIMERE" key add alice --state-dir kept >/dev/null 2>&1
"$CHIMERE" key add bob --state-dir kept >/dev/null 2>&1
python3 - <<'PY'
import sqlite3, time
db = sqlite3.connect("kept/chimere.db")
keys = {n: (i, "key-" + h[:8].hex()) for i, n, h in db.execute("SELECT id, name, hash FROM api_keys")}
now = int(time.time() * 1000)
names = [a + b for a in ("Mira", "Tolo", "Kesh", "Varn", "Ilo", "Brem") for b in ("na", "dor", "vik", "lis", "mar")]
towns = ("Sago", "Tiral", "Venn", "Oskar", "Lumo")
rows = [(keys["bob"][1], f"Where does {n} live?", f"{n} lives in {towns[i % 5]}.") for i, n in enumerate(names)]
rows += [(keys["bob"][1], f"In which town is the house of {n}?", f"The house of {n} is in {towns[i % 5]}.") for i, n in enumerate(names)]
ann = keys["alice"][1] + "\tann"
rows += [(ann, f"What grows at field {i}?", "Only zanzibarium quadrifolium grows there, says the farmer.") for i in range(12)]
rows += [(keys["alice"][1] + "\tben", f"Which river is number {i}?", f"River {i} is the Grunwald.") for i in range(3)]
for k, (who, q, a) in enumerate(rows):
    db.execute("INSERT INTO quality(at_ms, parent, name, route, model, origin, question, answer, score, judge, owner)"
               " VALUES(?, 0, ?, '', 'nano', 'answer', ?, ?, 0.9, 'nano', ?)", (now, f"a{k}", q, a, who))
for n, (i, owner) in keys.items():  # what else a user leaves
    user, word = ("ann", "zanzibarium") if n == "alice" else ("cat", "grunwald")
    whose = owner + "\t" + user
    db.execute("INSERT INTO odo_memory(id, owner, at_ms, kind, text, pinned, tainted) VALUES(?, ?, 1, 0, ?, 0, 0)", (i, whose, word + " tea"))
    db.execute("INSERT INTO odo_memory_fts(rowid, text) VALUES(?, ?)", (i, word + " tea"))
    db.execute("INSERT INTO conversations VALUES(?, ?, ?, ?, '', '{}', '{}', 0, 1, 1, 1, 1, 7)", (i, whose, "c" + n, word + " talk"))
    db.execute("INSERT INTO conversation_items VALUES(?, ?, 'i', 0, 1, 7, ?)", (i, i, word + " said"))
    db.execute("INSERT INTO conversation_fts(rowid, text) VALUES(?, ?), (?, ?)", (i, word + " said", -i, word + " talk"))
    db.execute("INSERT INTO conversation_usage VALUES(?, 7, 1), (?, 7, 1)", (owner, whose))
    db.execute("INSERT INTO answers(owner, name, at_ms, n_bytes, input, response) VALUES(?, 'r', 1, 1, ?, '')", (whose, word))
    db.execute("INSERT INTO requests(at_ms, key_id, api, model, session, finish, status, n_prompt, n_cached, n_generated, n_reasoning,"
               " queue_ms, prefill_ms, decode_ms, request) VALUES(1, ?, 'a', 'm', ?, 'stop', 200, 1, 0, 1, 0, 0, 0, 0, ?)", (i, user, word))
db.commit()
PY
printf ' zanzibarium quadrifolium grows' | "$CHIMERE" tokenize -m nano >ids
traces() { # prints the files that hold the word, or its tokens in a row
    python3 - <<'PY'
import array, os, re
words = re.findall(r"\d+", open("ids").read())
marks = [b"zanzibarium", array.array("i", map(int, words)).tobytes()]
for folder in ("kept", "nights"):
    for at, _, files in os.walk(folder):
        for f in files:
            data = open(os.path.join(at, f), "rb").read()
            if any(m in data for m in marks):
                print(os.path.join(at, f))
PY
}

night run -m nano -q -n 2 --steps engram >first
grep -q 'engram .*promoted: ' first || fail "night: $(cat first)"
traces >before
grep -q 'nights/live/night.engram' before && grep -q 'nights/objects/' before && grep -q 'kept/chimere.db' before || fail "nothing to forget: $(cat before)"
# a second version with an adapter that all of them taught, and one that ann did not
python3 - <<'PY'
import hashlib, json
r = json.load(open("nights/nights/000001.json"))
taught = r["owners"]["night.engram"]
assert len(taught) == 3, taught
for name, who in (("adapter.gguf", taught), ("other.gguf", [t for t in taught if t.count("/") == 1]), ("unknown.gguf", None)):
    data = ("bytes of " + name).encode()
    sha = hashlib.sha256(data).hexdigest()
    open("nights/objects/" + sha, "wb").write(data)
    r["artefacts"][name] = sha
    if who:
        r["owners"][name] = who
r["night"], r["parent"] = 2, 1
json.dump(r, open("nights/nights/000002.json", "w"))
PY
night rollback 2 >/dev/null
[ -e nights/live/adapter.gguf ] || fail "rollback"

refuses 2 'expected --user' night forget
refuses 1 'there is no key of the name carol' night forget --user carol
night forget --user alice/ann >said || fail "forget: $(cat said err)"
grep -q ' 2 adapters forgotten; 2 nights changed' said || fail "said: $(cat said)"
[ -z "$(traces)" ] || fail "left of ann: $(traces)"
[ ! -e nights/live/adapter.gguf ] && [ ! -e nights/live/unknown.gguf ] || fail "an adapter that ann may have taught serves"
[ -e nights/live/other.gguf ] || fail "an adapter that ann did not teach is gone"
"$CHIMERE" engram verify nights/live/night.engram >/dev/null
"$CHIMERE" run -m nano -q --temp 0 --engram nights/live/night.engram 'Where does Miravik live?' >answer
grep -q 'Venn' answer || fail "what bob taught is gone: $(cat answer)"
night rollback 1 >/dev/null
[ -z "$(traces)" ] || fail "night 1 brings ann back: $(traces)"
"$CHIMERE" store check kept/chimere.db >/dev/null
python3 - <<'PY'
import sqlite3
db = sqlite3.connect("kept/chimere.db")
n = lambda q: db.execute("SELECT count(*) FROM " + q).fetchone()[0]
assert n("quality") == 63, n("quality")  # bob's 60, ben's 3
for t in ("odo_memory", "conversations", "conversation_items", "answers", "requests"):
    assert n(t) == 1, (t, n(t))
assert n("conversation_fts WHERE conversation_fts MATCH 'grunwald'") == 2
assert n("odo_memory_fts WHERE odo_memory_fts MATCH 'grunwald'") == 1
assert sorted(db.execute("SELECT n_bytes, n FROM conversation_usage")) == [(0, 0), (7, 1), (7, 1)]
PY
night forget --user alice >said # the key with all its users
grep -q '^3 rows' said || fail "ben: $(cat said)"
night forget --user alice | grep '^0 rows, 0 documents of tables and 0 adapters' >/dev/null || fail "twice"
