"""Larger numbers: chains and problems solved in several ways, and solutions checked digit by digit.

The solver says a sum or a product at once, sometimes in parts, and may take the terms in another order. The verifier
spends more: it adds digit by digit from the right (a difference is checked by adding back) and multiplies by tens and ones.
So it can know what the solver got wrong. The solutions that it is shown have the errors that a solver makes: a
carry, a digit, a part of a product, an operand copied wrongly, a term forgotten, an old result taken for the last.

A path is a list of (x, op, y, sentence): x and y are numbers or `Ref`, the result of an earlier step; sentence has
{eq} for the calculation, or is None.
"""

from skills_math import item, number, problem_steps

SIGNS = "+-x/"


class Ref(int):
    """The result of step int(self)."""


def _calc(x, op, y):
    return x + y if op == "+" else x - y if op == "-" else x * y if op == "x" else x // y if y else 0


def run(path, wrong=None):
    """[(x, op, y, result, sentence)] with numbers for refs; wrong: {step: result said instead}."""
    out = []
    for i, (x, op, y, sentence) in enumerate(path):
        x, y = (out[v][3] if isinstance(v, Ref) else v for v in (x, y))
        r = _calc(x, op, y)
        out.append((x, op, y, wrong[i](x, op, y, r) if wrong and i in wrong else r, sentence))
    return out


# ---- checks ----------------------------------------------------------------------------------------

def columns(a, b):
    """Sum of two numbers digit by digit: "7+6=13, 4+8+1=13, 3+2+1=6: 633"."""
    x, y, carry, rows = a, b, 0, []
    while x or y or carry or not rows:
        parts = ([x % 10] if x or not (y or carry) else []) + ([y % 10] if y else []) + ([carry] if carry else [])
        s = sum(parts)
        rows.append("+".join(map(str, parts)) + (f"={s}" if len(parts) > 1 else ""))
        carry, x, y = s // 10, x // 10, y // 10
    return ", ".join(rows) + f": {a + b}"


def _parts(x, y):
    """x times y as two products that are each known by heart, or None."""
    if y >= 10 and (x >= 10 or x < y):
        x, y = y, x                                             # x is the larger, or both have two digits
    if x < 10:
        return None
    if y >= 10:
        small, big = (y, x) if y % 10 == 0 or x >= 100 else (x, y)
        x, y = small, big
        if x % 10 == 0 and y % 10 == 0:
            return None
        tens = 10 ** (len(str(y)) - 1)
        head, tail = y // tens * tens, y % tens
        if not tail:
            tens = 10 ** (len(str(x)) - 1)
            x, y, head, tail = y, x, x // tens * tens, x % tens
        return None if not tail else (x, head, x * head, tail, x * tail)
    tens = 10 ** (len(str(x)) - 1)
    head, tail = x // tens * tens, x % tens
    return None if not tail else (y, head, y * head, tail, y * tail)


def product_check(x, y):
    p = _parts(x, y)
    if not p:
        return f"{x} x {y}: {x * y}"
    k, head, a, tail, b = p
    return f"{k} x {head} = {a}, {k} x {tail} = {b}; {columns(a, b)}"


def check(x, op, y, r):
    """(the working, what it shows, what it must equal)."""
    if op == "+":
        return (f"{x} + {y}: {columns(x, y)}" if max(x, y) > 9 else f"{x} + {y}: {x + y}"), x + y, r
    if op == "-":
        return (f"{r} + {y}: {columns(r, y)}" if max(r, y) > 9 else f"{r} + {y}: {r + y}"), r + y, x
    if op == "x":
        return product_check(x, y), x * y, r
    return product_check(y, r), y * r, x


def verdicts(rows, bad, follows, complete):
    """The verifier's words on rows [(x, op, y, r, ..)]; bad: the first wrong step or None; follows: its operands are right."""
    out, labels = [], []
    for i, (x, op, y, r, *_) in enumerate(rows):
        n = i + 1
        if i == bad and not follows:
            out.append(f"Step {n}: this does not follow. Step {n} is incorrect. \\boxed{{incorrect}}")
            labels.append("incorrect")
            break
        if op == "answer":
            ok = i != bad
            out.append(f"Step {n}: the result is {y}{'' if ok else f', not {r}'}. Step {n} is {'correct' if ok else 'incorrect'}. "
                       f"\\boxed{{{'correct' if ok else 'incorrect'}}}")
        else:
            work, got, want = check(x, op, y, r)
            ok = got == want
            out.append(f"Step {n}: {work}{'' if ok else f', not {want}'}. Step {n} is {'correct' if ok else 'incorrect'}. \\boxed{{{'correct' if ok else 'incorrect'}}}")
        labels.append("correct" if ok else "incorrect")
        if not ok:
            break
    out.append(f"Is the solution correct? {'Yes' if bad is None and complete else 'No'}")
    return "\n".join(out), labels


# ---- paths -----------------------------------------------------------------------------------------

def _in_parts(rng, path):
    """Some steps in two or three: tens and ones of what is added, parts of a product."""
    out, at = [], []

    def moved(v):
        return Ref(at[v]) if isinstance(v, Ref) else v

    values = run(path)
    for i, (x, op, y, sentence) in enumerate(path):
        vx, vy = values[i][0], values[i][2]
        x, y = moved(x), moved(y)
        split = False
        if op in "+-" and not isinstance(y, Ref) and 10 < vy < 10000 and vy % 10:
            tens = 10 ** (len(str(vy)) - 1 if rng.random() < 0.5 else 1)
            head, tail = vy // tens * tens, vy % tens
            if head and tail and rng.random() < 0.7:
                out += [(x, op, head, None), (Ref(len(out)), op, tail, sentence)]
                split = True
        elif op == "x" and _parts(vx, vy):
            k, head, _, tail, _ = _parts(vx, vy)
            out += [(k, "x", head, None), (k, "x", tail, None), (Ref(len(out)), "+", Ref(len(out) + 1), sentence)]
            split = True
        if not split:
            out.append((x, op, y, sentence))
        at.append(len(out) - 1)
    return out


def _number(rng, digits):
    return rng.randint(10 ** (digits - 1), 10 ** digits - 1)


def _factors(rng):
    r = rng.random()
    if r < 0.6:
        return rng.randint(11, 99), rng.randint(11, 99)
    return (rng.randint(100, 999), rng.randint(2, 9)) if r < 0.85 else (rng.randint(11, 99), rng.randint(2, 9))


def chain_terms(rng):
    """(text, [(sign, value or (x, y))])."""
    n = rng.choice([2, 3, 3, 3, 4, 4, 5])
    wide = rng.choice([2, 3, 3, 4])
    terms, acc = [], 0
    with_product = rng.random() < 0.4
    at = rng.randrange(n) if with_product and rng.random() < 0.4 else 0
    for i in range(n):
        t = _factors(rng) if with_product and i == at else _number(rng, max(1, wide - rng.choice([0, 0, 0, 1, 1, 2])))
        v = t[0] * t[1] if isinstance(t, tuple) else t
        sign = "-" if i and v <= acc and rng.random() < 0.5 else "+"
        acc += v if sign == "+" else -v
        terms.append((sign, t))
    return terms


def chain_text(terms):
    out = ""
    for i, (sign, t) in enumerate(terms):
        out += (f" {sign} " if i else "") + (f"{t[0]} x {t[1]}" if isinstance(t, tuple) else str(t))
    return out


def chain_path(rng, terms, plain=False):
    """One way to work terms out: products first, then from left to right, or in another order that never goes below zero."""
    path, values = [], []
    for sign, t in terms:
        if isinstance(t, tuple):
            path.append((t[0], "x", t[1], None))
            values.append((sign, Ref(len(path) - 1), t[0] * t[1]))
        else:
            values.append((sign, t, t))
    if not plain and len(values) > 2 and rng.random() < 0.2:
        mixed = values[:]
        for _ in range(20):
            rng.shuffle(mixed)
            acc, ok = 0, mixed[0][0] == "+"
            for sign, _, v in mixed:
                acc += v if sign == "+" else -v
                ok = ok and acc >= 0
            if ok:
                values = mixed
                break
    acc = values[0][1]
    for sign, v, _ in values[1:]:
        path.append((acc, sign, v, None))
        acc = Ref(len(path) - 1)
    if len(path) == 0:
        path.append((acc, "+", 0, None))
    return path if plain or rng.random() < 0.75 else _in_parts(rng, path)


START, COUNT, FACTOR = (11, 60), (3, 30), (2, 9)                # what problem_steps draws from


class Scaled:
    """A random source whose ranges are larger."""

    def __init__(self, rng, ranges):
        self.rng, self.ranges = rng, ranges

    def randint(self, low, high):
        return self.rng.randint(*self.ranges.get((low, high), (low, high)))

    def __getattr__(self, name):
        return getattr(self.rng, name)


def problem(rng, split, ranges):
    """(text, path): a word problem with larger numbers; nothing goes below zero."""
    while True:
        text, steps, _ = problem_steps(Scaled(rng, ranges), split)
        if all(s[4] >= 0 for s in steps):
            break
    path, seen = [], []
    for i, (sentence, x, op, y, r) in enumerate(steps):
        path.append((Ref(i - 1) if i and x == seen[-1] else x, op, Ref(seen.index(y)) if y in seen and y > 30 else y, sentence))
        seen.append(r)
    return text, path


def wide_ranges(rng):
    r = rng.random()
    start = rng.choice([(11, 99), (100, 400), (200, 999), (1000, 9999)])
    if r < 0.45:
        return {START: start, COUNT: (11, 99), FACTOR: (5, 99)}
    if r < 0.75:
        return {START: start, COUNT: (60, 999), FACTOR: (2, 9)}
    return {START: start, COUNT: (11, 99), FACTOR: (2, 12)}


# ---- saying it -------------------------------------------------------------------------------------

def _eq(row):
    x, op, y, r, _ = row
    return f"{x} {op} {y} = {r}"


def say(rng, rows, answer):
    """(answer text, its steps as the verifier is shown them); the last "step" may be what the text concludes."""
    told = all(s for *_, s in rows)
    style = rng.choice("AAAAAABBC" if not told else "BSSSTTTAC")
    end = f"The answer is {answer}."
    if style == "A":
        parts = [_eq(r) + (";" if i + 1 < len(rows) else ".") for i, r in enumerate(rows)]
        text = " ".join(parts) + " " + end
    elif style == "B":
        parts = [_eq(r) for r in rows]
        text = "\n".join(f"Step {i + 1}: {p}" for i, p in enumerate(parts)) + "\n" + end
    elif style == "C":
        words = ["First"] + ["Then"] * (len(rows) - 1)
        parts = [f"{w}, {_eq(r)}." for w, r in zip(words, rows)]
        end = f"So the answer is {answer}."
        text = " ".join(parts) + " " + end
    else:
        parts = [r[4].format(eq=_eq(r)) for r in rows]
        text = ("\n".join(f"Step {i + 1}: {p}" for i, p in enumerate(parts)) + "\n" if style == "T" else " ".join(parts) + " ") + end
    if len(rows) == 1 and style in "BT":                         # one numbered line alone is not read as numbered
        parts = ["Step 1: " + parts[0]]
    return text, parts, end


def thought_of(rows):
    return "; ".join(_eq(r) for r in rows) + "."


_ASK = ["What is {e}?", "Calculate {e}.", "{e} =", "Work out {e} step by step.", "Solve {e}.", "Evaluate {e}.", "Tell me {e}.", "What does {e} make?",
        "Give the result of {e}.", "what's {e}", "Work out {e}.", "How much is {e}?", "{e}", "Compute {e}.", "Find {e}.", "Do this sum: {e}", "What do you get for {e}?",
        "Show how to work out {e}.", "Combien font {e} ?", "Result of {e}?"]
_ASK_HELD = ["Please compute {e}."]
_MORE = ["", "", "", "", "", " Think step by step.", " Show your steps.", " Show the work.", " Give the steps.", " Write each step."]


def _task(rng, S):
    """(text of the question, a way to answer it, a function that draws another way)."""
    if rng.random() < 0.5:
        terms = chain_terms(rng)
        text = S.of(_ASK, _ASK_HELD).format(e=chain_text(terms))
        return text, lambda: chain_path(rng, terms)
    text, path = problem(rng, S, wide_ranges(rng))
    return text + rng.choice(_MORE), lambda: _in_parts(rng, path) if rng.random() < 0.2 else path


def hard(rng, S):
    text, way = _task(rng, S)
    rows = run(way())
    said, _, _ = say(rng, rows, rows[-1][3])
    it = item("hard", text, said, number(rows[-1][3]), thought_of(rows), max_tokens=320)
    return it | {"think": rng.random() < 0.6}


# ---- solutions with errors, and what the verifier says ---------------------------------------------

def _slip(rng):
    """A function (x, op, y, r) -> what a solver may have written for r."""
    kind = rng.random()

    def wrong(x, op, y, r):
        if min(x, y, r) < 0:                                     # what an earlier slip led to
            return r
        s = str(r)
        for _ in range(50):
            k = kind if _ == 0 else rng.random()
            if k < 0.35:                                         # a carry lost or one too many
                v = r + rng.choice([-1, 1]) * 10 ** rng.randint(1 if len(s) > 1 else 0, max(1, len(s) - 1))
            elif k < 0.6:                                        # one digit
                i = rng.randrange(len(s))
                v = int(s[:i] + str(rng.randrange(10)) + s[i + 1:])
            elif k < 0.72:
                v = r + rng.choice([-9, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 9])
            elif k < 0.8 and len(s) > 1:                         # two digits change places
                i = rng.randrange(len(s) - 1)
                v = int(s[:i] + s[i + 1] + s[i] + s[i + 2:])
            elif k < 0.88 and len(s) > 2:                        # two digits
                i = rng.randrange(len(s) - 1)
                v = int(s[:i] + str(rng.randrange(100)).zfill(2) + s[i + 2:])
            elif op == "x":
                v = rng.choice([x * (y + 1), x * (y - 1), (x + 1) * y, (x - 1) * y, r + 10 * x, r - 10 * x, r + 10 * y, r - 10 * y, r + 100, r - 100])
            elif op in "+-":                                     # the other operation, no carries at all
                v = _calc(x, "-" if op == "+" else "+", y) if rng.random() < 0.3 else \
                    sum((p + (q if op == "+" else -q)) % 10 * 10 ** i for i, (p, q) in enumerate(zip(map(int, reversed(str(x))), map(int, reversed(str(y).zfill(len(str(x))))))))
            else:
                v = r + rng.choice([-2, -1, 1, 2])
            if v >= 0 and v != r and len(str(v)) <= len(s) + 1:
                return v
        return r + 1
    return wrong


def _miscopied(rng, v):
    s = str(abs(v))
    i = rng.randrange(len(s))
    if len(s) > 1 and rng.random() < 0.4 and s[i - 1 if i else 1] != s[i]:
        j = i - 1 if i else 1
        t = list(s)
        t[i], t[j] = t[j], t[i]
        out = int("".join(t))
    else:
        out = int(s[:i] + str((int(s[i]) + rng.randint(1, 9)) % 10) + s[i + 1:])
    return out if out else v + 1


def solution(rng, S):
    """(problem, rows, answer said, first wrong step or None, its operands follow, nothing is missing)."""
    text, way = _task(rng, S)
    path = way()
    right = run(path)
    if rng.random() < 0.5:
        return text, right, right[-1][3], None, True, True
    kind = rng.random()
    n = len(path)
    if kind < 0.68:
        bad = rng.randrange(n)
        rows = run(path, {bad: _slip(rng)})
        if rng.random() < 0.3:                                  # one more behind it
            rows = run(path, {bad: _slip(rng), rng.randrange(bad, n): _slip(rng)})
        if rows[bad][3] != _calc(*rows[bad][:3]):
            return text, rows, rows[-1][3], bad, True, True
    elif kind < 0.86:
        bad, changed = rng.randrange(n), list(path)
        x, op, y, s = path[bad]
        vx, _, vy, _, _ = right[bad]
        how = rng.random()
        known = {vx, vy} | {v for r in right for v in (r[0], r[2], r[3])}
        if how < 0.3 and op in "+-":
            op2 = "-" if op == "+" and vx >= vy else "+"
            changed[bad] = (x, op2, y, s)
        elif how < 0.45 and bad > 1 and isinstance(x, Ref):       # an old result
            changed[bad] = (Ref(rng.randrange(x)), op, y, s) if x > 0 else (x, op, _miscopied(rng, vy), s)
        elif how < 0.72:
            changed[bad] = (x, op, _miscopied(rng, vy), s)
        else:
            changed[bad] = (_miscopied(rng, vx), op, y, s)
        rows = run(changed)
        used = rows[bad][:3]
        stale = how < 0.45 and used[0] != vx
        new = [v for v in (used[0], used[2]) if v not in (vx, vy)]
        if used != (vx, op, vy) and used[1] == changed[bad][1] and all(r[3] >= 0 for r in rows) and (stale or not any(v in known for v in new)):
            return text, rows, rows[-1][3], bad, False, True
    elif kind < 0.94 and n > 1:                                  # something is left out: the last steps
        rows = right[:-1]
        if rows and rows[-1][3] != right[-1][3]:
            return text, rows, rows[-1][3], None, True, False
    else:                                                       # another number at the end
        said = _slip(rng)(*right[-1][:4])
        rows = right + [(None, "answer", right[-1][3], said, None)]
        return text, rows, said, n, True, True
    return text, right, right[-1][3], None, True, True


INSTRUCTION = "Check each step of this solution."


def hard_verify(rng, S):
    while True:
        text, rows, answer, bad, follows, complete = solution(rng, S)
        if len(rows) < 10 and all(r[3] >= 0 for r in rows):
            break
    ends = rows[-1][1] == "answer"
    _, parts, end = say(rng, rows[:-1] if ends else rows, answer)
    if ends:
        parts = parts + [end]
    said, labels = verdicts(rows, bad, follows, complete)
    shown = "".join(f"\nStep {i + 1}: {p}" for i, p in enumerate(parts))
    return item("hard_verify", f"{INSTRUCTION}\n\nProblem: {text}\n\nSolution:{shown}", said,
                {"kind": "verdict", "answer": "yes" if bad is None else "no", "steps": labels}, max_tokens=600) | {"think": False}


HARD = {"hard": hard, "hard_verify": hard_verify}
