"""Tool calls in the template's XML form, answers from tool results, JSON to a schema, query expansion."""

import json

from skills_math import item, number
from world import (ADJECTIVES, CITIES, COLOURS, DAYS, FIRST_NAMES, HOBBIES, JOBS, MONTHS, NOUNS, THINGS, ANIMALS, Entity)


def _fn(name, description, props):
    return {"type": "function", "function": {"name": name, "description": description,
            "parameters": {"type": "object", "properties": props, "required": list(props)}}}


def _described(rng, name, texts, params):
    """The same tool as different clients write it: with or without descriptions of parameters."""
    props = {}
    for k, (typ, desc) in params.items():
        props[k] = {"type": typ, "description": desc} if rng.random() < 0.6 else {"type": typ}
    return _fn(name, rng.choice(texts), props)


def calculator(rng):
    return _described(rng, "calculator", ["Evaluate an arithmetic expression.", "Compute a mathematical expression.", "Calculator."],
                      {"expression": ("string", "The expression to evaluate")})


def web_search(rng):
    return _described(rng, "web_search", ["Search the web.", "Search the internet for a query.", "Find pages on the web."],
                      {"query": ("string", "What to search for")})


def get_weather(rng):
    key = "city" if rng.random() < 0.7 else "location"
    return _described(rng, "get_weather", ["Get the weather of a city.", "Current weather in a place.", "Weather report."],
                      {key: ("string", "Name of the city")})


def documents(rng):
    return _described(rng, "documents", ["Search the user's documents.", "Find passages in local documents."],
                      {"query": ("string", "What to look for")})


def read_file(rng):
    return _described(rng, "read_file", ["Read a text file.", "Return the content of a file."], {"path": ("string", "Path of the file")})


def get_time(rng):
    return _described(rng, "get_time", ["Get the local time of a city.", "What time is it in a city."], {"city": ("string", "Name of the city")})


def set_timer(rng):
    return _described(rng, "set_timer", ["Start a timer.", "Set a timer for some minutes."], {"minutes": ("integer", "Length in minutes")})


def send_email(rng):
    return _described(rng, "send_email", ["Send an e-mail.", "Write an e-mail to someone."],
                      {"to": ("string", "Who gets it"), "subject": ("string", "Subject line")})


def convert_currency(rng):
    return _described(rng, "convert_currency", ["Convert an amount of money.", "Currency converter."],
                      {"amount": ("number", "How much"), "from": ("string", "Currency to convert from"), "to": ("string", "Currency to convert to")})


def run_code(rng):
    return _described(rng, "run_code", ["Run Python code.", "Run a short program in a sandbox."], {"code": ("string", "The program")})


TOOLS = [calculator, web_search, get_weather, documents, read_file, get_time, set_timer, send_email, convert_currency, run_code]
_CUR = ["euros", "dollars", "pounds", "yen", "francs"]
_TOPICS = ["electric cars", "the history of {c}", "solar panels", "the best museums in {c}", "vaccines", "climate change", "the price of gold",
           "hiking trails near {c}", "the population of {c}", "the mayor of {c}", "train strikes in {c}", "how bread is made", "black holes",
           "the football results", "new phones", "hotels in {c}", "deep sea fish", "the election in {c}", "cheap flights to {c}", "quantum computers"]


def topic(rng, S):
    return S.word(_TOPICS).format(c=S.word(CITIES))


def _invented_tool(rng, S):
    """A tool never named elsewhere: the model must read the schema."""
    verb, noun = rng.choice(["get", "find", "open", "list", "show", "count", "check", "book", "play", "order"]), S.word(NOUNS)
    name = f"{verb}_{noun}"
    kind = rng.randrange(4)
    if kind == 0:
        key, val = rng.choice(["name", "person", "user"]), S.word(FIRST_NAMES)
    elif kind == 1:
        key, val = rng.choice(["colour", "color"]), rng.choice(COLOURS)
    elif kind == 2:
        key, val = rng.choice(["count", "number", "limit"]), rng.randint(1, 99)
    else:
        key, val = rng.choice(["day", "date"]), rng.choice(DAYS)
    typ = "integer" if isinstance(val, int) else "string"
    tool = _fn(name, f"{verb.capitalize()} a {noun}.", {key: {"type": typ}})
    said = {"integer": f"{val}"}.get(typ, val)
    glue = {0: f"for {said}", 1: f"in {said}", 2: f"with {key} {said}", 3: f"on {said}"}[kind]
    q = S.of([f"{verb.capitalize()} the {noun} {glue}.", f"Please {verb} a {noun} {glue}.", f"Can you {verb} the {noun} {glue}?", f"{verb} {noun} {glue}", f"I need to {verb} the {noun} {glue}.", f"Could you {verb} a {noun} {glue}?", f"Now {verb} the {noun} {glue}.", f"Let us {verb} the {noun} {glue}.", f"I want to {verb} the {noun} {glue}.", f"It is time to {verb} the {noun} {glue}.", f"You should {verb} a {noun} {glue}.", f"Go and {verb} the {noun} {glue}."],
             [f"I want you to {verb} a {noun} {glue}."])
    return tool, q, (name, {key: val})


_OPS = [("+", ["plus", "+"]), ("-", ["minus", "-"]), ("*", ["times", "x", "*", "multiplied by"]), ("/", ["divided by", "/"])]


def _calc_ask(rng, S):
    """(question, expression, value)."""
    digits = rng.choice([2, 3, 3, 3, 4])
    a, b, c = (rng.randint(10 ** (digits - 1), 10 ** digits - 1) for _ in range(3))
    op, words = rng.choice(_OPS)
    if op == "/":
        b = rng.randint(2, 60)
        a = b * rng.randint(3, 200)
    w = rng.choice(words)
    k = rng.random()
    if k < 0.68:
        e, said = f"{a} {op} {b}", f"{a} {w} {b}"
    elif k < 0.8:
        op2 = rng.choice("+-")
        e, said = f"{a} {op} {b} {op2} {c}", f"{a} {op if w not in ('x',) else 'x'} {b} {op2} {c}"
    elif k < 0.9:
        e = f"({a} + {b}) * {c}"
        said = f"({a} + {b}) * {c}" if rng.random() < 0.5 else f"({a} + {b}) x {c}"
    else:
        return _calc_story(rng, S)
    q = S.of(["What is {e}?", "Calculate {e}.", "How much is {e}?", "Compute {e}", "{e}", "{e} = ?", "Work out {e}.", "Combien font {e} ?", "what's {e}", "Tell me {e}.", "Solve {e}.", "Give me {e}", "Find {e}.", "Evaluate {e}", "What does {e} make?", "Value of {e}?", "The result of {e}?", "Can you work out {e}?"],
             ["I need the value of {e}.", "Tell me what {e} makes.", "Please evaluate {e}."]).format(e=said)
    return q, e, eval(e)


def _calc_story(rng, S):
    who, thing = S.word(FIRST_NAMES), S.word(THINGS)
    a, b = rng.randint(12, 980), rng.randint(12, 980)
    hi, lo = max(a, b), min(a, b)
    q, op = S.of([(f"{who} buys {a} boxes with {b} {thing} each. How many {thing} is that?", "*"),
                  (f"A shop has {a} {thing} and gets {b} more. How many {thing} are there?", "+"),
                  (f"{who} had {hi} {thing} and sold {lo}. How many are left?", "-"),
                  (f"There are {a} bags. Every bag has {b} {thing} in it. How many {thing} in all?", "*"),
                  (f"{a} rows of {b} {thing}: what is the total?", "*"),
                  (f"A factory makes {a} {thing} a day. How many in {b} days?", "*"),
                  (f"Each box contains {b} {thing}. How many {thing} are in {a} boxes?", "*"),
                  (f"One page has {b} words. How many words are on {a} pages?", "*"),
                  (f"{who} pays {a} euros for each of {b} {thing}. How much is it together?", "*"),
                  (f"Every one of the {a} shelves carries {b} {thing}. How many {thing} is that altogether?", "*"),
                  (f"{who} has {a} {thing} and finds {b}. What is the new number?", "+"),
                  (f"In the morning {a} {thing} came, in the evening {b}. Give the sum.", "+"),
                  (f"Of {hi} {thing}, {lo} are broken. How many are whole?", "-"),
                  (f"{who} gives {lo} of {hi} {thing} away. What remains?", "-")],
                 [(f"Each of the {a} crates holds {b} {thing}. What is the total?", "*"), (f"A train pulls {a} wagons with {b} {thing} in each. How many {thing} travel?", "*"),
                  (f"{who} counts {hi} {thing} and loses {lo} of them. How many does {who} keep?", "-")])
    if op == "-":
        a, b = max(a, b), min(a, b)
    e = f"{a} {op} {b}"
    return q, e, eval(e)


def _number_text(v):
    if isinstance(v, float):
        return str(int(v)) if v == int(v) else f"{v:.4f}".rstrip("0").rstrip(".")
    return str(v)


def _single(rng, S):
    """(tool maker or tool, question, call, check arguments)."""
    k = rng.randrange(10)
    if k == 0:
        city = S.word(CITIES)
        t = get_weather(rng)
        key = next(iter(t["function"]["parameters"]["properties"]))
        q = S.of(["What is the weather in {c}?", "How is the weather in {c} today?", "Is it raining in {c}?", "Weather in {c}?", "Will I need a coat in {c}?",
                  "Quel temps fait-il a {c} ?", "Is it warm in {c}?", "What is it like outside in {c}?", "Give me the weather for {c}.", "Show the weather in {c}.", "Does it snow in {c} today?", "weather {c}", "Is it hot in {c}?", "What is the temperature in {c}?", "How cold is it in {c}?", "I am going to {c}: what is the weather?", "Tell me if it rains in {c}."], ["Tell me about the weather in {c}.", "Is it cold in {c} now?"]).format(c=city)
        return t, q, ("get_weather", {key: city}), {key: city}
    if k in (1, 2):
        tp = topic(rng, S)
        q = S.of(["Search the web for {t}.", "Look up {t} online.", "Find recent news about {t}.", "Can you search for {t}?", "What is new about {t}?",
                  "Search for information on {t}.", "What does the web say about {t}?", "Do a web search on {t}.", "Look for {t} on the internet.", "Search {t}", "Get me news on {t}.", "Find web pages about {t}.", "I want to read about {t} online.", "Google {t} for me.", "Could you search the net for {t}?", "Show me pages about {t}.", "Find {t} on the web.", "Get information on {t}.", "Browse for {t}.", "Is there anything new on {t}?"], ["Please google {t}.", "Find me pages on {t}.", "Hunt the internet for {t}.", "I would like web articles about {t}."]).format(t=tp)
        return web_search(rng), q, ("web_search", {"query": tp}), {"query": {"has": tp.split()[-1]}}
    if k == 3:
        city = S.word(CITIES)
        q = S.of(["What time is it in {c}?", "Tell me the time in {c}.", "Local time in {c}?", "Time in {c}?", "What is the time now in {c}?", "Give me the local time of {c}.", "How late is it in {c}?", "Which time is it in {c} now?", "What hour is it in {c}?", "I need the time in {c}."], ["Which hour is it now in {c}?"]).format(c=city)
        return get_time(rng), q, ("get_time", {"city": city}), {"city": city}
    if k == 4:
        n = rng.randint(1, 90)
        q = S.of(["Set a timer for {n} minutes.", "Start a {n} minute timer.", "Wake me in {n} minutes.", "Timer: {n} minutes.", "Can you time {n} minutes?", "Please start a timer for {n} minutes.", "Set the timer to {n} minutes.", "Count down {n} minutes.", "I want a timer for {n} minutes.", "Give me {n} minutes on the timer.", "A timer, please: {n} minutes.", "Ring in {n} minutes."], ["I need a timer of {n} minutes."]).format(n=n)
        return set_timer(rng), q, ("set_timer", {"minutes": n}), {"minutes": n}
    if k == 5:
        who, sub = S.word(FIRST_NAMES), f"{S.word(NOUNS)} {S.word(NOUNS)}"
        q = S.of(["Send an e-mail to {w} with the subject \"{s}\".", "Write {w} an e-mail, subject \"{s}\".", "E-mail {w}: {s}", "Mail to {w}, subject \"{s}\".", "Send {w} a mail called \"{s}\".", "Write to {w} about \"{s}\".", "Let {w} know by e-mail: \"{s}\".", "Mail {w} with the subject \"{s}\".", "Can you mail {w}? Subject: \"{s}\".", "I want to mail {w} about \"{s}\".", "Drop {w} an e-mail, subject \"{s}\".", "Please write to {w}, subject \"{s}\"."], ["Please mail {w} about \"{s}\".", "Have {w} receive a mail titled \"{s}\"."]).format(w=who, s=sub)
        return send_email(rng), q, ("send_email", {"to": who, "subject": sub}), {"to": who, "subject": sub}
    if k == 6:
        n, (a, b) = rng.randint(5, 900), rng.sample(_CUR, 2)
        q = S.of(["Convert {n} {a} to {b}.", "How much is {n} {a} in {b}?", "{n} {a} in {b}?", "Change {n} {a} into {b}.", "How many {b} are {n} {a}?", "What are {n} {a} worth in {b}?", "Turn {n} {a} into {b}.", "I have {n} {a}. How many {b} do I get?", "What is the value of {n} {a} in {b}?", "Exchange {n} {a} for {b}.", "How many {b} do I get for {n} {a}?", "What would {n} {a} be in {b}?"], ["What do I get in {b} for {n} {a}?", "{n} {a} make how many {b}?"]).format(n=n, a=a, b=b)
        return convert_currency(rng), q, ("convert_currency", {"amount": n, "from": a, "to": b}), {"amount": n, "from": a, "to": b}
    if k == 7:
        path = f"/{rng.choice(['docs', 'mail', 'data', 'notes'])}/{S.word(NOUNS)}.{rng.choice(['txt', 'md', 'csv', 'log'])}"
        q = S.of(["Read the file {p}.", "What is in {p}?", "Open {p} and show it.", "Print {p}.", "Read {p} to me.", "Show the content of {p}.", "Can you open the file {p}?", "Let me see {p}.", "Load {p}."], ["Show me what {p} contains."]).format(p=path)
        return read_file(rng), q, ("read_file", {"path": path}), {"path": path}
    if k == 8:
        n = f"{S.word(NOUNS)} {rng.choice(['report', 'contract', 'notes', 'budget', 'plan'])}"
        q = S.of(["Look in my documents for the {n}.", "Find the {n} in my files.", "What do my documents say about the {n}?", "Search my documents for the {n}.", "Is there a {n} in my files?", "Where is the {n} in my documents?", "Check my documents for the {n}.", "Find the {n}.", "Go through my papers and find the {n}.", "Search my files for the {n}.", "Do I have a {n}? Look in my documents.", "Show me the {n} from my documents."],
                 ["Search my papers for the {n}."]).format(n=n)
        return documents(rng), q, ("documents", {"query": n}), {"query": {"has": n.split()[-1]}}
    t, q, call = _invented_tool(rng, S)
    return t, q, call, call[1]


def _tool_set(rng, needed, n):
    """The needed tools among others, shuffled, each name once."""
    out = list(needed)
    names = {t["function"]["name"] for t in out}
    pool = TOOLS[:]
    rng.shuffle(pool)
    for make in pool:
        if len(out) >= n:
            break
        t = make(rng)
        if t["function"]["name"] not in names:
            out.append(t)
            names.add(t["function"]["name"])
    rng.shuffle(out)
    return out


_SYSTEMS = ["You are a helpful assistant.", "You are chimere-nano, a small assistant.", "Use the tools when they help.", "Answer briefly."]


def maybe_system(rng, p=0.3):
    return rng.choice(_SYSTEMS) if rng.random() < p else None


def _calls_item(skill, user, calls, tools, args, system, max_tokens=96):
    """`args`: per call, exact values, {"has": word}, or {"value": number} for an expression."""
    from chatform import call_text
    check = {"kind": "toolcall", "answer": [{"name": n, "arguments": a} for (n, _), a in zip(calls, args)]}
    it = item(skill, user, call_text(calls), check, system=system, tools=tools, max_tokens=max_tokens)
    return it


def tool_calculator(rng, S):
    q, e, v = _calc_ask(rng, S)
    tools = _tool_set(rng, [calculator(rng)], rng.choice([1, 1, 2, 3]))
    it = _calls_item("tool_calculator", q, [("calculator", {"expression": e})], tools, [{"expression": {"value": v}}], maybe_system(rng))
    it["thought"] = rng.choice(["I should use the calculator.", "This is arithmetic: the calculator is exact.", ""])
    return it


def tool_call(rng, S):
    t, q, call, args = _single(rng, S)
    it = _calls_item("tool_call", q, [call], _tool_set(rng, [t], rng.randint(1, 4)), [args], maybe_system(rng))
    it["thought"] = rng.choice([f"I need {call[0]}.", ""])
    return it


def tool_multi(rng, S):
    k = rng.randrange(4)
    if k == 0:
        n = rng.choice([2, 2, 3])
        cities = S.words(CITIES, n)
        t = get_weather(rng)
        key = next(iter(t["function"]["parameters"]["properties"]))
        said = ", ".join(cities[:-1]) + " and " + cities[-1]
        q = S.of(["What is the weather in {c}?", "Compare the weather in {c}.", "Weather in {c}?", "Give me the weather of {c}.", "Is it raining in {c}?", "What is it like in {c} today?", "I travel to {c}. What is the weather?"], ["How is the weather in {c}?"]).format(c=said)
        calls = [("get_weather", {key: c}) for c in cities]
        args = [{key: c} for c in cities]
        tools = [t]
    elif k == 1:
        cities = S.words(CITIES, 2)
        q = S.of(["What time is it in {a} and in {b}?", "Tell me the time in {a} and {b}.", "Time in {a} and {b}?", "What time is it in {a}? And in {b}?", "Compare the time in {a} and {b}.", "Give me the local time of {a} and of {b}."], ["Local times of {a} and {b}?"]).format(a=cities[0], b=cities[1])
        calls = [("get_time", {"city": c}) for c in cities]
        args = [{"city": c} for c in cities]
        tools = [get_time(rng)]
    elif k == 2:
        es = []
        for _ in range(2):
            a, b = rng.randint(100, 999), rng.randint(10, 999)
            op = rng.choice("+-*")
            es.append((f"{a} {op} {b}", eval(f"{a} {op} {b}")))
        q = S.of(["What is {a}, and what is {b}?", "Calculate {a} and {b}.", "Compute {a} and also {b}.", "Work out {a}, then {b}.", "Two sums: {a} and {b}.", "{a} and {b}?", "Tell me {a} and {b}."], ["I need both {a} and {b}."]).format(a=es[0][0], b=es[1][0])
        calls = [("calculator", {"expression": e}) for e, _ in es]
        args = [{"expression": {"value": v}} for _, v in es]
        tools = [calculator(rng)]
    else:
        while True:
            (t1, q1, c1, a1), (t2, q2, c2, a2) = _single(rng, S), _single(rng, S)
            if c1[0] != c2[0]:
                break
        q = f"{q1} {rng.choice(['', 'Also: ', 'And then: '])}{q2}"
        calls, args, tools = [c1, c2], [a1, a2], [t1, t2]
    it = _calls_item("tool_multi", q, calls, _tool_set(rng, tools, len(tools) + rng.randint(0, 2)), args, maybe_system(rng), 160)
    it["thought"] = rng.choice([f"I need {len(calls)} calls.", ""])
    return it


_PLAIN = [("Hello!", "Hello! How can I help you?"), ("Hi there", "Hello! How can I help you?"), ("Thank you.", "You are welcome."),
          ("Good morning.", "Good morning! How can I help you?"), ("Who are you?", "I am chimere-nano, a small language model."),
          ("What can you do?", "I can chat, do small sums, call tools and answer from sources."), ("Thanks a lot", "You are welcome."),
          ("How are you?", "I am well, thank you."), ("Goodbye.", "Goodbye!"), ("Bonjour", "Bonjour ! Comment puis-je vous aider ?"),
          ("Merci", "Avec plaisir."), ("What is your name?", "My name is chimere-nano.")]


def tool_none(rng, S):
    """Tools are there, none is needed."""
    k = rng.randrange(4)
    tools = _tool_set(rng, [], rng.randint(1, 3))
    if k == 0:
        q, a = S.word(_PLAIN)
    elif k == 1:
        d = rng.randrange(7)
        q, a = f"Which day comes after {DAYS[d]}?", DAYS[(d + 1) % 7]
    elif k == 2:
        w = S.word(NOUNS)
        q = S.of(["Write the word {w} in capitals.", "Put {w} in capital letters.", "Capitals: {w}", "{w} in upper case, please."], ["Give me {w} in upper case."]).format(w=w)
        a = w.upper()
    else:
        who = S.word(FIRST_NAMES)
        q = S.of(["My name is {w}.", "I am {w}, nice to meet you.", "Hello, I am {w}.", "This is {w}.", "They call me {w}."], ["You can call me {w}."]).format(w=who)
        a = f"Nice to meet you, {who}!"
    it = item("tool_none", q, a, {"kind": "toolcall", "answer": []}, system=maybe_system(rng), tools=tools)
    it["thought"] = rng.choice(["No tool is needed.", ""])
    return it


def tool_result(rng, S):
    """The call was made and the result is there: answer from it."""
    k = rng.randrange(4)
    if k in (0, 1):
        q, e, v = _calc_ask(rng, S)
        vt = _number_text(v)
        form = rng.randrange(3)
        result = vt if form == 0 else json.dumps({"result": v if not isinstance(v, float) or v != int(v) else int(v)}) if form == 1 else f"{e} = {vt}"
        if isinstance(v, float) and v != int(v):
            result = vt
        call, tools = ("calculator", {"expression": e}), [calculator(rng)]
        ans, check = f"{e} = {vt}", number(float(vt) if "." in vt else int(vt))
    elif k == 2:
        city, temp, sky = S.word(CITIES), rng.randint(-9, 38), rng.choice(["sunny", "cloudy", "rainy", "snowy", "windy", "foggy", "clear"])
        t = get_weather(rng)
        key = next(iter(t["function"]["parameters"]["properties"]))
        q = S.of(["What is the weather in {c}?", "Weather in {c}?", "How is the weather in {c} today?"], ["Tell me about the weather in {c}."]).format(c=city)
        result = json.dumps({"city": city, "temperature": temp, "sky": sky}) if rng.random() < 0.6 else f"{city}: {temp} degrees, {sky}"
        call, tools = ("get_weather", {key: city}), [t]
        ans, check = f"In {city} it is {temp} degrees and {sky}.", {"kind": "contains", "answer": [city, str(temp), sky]}
    else:
        e = Entity(rng)
        attr = rng.choice(list(e.values))
        q = e.question(attr, S)
        rows = [e.article(rng)] + [Entity(rng).article(rng) for _ in range(rng.randint(0, 2))]
        rng.shuffle(rows)
        name = rng.choice(["web_search", "documents"])
        result = "\n".join(rows)
        call, tools = (name, {"query": q.rstrip("?.")}), [web_search(rng) if name == "web_search" else documents(rng)]
        ans, check = f"{e.values[attr]}", {"kind": "contains", "answer": [e.values[attr]]}
    msgs = [{"role": "user", "content": q},
            {"role": "assistant", "content": "", "tool_calls": [{"name": call[0], "arguments": call[1]}]},
            {"role": "tool", "content": result}]
    return item("tool_result", None, ans, check, messages=msgs, system=maybe_system(rng), tools=_tool_set(rng, tools, rng.choice([1, 1, 2, 3])))


# ---- JSON to a schema -----------------------------------------------------------------------------

_FIELDS = [("name", "string", lambda r, S: S.word(FIRST_NAMES), "The name is {v}."), ("age", "integer", lambda r, S: r.randint(3, 99), "The age is {v}."),
           ("city", "string", lambda r, S: S.word(CITIES), "The city is {v}."), ("job", "string", lambda r, S: S.word(JOBS), "The job is {v}."),
           ("colour", "string", lambda r, S: r.choice(COLOURS), "The colour is {v}."), ("price", "number", lambda r, S: r.randint(1, 900), "The price is {v} euros."),
           ("count", "integer", lambda r, S: r.randint(1, 500), "The count is {v}."), ("animal", "string", lambda r, S: S.word(ANIMALS), "The animal is a {v}."),
           ("year", "integer", lambda r, S: r.randint(1900, 2030), "The year is {v}."), ("month", "string", lambda r, S: r.choice(MONTHS), "The month is {v}."),
           ("paid", "boolean", lambda r, S: r.random() < 0.5, "It is {n}paid."), ("active", "boolean", lambda r, S: r.random() < 0.5, "It is {n}active."),
           ("tags", "array", lambda r, S: S.words(NOUNS, r.randint(1, 4)), "The tags are {v}."), ("hobbies", "array", lambda r, S: S.words(HOBBIES, r.randint(1, 3)), "The hobbies are {v}."),
           ("title", "string", lambda r, S: f"{S.word(NOUNS)} {S.word(NOUNS)}", "The title is \"{v}\"."), ("size", "enum", lambda r, S: r.choice(["small", "medium", "large"]), "The size is {v}."),
           ("owner", "string", lambda r, S: S.word(FIRST_NAMES), "The owner is {v}."), ("room", "integer", lambda r, S: r.randint(1, 400), "The room is {v}."),
           ("weight", "number", lambda r, S: r.randint(1, 200), "The weight is {v}."), ("email", "string", lambda r, S: f"{S.word(FIRST_NAMES).lower()}@example.org", "The email is {v}.")]
_NARR = [({"name": "string", "age": "integer", "city": "string"}, "{name} is {age} years old and lives in {city}."),
         ({"name": "string", "job": "string", "city": "string"}, "{name} works as a {job} in {city}."),
         ({"owner": "string", "animal": "string", "colour": "string"}, "{owner} has a {colour} {animal}."),
         ({"name": "string", "count": "integer", "price": "number"}, "{name} bought {count} cups and paid {price} euros."),
         ({"name": "string", "age": "integer", "job": "string"}, "When {name} was {age}, work began as a {job}."),
         ({"city": "string", "name": "string", "age": "integer"}, "In {city} lives {name}, aged {age}."),
         ({"name": "string", "year": "integer", "city": "string"}, "In the year {year}, {name} moved to {city}."),
         ({"job": "string", "name": "string"}, "The {job} of our street is called {name}."),
         ({"name": "string", "price": "number", "animal": "string"}, "For {price} euros, {name} got a {animal}."),
         ({"name": "string", "age": "integer", "month": "string"}, "On a day in {month}, {name} turned {age}."),
         ({"city": "string", "job": "string", "name": "string"}, "As a {job} in {city}, {name} is well known."),
         ({"owner": "string", "room": "integer", "size": "enum"}, "Room {room}, a {size} one, belongs to {owner}."),
         ({"name": "string", "age": "integer", "animal": "string"}, "With {age} years of age, {name} still rides a {animal}."),
         ({"name": "string", "age": "integer", "job": "string"}, "At the age of {age}, {name} became a {job}."),
         ({"name": "string", "job": "string", "age": "integer"}, "{name}, a {job}, has just reached {age} years.")]


def json_schema(rng, S):
    by = {f[0]: f for f in _FIELDS}
    if rng.random() < 0.35:
        types, text = S.of(_NARR[:-2], _NARR[-2:])
        names = list(types)
        vals = {n: by[n][2](rng, S) for n in names}
        source = text.format(**vals)
    else:
        names = rng.sample([f[0] for f in _FIELDS], rng.randint(2, 5))
        vals = {n: by[n][2](rng, S) for n in names}
        rows = []
        for n in names:
            v = vals[n]
            shown = ", ".join(v) if isinstance(v, list) else v
            rows.append(by[n][3].format(v=shown, n="" if v is True else "not "))
        if rng.random() < 0.3:
            rng.shuffle(rows)
        source = " ".join(rows)
        if rng.random() < 0.3:
            source = "; ".join(f"{n}: {', '.join(vals[n]) if isinstance(vals[n], list) else json.dumps(vals[n]) if isinstance(vals[n], bool) else vals[n]}" for n in names)
    props = {}
    for n in names:
        t = by[n][1]
        props[n] = {"type": "array", "items": {"type": "string"}} if t == "array" else \
            {"type": "string", "enum": ["small", "medium", "large"]} if t == "enum" else {"type": t}
    schema = {"type": "object", "properties": props, "required": names}
    st = json.dumps(schema)
    q = S.of(["Answer with a JSON object that follows this schema:\n{s}\n\nText: {t}", "Extract the data as JSON.\nSchema: {s}\nText: {t}",
              "{t}\n\nGive this as JSON with the schema {s}", "Fill in this JSON schema from the text.\n{s}\n\n{t}", "Text: {t}\nSchema: {s}\nJSON:", "Read the text and return JSON for the schema {s}\n{t}", "Return only JSON that matches {s}\n\n{t}",
              "Convert to JSON.\n\nText: {t}\n\nSchema: {s}", "Here is a schema: {s}\nHere is a text: {t}\nMake the JSON object.", "Parse this into JSON ({s}): {t}"],
             ["Turn the text into JSON that is valid for the schema.\nText: {t}\nSchema: {s}"]).format(s=st, t=source)
    out = {n: vals[n] for n in names}
    return item("json_schema", q, json.dumps(out), {"kind": "json_schema", "schema": schema, "answer": out}, max_tokens=120)


# ---- query expansion ------------------------------------------------------------------------------

_THEMES = """back pain|ankle sprain|solar energy|bread baking|electric bikes|sleep|coffee|stress|running shoes|garden soil|wind power|child fever|
house prices|knee surgery|password security|phishing|machine learning|olive oil|bird migration|water filters|vitamin D|chess openings|sourdough|
language learning|neck stiffness|tax rules|train travel|heat pumps|mushroom picking|yoga|blood pressure|bee keeping|wood floors|data backup|
shoulder injury|email encryption|rain water|dog training|piano practice|tea""".replace("\n", "").split("|")
_ASPECTS = ["guide", "research", "examples", "benefits", "risks", "methods", "advice", "statistics", "history", "cost", "comparison", "causes"]


def query_expand(rng, S):
    t, n = S.word(_THEMES), rng.choice([2, 3, 3, 4])
    if not S.is_eval() and rng.random() < 0.6:
        t = " ".join([S.word(ADJECTIVES), S.word(NOUNS)][rng.randrange(2):])
    q0 = S.of(["What should I know about {t}?", "How does {t} work?", "What is the best advice on {t}?", "Tell me about {t}.", "Is {t} worth it?", "What are the risks of {t}?", "Can you explain {t}?", "Where can I learn about {t}?", "Who knows about {t}?", "When is {t} useful?", "I want to understand {t}."],
              ["Why does {t} matter?", "What do people say about {t}?"]).format(t=t)
    aspects = rng.sample(_ASPECTS, n)
    forms = [f"{t} {a}" if rng.random() < 0.6 else f"{a} of {t}" for a in aspects]
    q = S.of(["Write {n} search queries for this question as a JSON array: {q}", "Expand into {n} different search queries. Answer with a JSON array of strings.\nQuestion: {q}",
              "Give {n} complementary search queries (JSON array) for: {q}", "JSON array of {n} search queries for: {q}", "I want to search for this: {q} Give {n} queries as a JSON array.", "Turn the question into {n} web searches, as a JSON array: {q}",
              "Question: {q}\nSuggest {n} searches (JSON array of strings).", "Produce {n} search queries in a JSON array about: {q}", "{q}\n\nWhich {n} queries would you search? Answer with a JSON array."],
             ["List {n} web searches that would help answer \"{q}\". JSON array only."]).format(n=n, q=q0)
    return item("query_expand", q, json.dumps(forms), {"kind": "array", "n": n, "has": t.split()[-1]}, max_tokens=80)


TOOL_SKILLS = {"tool_calculator": tool_calculator, "tool_call": tool_call, "tool_multi": tool_multi, "tool_none": tool_none,
               "tool_result": tool_result, "json_schema": json_schema, "query_expand": query_expand}
