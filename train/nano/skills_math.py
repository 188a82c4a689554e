"""Numbers: sums, products, word problems, order, counting, dates, units, step verification.

Each generator takes (rng, split) and returns an item: messages, answer, thought, check.
Pairs of operands are held out by arithmetic on their values (`held_pair`), so an evaluation item
of two-digit sums or one-by-two-digit products is a pair that training never showed.
"""


from world import (DAYS, FIRST_NAMES, FRUITS, MONTHS, MONTH_DAYS, NOUNS, NUMBER_WORDS,
                   PLACES, THINGS)


def item(skill, user, answer, check, thought="", system=None, messages=None, tools=None, think=None, max_tokens=96):
    msgs = messages or [{"role": "user", "content": user}]
    if system:
        msgs = [{"role": "system", "content": system}] + msgs
    return {"skill": skill, "messages": msgs, "tools": tools, "answer": answer, "thought": thought,
            "check": check, "think": think, "max_tokens": max_tokens}


def number(value):
    return {"kind": "number", "answer": value}


def exact(*answers):
    return {"kind": "exact", "answer": list(answers)}


def held_pair(a, b):
    lo, hi = min(a, b), max(a, b)
    return (lo * 31 + hi * 17) % 10 == 3


def _pair(rng, S, draw):
    """Operands for training or evaluation, by the held-out rule."""
    for _ in range(1000):
        a, b = draw()
        if held_pair(a, b) == S.is_eval():
            return a, b
    raise AssertionError("no pair left")


_ADD = ["What is {a} + {b}?", "{a} + {b} =", "{a}+{b}", "Calculate {a} + {b}.", "Add {a} and {b}.", "What is {a} plus {b}?",
        "How much is {a} and {b} together?", "Combien font {a} + {b} ?", "Work out {a} + {b}.", "{a} plus {b}?",
        "what's {a} + {b}", "Sum: {a} + {b}", "{a} and {b} make how much?", "Can you add {b} to {a}?", "Solve {a} + {b}.", "The sum of {a} and {b} is?",
        "Tell me {a} + {b}.", "Evaluate {a} + {b}.", "Give the result of {a} + {b}.", "I have {a} and get {b} more. How many is that?", "Compute the total of {a} and {b}."]
_ADD_HELD = ["Please compute {a} + {b}.", "Find the sum of {a} and {b}.", "Give me {a} plus {b}."]
_SUB = ["What is {a} - {b}?", "{a} - {b} =", "{a}-{b}", "Calculate {a} - {b}.", "Subtract {b} from {a}.", "What is {a} minus {b}?",
        "Take {b} away from {a}.", "Combien font {a} - {b} ?", "Work out {a} - {b}.", "{a} minus {b}?", "what's {a} - {b}", "Difference: {a} - {b}", "From {a} take {b}.", "Can you take {b} from {a}?", "Solve {a} - {b}.", "The difference of {a} and {b} is?",
        "Tell me {a} - {b}.", "Evaluate {a} - {b}.", "Give the result of {a} - {b}.", "I have {a} and give away {b}. How many are left?", "{a} less {b} is?"]
_SUB_HELD = ["Please compute {a} - {b}.", "Find {a} less {b}.", "Give me {a} minus {b}."]
_MUL = ["What is {a} * {b}?", "{a} x {b} =", "{a}*{b}", "Calculate {a} x {b}.", "Multiply {a} by {b}.", "What is {a} times {b}?",
        "Combien font {a} x {b} ?", "Work out {a} * {b}.", "{a} times {b}?", "what's {a} x {b}", "Product: {a} x {b}", "Can you multiply {a} by {b}?", "Solve {a} * {b}.", "The product of {a} and {b} is?", "Tell me {a} * {b}.",
        "Evaluate {a} x {b}.", "Give the result of {a} * {b}.", "There are {a} rows of {b}. How many in all?", "{a} multiplied by {b} is?", "Compute {a} times {b}."]
_MUL_HELD = ["Please compute {a} x {b}.", "Find the product of {a} and {b}.", "Give me {a} times {b}."]


def _add_thought(a, b):
    """Column addition, right to left."""
    rows, carry, x, y, digits = [], 0, a, b, []
    while x or y or not rows:
        p, q = x % 10, y % 10
        s = p + q + carry
        rows.append(f"{p} + {q}" + (f" + {carry}" if carry else "") + f" = {s}" + (f", write {s % 10}, carry 1" if s > 9 else ""))
        digits.append(s % 10)
        carry, x, y = s // 10, x // 10, y // 10
    return "; ".join(rows) + f". So {a} + {b} = {a + b}."


def _sub_thought(a, b):
    if a < b:
        return f"{b} is larger, so the answer is negative. {b} - {a} = {b - a}. So {a} - {b} = {a - b}."
    tens, ones = b // 10 * 10, b % 10
    if b < 10 or not ones:
        return f"{a} - {b} = {a - b}."
    return f"{a} - {tens} = {a - tens}; {a - tens} - {ones} = {a - b}. So {a} - {b} = {a - b}."


def _mul_parts(a, b):
    """a one digit, b two digits."""
    tens, ones = b // 10 * 10, b % 10
    return a * tens, a * ones, tens, ones


def add_sub(rng, S):
    plus = rng.random() < 0.5
    if S.is_eval() or rng.random() < 0.8:
        a, b = _pair(rng, S, lambda: (rng.randint(10, 99), rng.randint(10, 99)))
        if not plus and a < b and (S.is_eval() or rng.random() < 0.8):
            a, b = b, a
    else:
        a, b = (rng.randint(0, 20), rng.randint(0, 9)) if rng.random() < 0.6 else (rng.randint(100, 999), rng.randint(10, 999))
        if not plus and a < b:
            a, b = b, a
    q = S.of(_ADD, _ADD_HELD) if plus else S.of(_SUB, _SUB_HELD)
    c = a + b if plus else a - b
    sign = "+" if plus else "-"
    if rng.random() < 0.15 and not S.is_eval():
        return item("add_sub", q.format(a=a, b=b) + " Answer with the number only.", f"{c}", number(c),
                    _add_thought(a, b) if plus else _sub_thought(a, b))
    return item("add_sub", q.format(a=a, b=b), f"{a} {sign} {b} = {c}", number(c),
                _add_thought(a, b) if plus else _sub_thought(a, b))


def product(rng, S):
    if S.is_eval() or rng.random() < 0.8:
        a, b = _pair(rng, S, lambda: (rng.randint(2, 9), rng.randint(10, 99)))
    else:
        a, b = rng.randint(0, 9), rng.randint(0, 9)
    x, y = (a, b) if rng.random() < 0.5 else (b, a)
    q = S.of(_MUL, _MUL_HELD).format(a=x, b=y)
    lo, hi = min(a, b), max(a, b)
    if hi < 11:
        return item("product", q, f"{x} x {y} = {x * y}", number(x * y), f"{x} x {y} = {x * y}.")
    p1, p2, tens, ones = _mul_parts(lo, hi)
    parts = f"{lo} x {tens} + {lo} x {ones} = {p1} + {p2}" if ones else f"{lo} x {tens // 10} x 10"
    return item("product", q, f"{x} x {y} = {parts} = {x * y}", number(x * y),
                f"{lo} x {tens} = {p1}; {lo} x {ones} = {p2}; {p1} + {p2} = {x * y}.")


def division(rng, S):
    a, b = _pair(rng, S, lambda: (rng.randint(2, 12), rng.randint(2, 12)))
    q = S.of(["What is {n} / {a}?", "Divide {n} by {a}.", "{n} / {a} =", "How many times does {a} go into {n}?", "Calculate {n} / {a}.", "What is {n} divided by {a}?", "Share {n} among {a}.", "Solve {n} / {a}.", "Evaluate {n} / {a}."],
             ["Please compute {n} divided by {a}."]).format(n=a * b, a=a)
    return item("division", q, f"{a * b} / {a} = {b}", number(b), f"{a} x {b} = {a * b}, so {a * b} / {a} = {b}.")


def sum_chain(rng, S):
    """Three or four terms; harder than the two-digit pairs."""
    n = rng.randint(3, 4)
    terms = [rng.randint(10, 99) for _ in range(n)]
    ops = [rng.choice("+-") for _ in range(n - 1)]
    acc, rows = terms[0], []
    for op, t in zip(ops, terms[1:]):
        if op == "-" and t > acc:
            op = "+"
        nxt = acc + t if op == "+" else acc - t
        rows.append((acc, op, t, nxt))
        acc = nxt
    expr = str(terms[0]) + "".join(f" {op} {t}" for _, op, t, _ in rows)
    q = S.of(["What is {e}?", "Calculate {e}.", "{e} =", "Work out {e} step by step.", "Solve {e}.", "Evaluate {e}.", "Tell me {e}.", "What does {e} make?", "Give the result of {e}.", "what's {e}"], ["Please compute {e}."]).format(e=expr)
    steps = "; ".join(f"{x} {op} {t} = {y}" for x, op, t, y in rows)
    return item("sum_chain", q, f"{steps}. The answer is {acc}.", number(acc), steps + ".")


# ---- word problems: a chain of typed steps --------------------------------------------------------

def problem_steps(rng, S):
    """(text, steps, answer); a step is (sentence with {eq}, x, op, y, result)."""
    who, other = S.words(FIRST_NAMES, 2)
    thing = S.word(THINGS)
    kind = rng.randrange(9)
    a, b, c, d = rng.randint(11, 60), rng.randint(3, 30), rng.randint(2, 9), rng.randint(2, 9)
    if kind == 0:
        text = f"{who} has {a} {thing}. {other} gives {who} {b} more. Then {who} loses {c}. How many {thing} does {who} have now?"
        steps = [(f"{who} has {{eq}} {thing} after the gift.", a, "+", b), (f"After losing {c}, {{eq}} {thing} are left.", None, "-", c)]
    elif kind == 1:
        text = f"{who} buys {c} boxes of {thing}. Each box holds {b} {thing}. {who} gives {d} {thing} to {other}. How many {thing} are left?"
        steps = [(f"{c} boxes hold {{eq}} {thing}.", c, "x", b), (f"After giving {d}, {{eq}} {thing} are left.", None, "-", d)]
    elif kind == 2:
        text = f"There are {c} tables at the {S.word(PLACES)}. On each table there are {b} {thing}. {who} brings {a} more {thing}. How many {thing} are there in all?"
        steps = [(f"The tables hold {{eq}} {thing}.", c, "x", b), (f"With {a} more there are {{eq}} {thing}.", None, "+", a)]
    elif kind == 3:
        text = f"{who} has {a} {thing}. {other} has {b} {thing} more than {who}. How many {thing} do they have together?"
        steps = [(f"{other} has {{eq}} {thing}.", a, "+", b), (f"Together they have {{eq}} {thing}.", None, "+", a)]
    elif kind == 4:
        per = rng.randint(2, 12)
        total = per * c
        text = f"{who} shares {total} {thing} equally among {c} friends. Each friend then gets {d} more from {other}. How many {thing} does each friend have?"
        steps = [(f"Each friend gets {{eq}} {thing}.", total, "/", c), (f"With {d} more, each has {{eq}} {thing}.", None, "+", d)]
    elif kind == 5:
        pay = c * d
        note = rng.choice([50, 100])
        text = f"One of the {thing} costs {c} euros. {who} buys {d} of them and pays with a {note} euro note. How much change does {who} get?"
        steps = [(f"The {thing} cost {{eq}} euros.", c, "x", d), ("The change is {eq} euros.", note, "-", pay)]
    elif kind == 6:
        text = f"{who} reads {b} pages a day for {c} days. The book has {b * c + a} pages. How many pages are left?"
        steps = [(f"{who} has read {{eq}} pages.", b, "x", c), ("The pages left are {eq}.", b * c + a, "-", b * c)]
    elif kind == 7:
        text = f"{who} picks {a} {S.word(FRUITS)} on {rng.choice(DAYS)} and twice as many the next day. {who} eats {c} of them. How many are left?"
        steps = [("The next day gives {eq}.", a, "x", 2), ("Both days give {eq}.", None, "+", a), (f"After eating {c}, {{eq}} are left.", None, "-", c)]
    else:
        text = f"A bus carries {a} people. At the {S.word(PLACES)} {b % 9 + 1} get off and {d} get on. At the next stop {c} get on. How many people are on the bus?"
        steps = [("After some get off there are {eq}.", a, "-", b % 9 + 1), (f"With {d} more there are {{eq}}.", None, "+", d), (f"With {c} more there are {{eq}} people.", None, "+", c)]
    out, last = [], None
    for sentence, x, op, y in steps:
        x = last if x is None else x
        last = {"+": x + y, "-": x - y, "x": x * y, "/": x // y if y else 0}[op]
        out.append((sentence, x, op, y, last))
    return text, out, last


def step_text(step, result=None):
    sentence, x, op, y, r = step
    return sentence.format(eq=f"{x} {op} {y} = {r if result is None else result}")


def word_problem(rng, S):
    text, steps, answer = problem_steps(rng, S)
    if rng.random() < 0.2:
        text += S.of([" Think step by step.", " Show your steps.", " Explain.", " Show the work.", " Give the steps.", " Write each step."], [" Explain each step."])
    lines = [step_text(s) for s in steps]
    if rng.random() < 0.5:
        said = "\n".join(f"Step {i + 1}: {t}" for i, t in enumerate(lines)) + f"\nThe answer is {answer}."
    else:
        said = " ".join(lines) + f" The answer is {answer}."
    thought = " ".join(f"{x} {op} {y} = {r}." for _, x, op, y, r in steps)
    if rng.random() < 0.5:
        return item("word_problem", text, said, number(answer), thought, max_tokens=140)
    it = item("word_problem", text, f"The answer is {answer}.", number(answer), " ".join(lines), think=True, max_tokens=140)
    return it | {"worked": said}                                # what to say behind a thought that was cut short


def _corrupt(rng, steps):
    """Copies of the steps with one wrong; later steps follow the wrong value. Returns (rows, index)."""
    bad = rng.randrange(len(steps))
    rows, shift = [], None
    for i, (sentence, x, op, y, r) in enumerate(steps):
        if shift is not None and x == shift[0]:
            x = shift[1]
            r = {"+": x + y, "-": x - y, "x": x * y, "/": x // y if y else 0}[op]
        if i == bad:
            old = steps[i][4]
            if rng.random() < 0.75:
                wrong = r + rng.choice([-10, -3, -2, -1, 1, 2, 3, 10])
                rows.append((sentence, x, op, y, wrong, "sum"))
            else:
                op2 = {"+": "-", "-": "+", "x": "+", "/": "-"}[op]
                wrong = {"+": x + y, "-": x - y}[op2]
                rows.append((sentence, x, op2, y, wrong, "op"))
            if wrong == old:
                rows[-1] = (sentence, x, op, y, old + 1, "sum")
                wrong = old + 1
            shift = (old, wrong)
        else:
            rows.append((sentence, x, op, y, r, ""))
            if shift is not None:
                shift = (steps[i][4], r)
    return rows, bad


def verify(rng, S):
    text, steps, _ = problem_steps(rng, S)
    right = rng.random() < 0.5
    rows, bad = ([s + ("",) for s in steps], None) if right else _corrupt(rng, steps)
    solution = "\n".join(f"Step {i + 1}: {s.format(eq=f'{x} {op} {y} = {r}')}" for i, (s, x, op, y, r, _) in enumerate(rows))
    ask = S.of(["Check each step of this solution.", "Verify the solution step by step.", "Review each step and say whether it is correct.",
                "You check solutions. Go through the steps one by one.", "Look at each step of the solution and judge it.", "Find the first wrong step, if there is one.",
                "Critique each step.", "Is every step correct? Go step by step.", "Grade this solution step by step.", "Decide for each step: correct or incorrect."],
               ["Judge every step of the solution below.", "Is this solution right? Look at each step."])
    user = f"{ask}\n\nProblem: {text}\n\nSolution:\n{solution}"
    out, labels = [], []
    for i, (s, x, op, y, r, wrong) in enumerate(rows):
        true = {"+": x + y, "-": x - y, "x": x * y, "/": x // y if y else 0}[op]
        if wrong == "sum":
            out.append(f"Step {i + 1}: {x} {op} {y} = {true}, not {r}. Step {i + 1} is incorrect. \\boxed{{incorrect}}")
        elif wrong == "op":
            op1 = steps[i][2]
            out.append(f"Step {i + 1}: this should be {x} {op1} {y}. Step {i + 1} is incorrect. \\boxed{{incorrect}}")
        else:
            out.append(f"Step {i + 1}: {x} {op} {y} = {true}. Step {i + 1} is correct. \\boxed{{correct}}")
        labels.append("incorrect" if wrong else "correct")
        if wrong:
            break
    out.append(f"Is the solution correct? {'Yes' if right else 'No'}")
    return item("verify", user, "\n".join(out), {"kind": "verdict", "answer": "yes" if right else "no", "steps": labels},
                max_tokens=220)


# ---- order, counting, dates, units ----------------------------------------------------------------

def compare(rng, S):
    k = rng.randrange(4)
    a, b, c = rng.sample(range(2, 10 ** rng.randint(2, 4)), 3)
    if k == 0:
        q = S.of(["Which is larger, {a} or {b}?", "Which number is bigger: {a} or {b}?", "Is {a} or {b} the larger number?", "What is more, {a} or {b}?", "Name the larger one: {a}, {b}.", "Larger of {a} and {b}?", "Give me the bigger of {a} and {b}.", "max({a}, {b})"],
                 ["Tell me the greater of {a} and {b}."]).format(a=a, b=b)
        return item("compare", q, str(max(a, b)), exact(str(max(a, b))), f"{max(a, b)} > {min(a, b)}.")
    if k == 1:
        q = S.of(["Which is smaller, {a} or {b}?", "Which number is less: {a} or {b}?", "Name the smaller one: {a}, {b}.", "Smaller of {a} and {b}?", "Give me the smaller of {a} and {b}.", "What is less, {a} or {b}?", "min({a}, {b})"], ["Tell me the lesser of {a} and {b}."]).format(a=a, b=b)
        return item("compare", q, str(min(a, b)), exact(str(min(a, b))), f"{min(a, b)} < {max(a, b)}.")
    if k == 2:
        q = S.of(["What is the largest of {a}, {b} and {c}?", "Largest number: {a}, {b}, {c}", "Name the largest: {a}, {b}, {c}", "Which is the biggest of {a}, {b}, {c}?", "Find the largest among {a}, {b} and {c}."], ["Of {a}, {b} and {c}, name the largest."]).format(a=a, b=b, c=c)
        return item("compare", q, str(max(a, b, c)), exact(str(max(a, b, c))), f"{max(a, b, c)} is the largest.")
    p, r, s = S.words(FIRST_NAMES, 3)
    order = [p, r, s]
    big = rng.random() < 0.5
    word, most = rng.choice([("taller", "tallest"), ("older", "oldest"), ("faster", "fastest"), ("stronger", "strongest")])
    rows = [f"{order[0]} is {word} than {order[1]}.", f"{order[1]} is {word} than {order[2]}."]
    if rng.random() < 0.5:
        rows.reverse()
    low = {"tallest": "shortest", "oldest": "youngest", "fastest": "slowest", "strongest": "weakest"}[most]
    ans = order[0] if big else order[2]
    return item("compare", " ".join(rows) + f" Who is the {most if big else low}?", ans, exact(ans),
                f"{order[0]}, then {order[1]}, then {order[2]}.")


def sort_items(rng, S):
    n = rng.randint(3, 6)
    if rng.random() < 0.6:
        xs = rng.sample(range(1, 100 if rng.random() < 0.7 else 1000), n)
        down = rng.random() < 0.4
        q = S.of(["Sort these numbers from {o}: {x}", "Put in order from {o}: {x}", "Arrange from {o}: {x}", "Order from {o}: {x}", "Write {x} from {o}.", "List from {o}: {x}", "Please sort {x} from {o}.", "Sorted from {o}, what is {x}?"],
                 ["Order the numbers {x} from {o}."])
        q = q.format(o="largest to smallest" if down else "smallest to largest", x=", ".join(map(str, xs)))
        ans = ", ".join(map(str, sorted(xs, reverse=down)))
    else:
        xs = S.words(NOUNS, n)
        q = S.of(["Sort these words alphabetically: {x}", "Put in alphabetical order: {x}", "Arrange in alphabetical order: {x}", "Alphabetise: {x}", "Order alphabetically: {x}", "List from A to Z: {x}", "Write the words {x} in alphabetical order.", "Sort from A to Z: {x}", "Put these words in the order of the alphabet: {x}"],
                 ["Order the words {x} from A to Z."]).format(x=", ".join(xs))
        ans = ", ".join(sorted(xs))
    return item("sort", q, ans, exact(ans), max_tokens=60)


def count(rng, S):
    k = rng.randrange(4)
    if k == 0:
        xs = [S.word(NOUNS) for _ in range(rng.randint(2, 10))]
        q = S.of(["How many words are in this list: {x}?", "Count the items: {x}", "How many items: {x}?", "Count: {x}", "How long is this list: {x}?", "Number of words in: {x}", "Give the number of items in {x}."], ["Tell me how many items there are: {x}"]).format(x=", ".join(xs))
        return item("count", q, str(len(xs)), number(len(xs)), " ".join(f"{i + 1} {w}" for i, w in enumerate(xs)) + ".")
    if k == 1:
        w = S.word(NOUNS)
        q = S.of(["How many letters are in the word \"{w}\"?", "Count the letters in \"{w}\".", "Number of letters in {w}?", "{w} has how many letters?", "How many letters does {w} have?", "Letters in {w}?", "Give the length of the word {w}."], ["How long is the word \"{w}\" in letters?"]).format(w=w)
        return item("count", q, str(len(w)), number(len(w)), " ".join(w.upper()) + f": {len(w)}.")
    if k == 2:
        w = rng.choice([x for x in S.words(NOUNS, 8) if len(x) > 3])
        ch = rng.choice(w)
        q = S.of(["How many times does the letter {c} occur in \"{w}\"?", "Count the letter {c} in \"{w}\".", "How many {c} are in {w}?", "Number of {c} in \"{w}\"?", "In the word {w}, how many {c} are there?"], ["How often is {c} found in \"{w}\"?"]).format(c=ch, w=w)
        return item("count", q, str(w.count(ch)), number(w.count(ch)), " ".join(w) + f": {w.count(ch)}.")
    pool = S.words(FRUITS, 3)
    xs = [rng.choice(pool) for _ in range(rng.randint(3, 9))]
    t = rng.choice(pool)
    q = S.of(["How many times does {t} appear: {x}?", "Count {t} in: {x}", "How many {t} are in {x}?", "Number of times {t} is in: {x}", "{x}: how many are {t}?"], ["In the list {x}, how often is {t}?"]).format(t=t, x=", ".join(xs))
    return item("count", q, str(xs.count(t)), number(xs.count(t)))


def dates(rng, S):
    k = rng.randrange(6)
    if k == 0:
        d, n = rng.randrange(7), rng.randint(1, 10)
        ahead = rng.random() < 0.7
        q = S.of(["If today is {d}, what day is it in {n} days?", "Today is {d}. Which day comes {n} days later?", "{n} days after {d} is which day?", "What day is {n} days from {d}?", "From {d}, go {n} days ahead. Which day?", "Now it is {d}. In {n} days it is?"], ["It is {d}. What will be the day after {n} days?"]) \
            if ahead else S.of(["If today is {d}, what day was it {n} days ago?", "Today is {d}. Which day was {n} days before?", "{n} days before {d} is which day?", "What day was {n} days before {d}?", "From {d}, go {n} days back. Which day?"], ["It is {d}. What was the day {n} days earlier?"])
        step = 1 if ahead else -1
        ans = DAYS[(d + step * n) % 7]
        path = " ".join(f"{i}: {DAYS[(d + step * i) % 7]}" for i in range(1, n + 1))
        return item("dates", q.format(d=DAYS[d], n=n), ans, exact(ans), path + ".")
    if k == 1:
        m = rng.randrange(12)
        q = S.of(["How many days are there in {m}?", "{m} has how many days?", "Days in {m}?", "How long is {m}?", "What is the length of {m} in days?"], ["Number of days in {m} of a common year?"]).format(m=MONTHS[m])
        return item("dates", q, f"{MONTH_DAYS[m]} days", number(MONTH_DAYS[m]))
    if k == 2:
        m, n = rng.randrange(12), rng.randint(1, 6)
        ans = MONTHS[(m + n) % 12]
        q = S.of(["Which month is {n} months after {m}?", "What month comes {n} months after {m}?", "{n} months after {m} is?", "Go {n} months on from {m}.", "In {n} months from {m}, which month is it?"], ["Name the month {n} months later than {m}."]).format(n=n, m=MONTHS[m])
        return item("dates", q, ans, exact(ans), " ".join(MONTHS[(m + i) % 12] for i in range(1, n + 1)) + ".")
    if k == 3:
        m, d, n = rng.randrange(12), rng.randint(1, 28), rng.randint(2, 20)
        e = d + n
        m2, e2 = (m, e) if e <= MONTH_DAYS[m] else ((m + 1) % 12, e - MONTH_DAYS[m])
        q = S.of(["What date is {n} days after {d} {m}?", "Add {n} days to {d} {m}.", "{n} days after {d} {m} is?", "It is {d} {m}. What date is it in {n} days?", "From {d} {m}, go {n} days ahead."], ["Which date comes {n} days after {d} {m}?"]).format(n=n, d=d, m=MONTHS[m])
        t = f"{d} + {n} = {e}." + ("" if m2 == m else f" {MONTHS[m]} has {MONTH_DAYS[m]} days; {e} - {MONTH_DAYS[m]} = {e2}.")
        return item("dates", q, f"{e2} {MONTHS[m2]}", exact(f"{e2} {MONTHS[m2]}"), t)
    if k == 4:
        h, mi, n = rng.randint(0, 22), rng.choice(range(0, 60, 5)), rng.choice(range(5, 120, 5))
        tot = h * 60 + mi + n
        ans = f"{tot // 60 % 24:02d}:{tot % 60:02d}"
        q = S.of(["It is {h:02d}:{m:02d}. What time is it in {n} minutes?", "What time is {n} minutes after {h:02d}:{m:02d}?", "{n} minutes after {h:02d}:{m:02d} is?", "The clock shows {h:02d}:{m:02d}. What does it show {n} minutes later?", "Now it is {h:02d}:{m:02d}. In {n} minutes it is?", "{h:02d}:{m:02d} plus {n} minutes?"],
                 ["Add {n} minutes to {h:02d}:{m:02d}."]).format(h=h, m=mi, n=n)
        return item("dates", q, ans, exact(ans), f"{mi} + {n} = {mi + n} minutes, so {ans}.")
    m = rng.randrange(12)
    which = rng.random() < 0.5
    ans = MONTHS[(m + 1) % 12] if which else MONTHS[(m - 1) % 12]
    q = f"Which month comes {'after' if which else 'before'} {MONTHS[m]}?"
    return item("dates", q, ans, exact(ans))


_UNITS = [("kilometres", "metres", 1000), ("metres", "centimetres", 100), ("centimetres", "millimetres", 10),
          ("kilograms", "grams", 1000), ("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24),
          ("weeks", "days", 7), ("litres", "millilitres", 1000), ("tonnes", "kilograms", 1000), ("years", "months", 12)]


def units(rng, S):
    big, small, f = rng.choice(_UNITS)
    n = rng.randint(2, 12 if f in (7, 12, 24) else 40)
    if rng.random() < 0.6:
        q = S.of(["How many {s} are in {n} {b}?", "Convert {n} {b} to {s}.", "{n} {b} in {s}?", "What is {n} {b} in {s}?", "Change {n} {b} into {s}.", "{n} {b} is how many {s}?", "Give {n} {b} in {s}.", "Turn {n} {b} into {s}."], ["Express {n} {b} in {s}."]).format(s=small, n=n, b=big)
        return item("units", q, f"{n * f} {small}", number(n * f), f"1 {big[:-1]} is {f} {small}; {n} x {f} = {n * f}.")
    q = S.of(["How many {b} are {n} {s}?", "Convert {n} {s} to {b}.", "{n} {s} in {b}?", "What is {n} {s} in {b}?", "Change {n} {s} into {b}.", "{n} {s} is how many {b}?", "Give {n} {s} in {b}.", "Turn {n} {s} into {b}."], ["Express {n} {s} in {b}."]).format(s=small, n=n * f, b=big)
    return item("units", q, f"{n} {big}", number(n), f"1 {big[:-1]} is {f} {small}; {n * f} / {f} = {n}.")


def sequence(rng, S):
    k = rng.randrange(3)
    if k == 0:
        a, d = rng.randint(0, 40), rng.randint(1, 12)
        xs = [a + i * d for i in range(5)]
        q = S.of(["What number comes next? {x}", "Continue: {x}", "Next number after {x}?", "What follows? {x}", "{x}, and then?", "Complete the sequence: {x}"], ["Give the next number: {x}"]).format(x=", ".join(map(str, xs[:4])))
        return item("sequence", q, str(xs[4]), number(xs[4]), f"Each is {d} more: {xs[3]} + {d} = {xs[4]}.")
    if k == 1:
        n = rng.randint(0, 20)
        return item("sequence", f"Write the number {n} in words.", NUMBER_WORDS[n], exact(NUMBER_WORDS[n]))
    n = rng.randint(2, 99)
    ans = "even" if n % 2 == 0 else "odd"
    return item("sequence", S.of(["Is {n} even or odd?", "Even or odd: {n}", "{n}: even or odd?", "Is the number {n} odd or even?", "Tell me if {n} is even or odd.", "Is {n} an even number or an odd one?"], ["Say whether {n} is odd or even."]).format(n=n), ans, exact(ans),
                f"{n} ends in {n % 10}.")


MATH = {"add_sub": add_sub, "product": product, "division": division, "sum_chain": sum_chain, "word_problem": word_problem,
        "verify": verify, "compare": compare, "sort": sort_items, "count": count, "dates": dates, "units": units, "sequence": sequence}
