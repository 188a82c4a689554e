"""The text corpus: which documents may be trained on, and as what.

Never used for training: domain-cyber*, OWASP rows elsewhere, and every 50th document of each
other file (index % 50 == 0). `held_out=True` yields exactly those every-50th documents.
"""

import json
import lzma
import os
import random
import re
from collections import Counter

PROSE = {"books-simple.txt": "books", "books-general.txt": "books", "textbooks.txt": "textbooks", "domain-kine.txt": "kine", "domain-code.txt": "code"}
CHATS = ["qa-textbook.jsonl", "qa-trivia.jsonl", "qa-facts.jsonl", "math-gsm8k.jsonl", "instructions.jsonl", "chitchat.jsonl", "dialogues-chat.jsonl",
         "dialogues-topical.jsonl", "dialogues-task.jsonl", "domain-kine-qa.jsonl"]
_CATS = "code, kine, cyber, research, default"


def _read(corpus, name):
    path = os.path.join(corpus, name)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            return f.read()
    with lzma.open(path + ".xz", "rt", encoding="utf-8") as f:
        return f.read()


def _kept(i, held_out):
    return (i % 50 == 0) == held_out


def prose_documents(corpus, held_out=False):
    """(text, source)."""
    for name, source in PROSE.items():
        for i, doc in enumerate(_read(corpus, name).split("\n<|doc|>\n")):
            if _kept(i, held_out) and "OWASP" not in doc:
                yield doc.strip(), source


def wide_words(corpus, least=25):
    """Common lower-case words of the books and textbooks, sorted: fillers for open slots."""
    counts = Counter()
    for text, source in prose_documents(corpus):
        if source in ("books", "textbooks"):
            counts.update(re.findall(r"\b[a-z]{3,11}\b", text[:20000]))
    return sorted(w for w, n in counts.items() if n >= least)


def _turn(user, answer, source, thought="", weight=1.0):
    return {"messages": [{"role": "user", "content": user}], "answer": answer, "thought": thought, "source": source, "weight": weight}


def chat_rows(corpus, held_out=False, seed=11):
    """Question and answer rows and dialogues in chat form."""
    rng = random.Random(seed)
    for name in CHATS:
        stem = name.split(".")[0]
        for i, line in enumerate(_read(corpus, name).splitlines()):
            if not _kept(i, held_out) or "owasp" in line.lower():
                continue
            row = json.loads(line)
            if "turns" in row:
                turns = row["turns"][: rng.randint(2, 14) // 2 * 2]
                if len(turns) < 2 or len(turns) % 2:
                    continue
                msgs = [{"role": "user" if j % 2 == 0 else "assistant", "content": t} for j, t in enumerate(turns[:-1])]
                yield {"messages": msgs, "answer": turns[-1], "thought": "", "source": stem, "weight": 1.0}
            elif "instruction" in row:
                q = row["instruction"] + ("\n\n" + row["input"] if row["input"] else "")
                yield _turn(q, row["output"], row["source"])
            elif "steps" in row:
                steps = "\n".join(row["steps"])
                if rng.random() < 0.5:
                    yield _turn(row["q"], f"{steps}\nThe answer is {row['a']}.", stem)
                else:
                    yield _turn(row["q"], f"The answer is {row['a']}.", stem, thought=steps)
            else:
                q = row["q"]
                if row.get("choices") and (row.get("needs_choices") or rng.random() < 0.3):
                    q += "\n" + "\n".join("- " + c for c in row["choices"])
                label = "kine" if "kine" in stem else "default" if stem in ("qa-trivia", "chitchat") else None
                if label and rng.random() < (0.25 if label == "kine" else 0.03) and len(row["q"]) < 160:
                    yield _turn(f"Classify the intent of this message in one word ({_CATS}): {row['q']}", label, "intent")
                yield _turn(q, row["a"], stem)
