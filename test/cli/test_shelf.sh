#!/usr/bin/env bash
# Private documents of two keys and of two users of one key: lists, searches, answers and tools return to each caller
# only shared documents and the caller's own. Deleting a conversation deletes its documents. Responses within a
# conversation read its documents.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
needs python3
trap 'stop_server; rm -rf "$work"' EXIT

alice=$("$CHIMERE" key add alice --state-dir kept 2>/dev/null)
bob=$("$CHIMERE" key add bob --state-dir kept 2>/dev/null)
admin=$("$CHIMERE" key add root --role admin --state-dir kept 2>/dev/null)
start_server -q --ctx 2048 --state-dir kept --db kept/chimere.db
cat >ask.py <<'PY'
import json, sqlite3, sys, urllib.error, urllib.parse, urllib.request

url, alice, bob, admin = sys.argv[1:]
A, AX, B, R = (alice, ""), (alice, "ann"), (bob, ""), (admin, "")
DOCS = "/chimere/v1/documents"


def call(who, method, path, body=None, **query):
    at = url + path + ("?" + urllib.parse.urlencode(query) if query else "")
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body is not None else None
    head = {"Authorization": "Bearer " + who[0], "Content-Type": "application/json", "X-User": who[1]}
    try:
        with urllib.request.urlopen(urllib.request.Request(at, data, head, method=method), timeout=300) as r:
            return r.status, json.loads(r.read())
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def want(status, got):
    assert got[0] == status, (status, got)
    return got[1]


def listed(who, **query):
    return [(d["collection"], d["name"]) for d in want(200, call(who, "GET", DOCS, **query))["data"]]


def searched(who, **query):
    hits = want(200, call(who, "GET", DOCS + "/search", query="What is the password of the vault?", **query))["data"]
    return sorted(h["name"] for h in hits)


def asked(who, **odo):
    body = {"model": "odo", "max_tokens": 1, "user": who[1], "odo": {"route": "code", "mode": "fast", "documents": True, "tools": False, **odo},
            "messages": [{"role": "user", "content": "What is the password of the vault?"}]}
    status, answer = call(who, "POST", "/v1/chat/completions", body)
    return sorted(s["where"] for s in answer["odo"].get("sources", [])) if status == 200 else status


def tool(who):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "documents", "arguments": {"query": "password of the vault"}}}
    at = urllib.request.Request(url + "/mcp", json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}).encode(),
                                {"Authorization": "Bearer " + who[0], "Content-Type": "application/json", "X-User": who[1]})
    session = urllib.request.urlopen(at, timeout=300).headers["Mcp-Session-Id"]
    at = urllib.request.Request(url + "/mcp", json.dumps(body).encode(), {**at.headers, "Mcp-Session-Id": session})
    text = urllib.request.urlopen(at, timeout=300).read().decode()
    return sorted(n for n in ("shared.md", "alice.md", "ann.md", "bob.md", "talk.md") if n in text)


def put(who, name, collection, text="The password of the vault is tulip."):
    return call(who, "POST", DOCS, text + f" It is in {name}.", name=name, collection=collection)


# shared collections: everybody reads, administrators write
want(200, put(R, "shared.md", "default"))
want(403, put(B, "shared.md", "default"))
want(403, call(B, "DELETE", DOCS, name="shared.md"))
want(403, call(B, "POST", DOCS, "No collection.", name="none.md"))
# private ones
for who, name in ((A, "alice.md"), (AX, "ann.md"), (B, "bob.md")):
    got = want(200, put(who, name, "my:notes"))
    assert got["collection"] == "my:notes", got
for who, own in ((A, ["alice.md"]), (AX, ["ann.md"]), (B, ["bob.md"]), (R, [])):
    all_names = sorted(own + ["shared.md"])
    assert listed(who, collection="my:notes") == [("my:notes", n) for n in own], listed(who, collection="my:notes")
    assert sorted(n for _, n in listed(who)) == all_names, listed(who)
    assert searched(who, collection="my:notes") == own
    assert searched(who) == all_names, (who, searched(who))
    assert searched(who, collection="default") == ["shared.md"]
    assert asked(who, collection="my:notes") == own, asked(who, collection="my:notes")
    assert asked(who) == all_names, (who, asked(who))
    assert tool(who) == all_names, tool(who)
page = want(200, call(A, "GET", DOCS, limit=1))
assert listed(A, after=page["last_id"]) + listed(A, limit=1) == [("default", "shared.md"), ("my:notes", "alice.md")] or \
    listed(A, limit=1) + listed(A, after=page["last_id"]) == [("my:notes", "alice.md"), ("default", "shared.md")], page
want(404, call(B, "DELETE", DOCS, name="alice.md", collection="my:notes"))
want(404, call(R, "DELETE", DOCS, name="alice.md", collection="my:notes"))
assert listed(A, collection="my:notes") == [("my:notes", "alice.md")]

# no name reaches the stored name of another's collection
db = sqlite3.connect("kept/chimere.db")
stored = [c for (c,) in db.execute("SELECT DISTINCT collection FROM doc_files")]
assert len(stored) == 4, stored
for name in stored + ["\x01", "my:", "chat:", min(stored)[:-5]]:
    if name != "default":
        assert call(B, "GET", DOCS, collection=name)[0] == 400, name
        assert call(B, "GET", DOCS, after=name + "\tz")[0] == 400, name
        assert asked(B, collection=name) == 400, name
mine = db.execute("SELECT collection FROM doc_files WHERE path = 'alice.md'").fetchone()[0]
key = mine[1:mine.rindex("\x01")]
for user in ("\x01my:notes", "x\x01my:notes", "ann\x01"):
    assert asked((bob, user)) == ["shared.md"], user
    assert asked((bob, user), collection="my:notes") == 400, user

# a conversation's documents: its owner's, for requests that name it, as long as it exists
talk = want(200, call(A, "POST", "/v1/conversations", {}))["id"]
chat = "chat:" + talk
want(404, put(B, "talk.md", chat))
want(404, put(AX, "talk.md", chat))
want(200, put(A, "talk.md", chat))
assert asked(A, collection=chat) == ["talk.md"] and searched(A, collection=chat) == ["talk.md"]
assert "talk.md" not in asked(A) + searched(A) + tool(A) + [n for _, n in listed(A)]
for who in (AX, B, R):
    assert asked(who, collection=chat) == [] and searched(who, collection=chat) == [] and listed(who, collection=chat) == []
want(404, call(B, "DELETE", "/v1/conversations/" + talk))
assert searched(A, collection=chat) == ["talk.md"]
want(200, call(A, "DELETE", "/v1/conversations/" + talk))
assert listed(A, collection=chat) == [] and searched(A, collection=chat) == []
assert not db.execute("SELECT 1 FROM doc_fts WHERE body LIKE '%talk.md%'").fetchone()

# a response within a conversation reads the documents of that conversation, and is added to it
def respond(who, talk, text="On which river does Kala Pometh lie?", **more):
    return call(who, "POST", "/v1/responses", {"model": "odo", "conversation": talk, "input": text, "max_output_tokens": 40, "temperature": 0, **more})


def said(got):
    return "".join(p["text"] for x in want(200, got)["output"] if x["type"] == "message" for p in x["content"])


def items(who, talk):
    return [(x["role"], x["content"][0]["text"]) for x in want(200, call(who, "GET", f"/v1/conversations/{talk}/items", order="asc"))["data"]]


river = "Kala Pometh is a town. Kala Pometh lies on the river %s."
talk = want(200, call(AX, "POST", "/v1/conversations", {}))["id"]
want(200, put(R, "river.md", "default", river % "Mesak"))
first = respond(AX, {"id": talk})
assert "Mesak" in said(first) and first[1]["conversation"] == {"id": talk}, first
assert items(AX, talk) == [("user", "On which river does Kala Pometh lie?"), ("assistant", said(first))]
want(200, put(AX, "river.md", "chat:" + talk, river % "Goza"))
second = respond(AX, talk)
assert "Goza" in said(second) and "Mesak" not in said(second), second
assert len(items(AX, talk)) == 4
assert "Mesak" in said(respond(AX, talk, odo={"collection": "default"}))
assert "Mesak" in said(respond(AX, None)) and len(items(AX, talk)) == 6
before = want(200, call(AX, "GET", f"/v1/responses/{second[1]['id']}/input_items"))["data"]
assert [x["role"] for x in before] == ["user", "assistant", "user"], before # what was said comes before what is asked
for who in (A, B, R):
    want(404, respond(who, talk))
want(404, respond(AX, "conv_none"))
want(400, respond(AX, 7))
want(400, respond(AX, talk, previous_response_id=second[1]["id"]))
want(200, call(AX, "DELETE", "/v1/conversations/" + talk))
want(200, call(R, "DELETE", DOCS, name="river.md"))

# a key's documents are limited, with all its users; others are not
db.execute("INSERT INTO doc_files(collection, path, title, n_bytes, mtime_ns, n_chunk) VALUES(?, 'big.md', '', 1, 1, 99993)", ("\x01" + key + "\tbig\x01my:x",))
db.commit()
want(200, put(A, "second.md", "my:notes"))
assert "100000" in want(400, put(AX, "third.md", "my:notes"))["error"]["message"]
want(200, put(B, "third.md", "my:notes"))
want(200, call(A, "DELETE", DOCS, name="second.md", collection="my:notes"))
PY
python3 ask.py "$url" "$alice" "$bob" "$admin" 2>said.py || fail "$(tail -3 said.py)"
stop_server

# forgetting one user takes their documents and no others
docs() { python3 -c 'import sqlite3; print(*sorted(p for (p,) in sqlite3.connect("kept/chimere.db").execute("SELECT path FROM doc_files")))'; }
[ "$(docs)" = "alice.md ann.md big.md bob.md shared.md third.md" ] || fail "before: $(docs)"
"$CHIMERE" night forget --user alice/ann --night-dir nights --db kept/chimere.db >/dev/null
[ "$(docs)" = "alice.md big.md bob.md shared.md third.md" ] || fail "one user: $(docs)"
"$CHIMERE" night forget --user alice --night-dir nights --db kept/chimere.db >/dev/null
[ "$(docs)" = "bob.md shared.md third.md" ] || fail "a key: $(docs)"

# on this machine: the collections of its user
mkdir here && echo "The password of the vault is heather." >here/note.md
"$CHIMERE" odo index here --collection my:here --db kept/chimere.db >/dev/null
"$CHIMERE" odo search "password of the vault" --db kept/chimere.db >found
for word in heather shared.md; do grep -q "$word" found || fail "search lacks $word: $(cat found)"; done
! grep -q bob.md found || fail "search shows another's: $(cat found)"
"$CHIMERE" odo documents --db kept/chimere.db | grep '^my:here .*note.md' >/dev/null || fail "documents"
