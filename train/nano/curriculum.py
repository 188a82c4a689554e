"""All skills in one table; items, training samples, and the weights of the mix."""

import random

from chatform import call_text, completion, render
from skills_hard import HARD
from skills_math import MATH
from skills_text import EVAL_ONLY, TEXT_SKILLS, context_session, fact_article
from skills_tools import TOOL_SKILLS
from world import Split

SKILLS = {**MATH, **HARD, **TOOL_SKILLS, **TEXT_SKILLS}
EVAL_SKILLS = {**{k: v for k, v in SKILLS.items() if k not in ("talk", "story", *HARD)}, **EVAL_ONLY}
# Skills whose items are asked both with and without thinking; the others only without.
THINKING = {"add_sub", "product", "division", "sum_chain", "word_problem", "compare", "count", "dates", "units"}
# Skills whose thoughts are sometimes cut short, as a budget does it.
CUT = {"sum_chain", "word_problem", "product", "dates", "hard"}

# Share of procedural samples (not tokens) at the start of training; the trainer raises the weak ones.
WEIGHTS = {"add_sub": 7, "product": 5, "division": 1.5, "sum_chain": 2.5, "word_problem": 6, "verify": 4, "compare": 2.5, "sort": 5, "count": 4,
           "dates": 5, "units": 3, "sequence": 2.5, "tool_calculator": 2.5, "tool_call": 2.5, "tool_multi": 2, "tool_none": 1.5, "tool_result": 2,
           "json_schema": 6, "query_expand": 5, "context_answer": 4, "context_none": 1.5, "fact": 5, "intent": 9, "memory": 4, "rewrite": 7,
           "copy": 4, "talk": 4, "story": 4, "context_session": 7, "tool_session": 7, "hard": 14, "hard_verify": 18}
# Sessions of several turns, and the skills that they teach.
SESSIONS = {"context_session": ("context_answer", "context_none"),
            "tool_session": ("tool_calculator", "tool_call", "tool_multi", "tool_none", "tool_result")}
_OPENERS = ["Please: ", "Task: ", "Question: ", "Q: ", "Now: ", "Next: ", "Hello. ", "Hi! ", "One more: ", "Help me with this: ", "I have a task. ",
            "Quick: ", "Next question: ", "Here is one: ", "Exercise: ", "- ", "1. ", "And this: ", "OK. ", "Thanks. "]


def eval_items(skill, n, seed):
    """n items of a skill, fixed by the seed; prompts are distinct where the skill has enough of them."""
    rng = random.Random(f"{skill}/{seed}")
    split, make = Split(rng, "eval"), (SKILLS | EVAL_ONLY)[skill]
    out, seen = [], set()
    for tries in range(50 * n):
        it = make(rng, split)
        if it["think"] is None:
            it["think"] = skill in THINKING and len(out) % 2 == 1
        key = repr(it["messages"]) + str(it["think"])
        if key in seen and tries < 40 * n:
            continue
        seen.add(key)
        out.append(it)
        if len(out) == n:
            break
    rows = []
    for i, it in enumerate(out):
        row = {"id": f"{skill}-{seed}-{i}", "skill": skill, "messages": it["messages"]}
        if it["tools"]:
            row["tools"] = it["tools"]
        row.update(think=it["think"], max_tokens=it["max_tokens"] * (2 if it["think"] else 1), check=it["check"])
        rows.append(row)
    return rows


PROMPT, FULL, NONE = 0, 1, 3        # loss classes of segments (data.py has the weights)


def _vary(it, rng):
    """Other ways to open the same request, so that no wording of ours becomes a key."""
    msgs = it["messages"]
    if rng.random() < 0.4:
        text = msgs[-1]["content"]
        if rng.random() < 0.25:
            text = text[0].lower() + text[1:]
        else:
            text = rng.choice(_OPENERS) + text
        msgs = msgs[:-1] + [{"role": "user", "content": text}]
    if msgs[0]["role"] != "system" and rng.random() < 0.12:
        msgs = [{"role": "system", "content": rng.choice(_SYSTEMS)}] + msgs
    return it | {"messages": msgs}


_SYSTEMS = ["You are a helpful assistant.", "You are chimere-nano, a small assistant.", "Answer briefly.", "Be exact.", "You are a careful assistant."]


def _turn_head(text, think):
    return f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n" + ("" if think else "\n</think>\n\n")


def _context_session(rng, split):
    first, later = context_session(rng, split)
    think = rng.random() < 0.15
    out = [(render(first["messages"], None, think), PROMPT), (completion(first["answer"], first["thought"], think), FULL)]
    for q, a, t in later:
        think = rng.random() < 0.15
        out += [(_turn_head(q, think), PROMPT), (completion(a, t, think), FULL)]
    return out


def _tool_session(rng, split):
    """Requests of several kinds over one set of tools; every call and every answer is learnt."""
    tools, turns = {}, []
    for _ in range(rng.randint(3, 6)):
        it = SKILLS[rng.choice(["tool_calculator", "tool_call", "tool_call", "tool_multi", "tool_none", "tool_result", "tool_result"])](rng, split)
        msgs = [m for m in it["messages"] if m["role"] != "system"]
        wanted = {t["function"]["name"]: t for t in it["tools"]}
        used = {c["name"] for m in msgs for c in m.get("tool_calls", [])}
        if it["check"]["kind"] == "toolcall":
            used |= {c["name"] for c in it["check"]["answer"]}
        need = {n: t for n, t in wanted.items() if n in used} if used else dict(list(wanted.items())[:1])
        if any(n in tools and tools[n] != t for n, t in need.items()):
            if any(tools[n]["function"]["parameters"]["properties"].keys() != t["function"]["parameters"]["properties"].keys()
                   for n, t in need.items() if n in tools):
                continue
        tools.update({n: t for n, t in need.items() if n not in tools})
        turns.append((msgs, it))
    names = list(tools)
    rng.shuffle(names)
    out = []
    for k, (msgs, it) in enumerate(turns):
        think = rng.random() < 0.15
        head = render(msgs[:1], [tools[n] for n in names], think) if k == 0 else _turn_head(msgs[0]["content"], think)
        out.append((head, PROMPT))
        if len(msgs) > 1:
            call = call_text([(c["name"], c["arguments"]) for c in msgs[1]["tool_calls"]])
            out.append((completion(call, "", think), FULL))
            out.append((f"\n<|im_start|>user\n<tool_response>\n{msgs[2]['content']}\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n"
                        + ("" if think else "\n</think>\n\n"), PROMPT))
        out.append((completion(it["answer"], it["thought"], think), FULL))
    return out


def _cut(it, rng):
    """A thought that was closed before its end, and the whole answer behind it; nobody learns to stop there."""
    thought, at = it["thought"], 0
    ends = [i for i, c in enumerate(thought[:-1]) if c == " "]
    if rng.random() < 0.5:
        ends = [i for i in ends if thought[i - 1] in ".;"]
    if ends and rng.random() < 0.95:
        at = rng.choice(ends)
    return [(render(it["messages"], it["tools"], True), PROMPT), (thought[:at] + "\n</think>\n\n", NONE),
            (completion(it.get("worked", it["answer"]), "", False), FULL)]


def training_sample(skill, rng):
    """[(text, loss class)]; the segments are tokenised apart."""
    split = Split(rng, "train")
    if skill == "context_session":
        return _context_session(rng, split)
    if skill == "tool_session":
        return _tool_session(rng, split)
    it = SKILLS[skill](rng, split)
    think = it["think"]
    if think is None:
        think = rng.random() < (0.45 if skill in THINKING else 0.2)
    if skill not in ("context_answer", "context_none", "tool_result"):
        it = _vary(it, rng)
    if think and skill in CUT and it["thought"] and rng.random() < 0.15:
        return _cut(it, rng)
    return [(render(it["messages"], it["tools"], think), PROMPT), (completion(it["answer"], it["thought"], think), FULL)]


def article_sample(rng):
    return fact_article(rng, None)
