"""What chimere-mini learns beyond nano's skills: reading real passages, a calculator that is only offered, words and facts in
two languages, "I do not know", and letters, stories and dialogues from a grammar. Every generator gives (messages, tools,
thought, answer) and draws only from rng and the tables of `Texts`.
"""

import lzma
import os
import re

NO_TEXT = {"en": ["The text does not say.", "That is not in the text."], "fr": ["Le texte ne le dit pas.", "Ce n'est pas dans le texte."]}


def ask(user, answer, thought="", tools=None, system=None):
    return ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": user}], tools, thought, answer


class Texts:
    """Tables of the packages and passages to read; `held_out` gives the passages that training never sees."""

    def __init__(self, packages, prose, held_out=False):
        def table(name):
            path = os.path.join(packages, name)
            with lzma.open(path, "rt", encoding="utf-8") as f:
                return [tuple(line.rstrip("\n").split("\t")) for line in f]
        self.pairs = [p for p in table("pairs.tsv.xz") if len(p) == 2]
        self.short = [p for p in self.pairs if len(p[0]) < 16 and " " not in p[0] and p[0].isalpha()]
        self.long = [p for p in self.pairs if len(p[0]) > 25]
        self.verbs = [v for v in table("verbs.tsv.xz") if len(v) == 3]
        self.words = table("words.tsv.xz")
        self.capitals = [c for c in table("capitals.tsv.xz") if len(c) == 3]
        self.passages = {"en": [], "fr": []}
        for i, (text, lang) in enumerate(prose):
            if (i % 40 == 7) != held_out:
                continue
            parts = re.split(r"(?<=[.!?»\"])\s+(?=[A-ZÀ-Ý«\"])", " ".join(text[:6000].split()))
            for at in range(0, len(parts) - 3, 6):
                p = " ".join(parts[at:at + 6])
                if 200 < len(p) < 1400:
                    self.passages[lang].append(p)


# ---- reading ---------------------------------------------------------------------------------------

_SENT = re.compile(r"(?<=[.!?])\s+")
_ASK_BEFORE = {"en": ["Read the text and answer.\n\n{t}\n\nQuestion: {q}", "{t}\n\n{q}", "Text: {t}\n\n{q}", "{q}\n\nText:\n{t}", "Here is a passage:\n\n{t}\n\n{q} Answer from the passage.", "Passage: \"{t}\"\n\n{q}"],
               "fr": ["Lis le texte et réponds.\n\n{t}\n\nQuestion : {q}", "{t}\n\n{q}", "Texte : {t}\n\n{q}", "{q}\n\nTexte :\n{t}", "Voici un passage :\n\n{t}\n\n{q} Réponds d'après le passage."]}


def questions(sentence, lang):
    """(question, answer) that a sentence answers by its form."""
    s = sentence.strip()
    if not 30 < len(s) < 260 or s.count('"') % 2:
        return []
    out = []
    if lang == "en":
        m = re.match(r"^((?:The |A |An )?[A-Z]?[\w'-]+(?: [\w'-]+){0,3}) (is|are|was|were) ((?:a|an|the|called|made|used|located|known|found) [^.]+)\.$", s)
        if m and m[1].split()[0] not in ("This", "That", "It", "There", "He", "She", "They", "These", "Those", "You", "I", "We", "If", "When", "What", "Here", "Another", "One"):
            out.append((f"What {m[2]} {m[1][0].lower() + m[1][1:] if m[1].startswith(('The ', 'A ', 'An ')) else m[1]}?", m[3]))
        m = re.match(r"^([A-Z][a-z]+(?: [A-Z][a-z]+)*) (said|went|came|took|made|found|gave|saw|became|wrote|told|asked|looked|ran|turned|led|wanted|began|won|built|brought|kept|thought|left|developed|discovered|invented|argued|described|founded) ([^.?!\"]+)\.$", s)
        if m and m[1] not in ("He", "She", "It", "They", "This", "We", "You", "That", "There", "Then", "Who", "Nobody", "Everyone"):
            out.append((f"Who {m[2]} {m[3]}?", m[1]))
        m = re.match(r"^In (\d{4}), ([^.]+)\.$", s)
        if m:
            out += [(f"In which year did this happen: {m[2]}?", m[1]), (f"What happened in {m[1]}?", m[2])]
        m = re.search(r"\b(\d[\d,.]*) ([a-z]{3,})", s)
        if m:
            out.append((f"How many {m[2]} are mentioned in the text?", m[1]))
        m = re.match(r"^(.{15,}?) because (.{10,})\.$", s)
        if m and not m[1].startswith(("It", "This", "That")):
            out.append((f"Why is this so: {m[1]}?", "Because " + m[2]))
        words = [w for w in re.findall(r"\b[a-z]{6,}\b", s)]
        if words:
            w = words[len(s) % len(words)]
            out.append((f"Which word is missing? \"{re.sub(chr(92) + 'b' + w + chr(92) + 'b', '___', s, count=1)}\"", w))
            out.append((f"What does the text say about {w}?", s))
    else:
        m = re.match(r"^((?:Le|La|Les|Un|Une|L')\s?[\w'’-]+(?: [\w'’-]+){0,3}) (est|sont|était|étaient) ((?:un|une|le|la|des|l'|appelé|utilisé|situé|fait)[^.]+)\.$", s)
        if m:
            pron = {"est": "Qu'est-ce que", "sont": "Que sont", "était": "Qu'était", "étaient": "Qu'étaient"}[m[2]]
            out.append((f"{pron} {m[1][0].lower() + m[1][1:]} ?", m[3]))
        m = re.match(r"^([A-Z][\wéèêëàâîïôûç]+(?: [A-Z][\wéèêëàâîïôûç]+)*) (a|avait) ([\wéèêëàâîïôûç]+(?:é|i|u|it|is)) ([^.?!]+)\.$", s)
        if m and m[1] not in ("Il", "Elle", "On", "Cela", "Ce", "Ils", "Elles"):
            out.append((f"Qui {m[2]} {m[3]} {m[4]} ?", m[1]))
        m = re.match(r"^En (\d{4}), ([^.]+)\.$", s)
        if m:
            out += [(f"En quelle année cela s'est-il passé : {m[2]} ?", m[1]), (f"Que s'est-il passé en {m[1]} ?", m[2])]
        m = re.match(r"^(.{15,}?) (?:parce que|car) (.{10,})\.$", s)
        if m:
            out.append((f"Pourquoi ? « {m[1]}. »", "Parce que " + m[2]))
        words = re.findall(r"\b[a-zéèêàâîïôûç]{6,}\b", s)
        if words:
            w = words[len(s) % len(words)]
            out.append((f"Quel mot manque ? « {re.sub(chr(92) + 'b' + w + chr(92) + 'b', '___', s, count=1)} »", w))
            out.append((f"Que dit le texte sur le mot « {w} » ?", s))
    return out


def reading(rng, T):
    lang = "fr" if rng.random() < 0.45 else "en"
    for _ in range(30):
        p = rng.choice(T.passages[lang])
        found = [qa for s in _SENT.split(p) for qa in questions(s, lang)]
        if not found:
            continue
        q, a = rng.choice(found)
        if rng.random() < 0.5:                      # forms other than the two that every sentence has
            rare = [x for x in found if "___" not in x[0] and "the text say about" not in x[0] and "le mot «" not in x[0]]
            if rare:
                q, a = rng.choice(rare)
        if rng.random() < 0.13:
            p2 = rng.choice(T.passages[lang])
            if a not in p2:
                p, a = p2, rng.choice(NO_TEXT[lang][:1])
        return ask(rng.choice(_ASK_BEFORE[lang]).format(t=p, q=q), a)
    return ask("Hello!", "Hello! How can I help you?")


_PLANT = [("en", "The key of {n} is kept in the {p}.", "Where is the key of {n} kept?", "in the {p}"), ("en", "{n} works as a {j} in {c}.", "What is the job of {n}?", "a {j}"),
          ("en", "{n} works as a {j} in {c}.", "In which city does {n} work?", "{c}"), ("en", "The meeting with {n} begins at {h} o'clock.", "When does the meeting with {n} begin?", "at {h} o'clock"),
          ("en", "{n} paid {k} euros for the {o}.", "How much did {n} pay for the {o}?", "{k} euros"), ("en", "{n} lost a {o} near the {p}.", "What did {n} lose?", "a {o}"),
          ("fr", "{n} travaille comme {jf} à {c}.", "Quel est le métier de {n} ?", "{jf}"), ("fr", "{n} travaille comme {jf} à {c}.", "Dans quelle ville travaille {n} ?", "{c}"),
          ("fr", "La réunion avec {n} commence à {h} heures.", "À quelle heure commence la réunion avec {n} ?", "à {h} heures"),
          ("fr", "{n} a payé {k} euros pour {of}.", "Combien {n} a-t-il payé ?", "{k} euros"), ("fr", "{n} a perdu {of} près de la gare.", "Qu'est-ce que {n} a perdu ?", "{of}"),
          ("fr", "{n} a perdu {of} près de la gare.", "Où {n} a-t-il perdu {of} ?", "près de la gare")]
_NAMES = "Alice Bruno Chloé Denis Élise Farid Gina Hugo Inès Jonas Karine Léo Maya Noé Olga Paul Rosa Simon Théo Vera William Yasmine Zoé Anaïs Benoît Céline Émile François Hélène Jérôme".split()
_JOBS = ["nurse", "baker", "teacher", "pilot", "gardener", "lawyer", "painter", "cook", "driver", "plumber"]
_JOBS_FR = ["infirmier", "boulanger", "professeur", "pilote", "jardinier", "avocat", "peintre", "cuisinier", "chauffeur", "plombier"]
_OBJ = ["scarf", "camera", "notebook", "bicycle", "wallet", "umbrella", "watch", "guitar", "lamp", "suitcase"]
_OBJ_FR = ["une écharpe", "un appareil photo", "un cahier", "un vélo", "un portefeuille", "un parapluie", "une montre", "une guitare", "une lampe", "une valise"]
_CITY = "Lyon Nantes Lille Bordeaux Genève Bruxelles Dublin Oslo Madrid Rome Berlin Vienna Lisbon Prague Montréal Québec Toulouse Rennes Strasbourg Marseille".split()
_PLACE = ["kitchen", "garage", "library", "cellar", "office", "attic", "garden shed", "hall"]


def planted(rng, T):
    """A made-up sentence inside a real passage."""
    lang, s, q, a = rng.choice(_PLANT)
    v = {"n": rng.choice(_NAMES), "p": rng.choice(_PLACE), "j": rng.choice(_JOBS), "jf": rng.choice(_JOBS_FR), "c": rng.choice(_CITY), "h": rng.randint(2, 12), "k": rng.randint(2, 990), "o": rng.choice(_OBJ), "of": rng.choice(_OBJ_FR)}
    p = _SENT.split(rng.choice(T.passages[lang]))[:rng.randint(2, 6)]
    p.insert(rng.randint(0, len(p)), s.format(**v))
    if rng.random() < 0.5:
        l2, s2, _, _ = rng.choice([x for x in _PLANT if x[0] == lang])
        p.insert(rng.randint(0, len(p)), s2.format(**(v | {"n": rng.choice([x for x in _NAMES if x != v["n"]]), "c": rng.choice(_CITY), "h": rng.randint(2, 12), "k": rng.randint(2, 990)})))
    if rng.random() < 0.12:
        v["n"] = rng.choice([x for x in _NAMES if x not in " ".join(p)])
        return ask(rng.choice(_ASK_BEFORE[lang]).format(t=" ".join(p), q=q.format(**v)), NO_TEXT[lang][0])
    answer = a.format(**v)
    return ask(rng.choice(_ASK_BEFORE[lang]).format(t=" ".join(p), q=q.format(**v)), (answer[0].upper() + answer[1:] + ".") if rng.random() < 0.4 else answer)


# ---- words, facts, translation ---------------------------------------------------------------------

_PRON = [("je", "tu", "il", "nous", "vous", "ils")]
_TENSE = {"present": "au présent", "imperfect": "à l'imparfait", "future": "au futur", "conditional": "au conditionnel"}
_FR_NUM = "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize".split()


def fr_number(n):
    if n < 17:
        return _FR_NUM[n]
    if n < 20:
        return "dix-" + _FR_NUM[n - 10]
    if n < 70:
        tens = ["vingt", "trente", "quarante", "cinquante", "soixante"][n // 10 - 2]
        return tens + ("" if n % 10 == 0 else " et un" if n % 10 == 1 else "-" + _FR_NUM[n % 10])
    if n < 80:
        return "soixante et onze" if n == 71 else "soixante-" + fr_number(n - 60)
    if n < 100:
        return "quatre-vingts" if n == 80 else "quatre-vingt-" + fr_number(n - 80)
    if n < 1000:
        head = "cent" if n < 200 else _FR_NUM[n // 100] + " cent" + ("s" if n % 100 == 0 else "")
        return head + (" " + fr_number(n % 100) if n % 100 else "")
    return str(n)


def conjugation(rng, T):
    verb, tense, forms = rng.choice(T.verbs)
    forms = forms.split(",")
    if tense not in _TENSE or len(forms) < 6 or not all(forms[:6]):
        return capital(rng, T)
    rows = []
    for i, p in enumerate(_PRON[0]):
        rows.append(("j'" if p == "je" and forms[i][0] in "aeiouhéèêâîôy" else p + " ") + forms[i])
    if rng.random() < 0.5:
        return ask(rng.choice(["Conjugue le verbe {v} {t}.", "Comment conjugue-t-on {v} {t} ?", "Conjugaison de {v} {t}.", "Conjugate the French verb {v} ({t})."]).format(v=verb, t=_TENSE[tense]), "\n".join(rows))
    i = rng.randrange(6)
    return ask(rng.choice(["Conjugue {v} {t} avec « {p} ».", "Comment dit-on {v} {t} à la forme « {p} » ?"]).format(v=verb, t=_TENSE[tense], p=_PRON[0][i]), rows[i])


def capital(rng, T):
    country, city, fr = rng.choice(T.capitals)
    k = rng.random()
    if k < 0.5 or not fr:
        q, a = rng.choice([("What is the capital of {x}?", "The capital of {x} is {c}."), ("Which city is the capital of {x}?", "The capital of {x} is {c}."), ("Capital of {x}?", "{c}"),
                           ("{c} is the capital of which country?", "{c} is the capital of {x}.")])
        return ask(q.format(x=country, c=city), a.format(x=country, c=city))
    q, a = rng.choice([("Quelle est la capitale de ce pays : {x} ?", "La capitale est {c}."), ("Capitale : {x}", "{c}"), ("Comment dit-on {e} en français ?", "{x}"), ("De quel pays {c} est-elle la capitale ?", "{c} est la capitale du pays suivant : {x}.")])
    return ask(q.format(x=fr, c=city, e=country), a.format(x=fr, c=city))


def translation(rng, T):
    en, fr = rng.choice(T.short if rng.random() < 0.35 else T.long)
    k = rng.randrange(6)
    if k < 3:
        q = ["Translate into French: {e}", "How do you say this in French: {e}", "Traduis en français : {e}"][k]
        return ask(q.format(e=en), fr)
    q = ["Translate into English: {f}", "What does this mean in English: {f}", "Traduis en anglais : {f}"][k - 3]
    return ask(q.format(f=fr), en)


def definition(rng, T):
    w, g = rng.choice(T.words)
    g = re.sub(r"^\([^)]*\) *", "", g)
    a = "an" if w[0] in "aeiou" else "a"
    q = rng.choice(["What does \"{w}\" mean?", "What is the meaning of {w}?", "Define {w}.", "Explain the word {w}.", "What is {a} {w}?"]).format(w=w, a=a)
    return ask(q, rng.choice(["{W}: {g}.", "It means: {g}.", "A definition of {w}: {g}."]).format(W=w[0].upper() + w[1:], w=w, g=g))


_DAYS = "lundi mardi mercredi jeudi vendredi samedi dimanche".split()
_MONTHS = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split()


def french_sums(rng, T):
    k, a, b = rng.randrange(9), rng.randint(2, 99), rng.randint(2, 99)
    if k == 0:
        return ask(rng.choice(["Combien font {a} plus {b} ?", "Calcule {a} + {b}.", "Quelle est la somme de {a} et {b} ?", "{a} + {b} = ?"]).format(a=a, b=b), rng.choice(["{a} + {b} = {c}.", "Cela fait {c}."]).format(a=a, b=b, c=a + b))
    if k == 1:
        a, b = max(a, b), min(a, b)
        return ask(rng.choice(["Combien font {a} moins {b} ?", "Calcule {a} - {b}."]).format(a=a, b=b), f"{a} - {b} = {a - b}.")
    if k == 2:
        a, b = rng.randint(2, 12), rng.randint(2, 12)
        return ask(rng.choice(["Combien font {a} fois {b} ?", "Calcule {a} x {b}."]).format(a=a, b=b), f"{a} x {b} = {a * b}.")
    if k == 3:
        n = rng.randint(0, 999)
        return ask(rng.choice(["Écris {n} en toutes lettres.", "Comment s'écrit le nombre {n} ?"]).format(n=n), fr_number(n))
    if k == 4:
        i = rng.randrange(7)
        return ask(rng.choice([f"Quel jour vient après {_DAYS[i]} ?", f"Si aujourd'hui c'est {_DAYS[i]}, quel jour sera demain ?"]), f"{_DAYS[(i + 1) % 7].capitalize()}.")
    if k == 5:
        i = rng.randrange(12)
        return ask(rng.choice([f"Quel mois vient après {_MONTHS[i]} ?", f"Quel est le mois qui suit {_MONTHS[i]} ?"]), f"{_MONTHS[(i + 1) % 12].capitalize()}.")
    if k == 6:
        n, p, c = rng.choice(_NAMES), rng.randint(2, 12), rng.randint(2, 20)
        o = rng.choice(["pommes", "livres", "cahiers", "billes", "œufs", "crayons", "bouteilles"])
        d = rng.randint(1, min(9, p * c - 1))
        return ask(f"{n} achète {p} boîtes de {c} {o}, puis en donne {d}. Combien lui en reste-t-il ?", f"{p} boîtes de {c} {o} font {p} x {c} = {p * c}. Il reste {p * c} - {d} = {p * c - d} {o}.")
    if k == 7:
        p, n = rng.choice([5, 10, 20, 25, 50]), rng.randint(1, 40) * 20
        return ask(rng.choice(["Combien font {p} % de {n} ?", "What is {p} percent of {n}?"]).format(p=p, n=n), f"{n} x {p} / 100 = {n * p // 100}.")
    n = rng.sample(range(1, 100), rng.randint(3, 6))
    return ask("Range ces nombres du plus petit au plus grand : " + ", ".join(map(str, n)), ", ".join(map(str, sorted(n))))


# ---- a calculator that is only offered ---------------------------------------------------------------

CALCULATOR = [{"type": "function", "function": {"name": "calculator", "description": "Evaluate an arithmetic expression.", "parameters": {
    "type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}]


def calculator(rng, T):
    """No call, the first of one or two calls, the second, or the answer after the results: each is a sample of its own."""
    fr, n = rng.random() < 0.5, rng.choice(_NAMES)
    a, b, c = rng.randint(12, 999), rng.randint(12, 99), rng.randint(2, 999)
    call = lambda e: {"role": "assistant", "content": "", "tool_calls": [{"name": "calculator", "arguments": {"expression": e}}]}
    text = lambda e: f"<tool_call>\n<function=calculator>\n<parameter=expression>\n{e}\n</parameter>\n</function>\n</tool_call>"
    k = rng.randrange(5)
    if k == 0:                                      # no need for it
        q, ans = rng.choice([("Tell me something about the sea.", "The sea covers most of the Earth. It is salty, it has tides, and many animals live in it."), ("Bonjour !", "Bonjour ! Comment puis-je vous aider ?"),
                             ("What is 2 plus 2?", "2 + 2 = 4."), ("Écris une phrase sur l'hiver.", "La neige a couvert le jardin pendant la nuit, et tout est devenu silencieux."), ("How are you?", "I am fine, thank you. How can I help you?"),
                             (f"Traduis en anglais : {T.long[rng.randrange(len(T.long))][1]}", None), ("Combien font 3 fois 3 ?", "3 x 3 = 9."), ("Who are you?", "I am chimère-mini, a small language model.")])
        if ans is None:
            q, _, _, ans = translation(rng, T)
            q = q[-1]["content"]
        return ask(q, ans, tools=CALCULATOR)
    q = (f"{n} achète {a} caisses de {b} bouteilles et en casse {c}. Combien en reste-t-il ?" if fr else f"{n} buys {a} crates of {b} bottles and breaks {c}. How many are left?")
    if k == 1:
        return ask(q, text(f"{a} * {b} - {c}"), tools=CALCULATOR)
    if k == 2:
        r = a * b - c
        return [{"role": "user", "content": q}, call(f"{a} * {b} - {c}"), {"role": "tool", "content": str(r)}], CALCULATOR, "", (f"Il reste {r} bouteilles." if fr else f"{r} bottles are left.")
    msgs = [{"role": "user", "content": q}, call(f"{a} * {b}"), {"role": "tool", "content": str(a * b)}]
    if k == 3:
        return msgs, CALCULATOR, "", text(f"{a * b} - {c}")
    r = a * b - c
    return msgs + [call(f"{a * b} - {c}"), {"role": "tool", "content": str(r)}], CALCULATOR, "", (f"Il reste {r} bouteilles." if fr else f"{r} bottles are left.")


# ---- unanswerable questions ---------------------------------------------------------------------------

_UNKNOWN = {"en": (["What is {n}'s phone number?", "Where did {n} park the car?", "What did {n} eat last night?", "What will {n} do next year?", "How many coins are in my pocket?", "What is the password of {n}?", "What is the name of {n}'s dog?", "How many people live in {x}?",
                    "Who is the mayor of {x}?", "When was the bridge of {x} built?", "What is the favourite book of {n}?", "What number am I thinking of?", "Which team will win on {d}?", "Will it rain in {c} on {d}?", "What did I do yesterday?", "How tall is {n}?"],
                   ["I do not know. I have no information about that.", "I do not know. You would have to ask {n}.", "I do not know, and I would only be guessing.", "I don't know. Nothing that I have learned answers that."]),
            "fr": (["Quel est le numéro de téléphone de {n} ?", "Où {n} a-t-il garé sa voiture ?", "Qu'a mangé {n} hier soir ?", "Que fera {n} l'an prochain ?", "Combien de pièces y a-t-il dans ma poche ?", "Comment s'appelle le chien de {n} ?", "Combien d'habitants y a-t-il à {x} ?",
                    "Qui est le maire de {x} ?", "Quand a-t-on construit le pont de {x} ?", "Quel est le livre préféré de {n} ?", "À quel nombre est-ce que je pense ?", "Quelle équipe gagnera {d} ?", "Pleuvra-t-il à {c} {d} ?", "Qu'ai-je fait hier ?"],
                   ["Je ne sais pas. Je n'ai aucune information là-dessus.", "Je ne sais pas. Il faudrait demander à {n}.", "Je ne sais pas, et je ne ferais que deviner.", "Je ne sais pas. Rien de ce que j'ai appris n'y répond."])}


def unknown(rng, T):
    lang = rng.choice(["en", "fr"])
    qs, ans = _UNKNOWN[lang]
    q, n = rng.choice(qs), rng.choice(_NAMES)
    a = rng.choice([x for x in ans if "{n}" not in x or "{n}" in q])
    d = rng.choice(["Friday", "Sunday"]) if lang == "en" else rng.choice(_DAYS)
    x = "".join(rng.choice(["mar", "bel", "tor", "vin", "sal", "dre", "nor", "lu", "ker", "pont"]) for _ in range(2)).capitalize() + rng.choice(["", "ville", "ham", "ey"])
    return ask(q.format(n=n, d=d, c=rng.choice(_CITY), x=x), a.format(n=n))


# ---- letters, lists, stories and dialogues -------------------------------------------------------------

_HERO = [("fox", "un renard", "renard"), ("cat", "un chat", "chat"), ("dragon", "un dragon", "dragon"), ("little girl", "une petite fille", "petite fille"), ("wizard", "un magicien", "magicien"), ("robot", "un robot", "robot"),
         ("princess", "une princesse", "princesse"), ("sailor", "un marin", "marin"), ("mouse", "une souris", "souris"), ("gardener", "un jardinier", "jardinier"), ("bear", "un ours", "ours"), ("clockmaker", "un horloger", "horloger"),
         ("knight", "un chevalier", "chevalier"), ("owl", "une chouette", "chouette"), ("baker", "un boulanger", "boulanger"), ("boy", "un garçon", "garçon"), ("dog", "un chien", "chien"), ("horse", "un cheval", "cheval"), ("astronaut", "une astronaute", "astronaute"), ("pirate", "un pirate", "pirate")]
_SETTING = [("by the sea", "au bord de la mer"), ("in a deep forest", "dans une forêt profonde"), ("in a small village", "dans un petit village"), ("on top of a mountain", "au sommet d'une montagne"), ("in a busy town", "dans une ville animée"), ("in an old castle", "dans un vieux château"),
            ("near a quiet river", "près d'une rivière calme"), ("on a lonely island", "sur une île déserte"), ("at the edge of the desert", "au bord du désert"), ("above a bookshop", "au-dessus d'une librairie")]
_WISH = [("wanted to see the stars up close", "voulait voir les étoiles de près"), ("dreamed of learning to sing", "rêvait d'apprendre à chanter"), ("was looking for a friend", "cherchait un ami"), ("had lost something precious", "avait perdu un objet précieux"), ("wanted to know where the wind comes from", "voulait savoir d'où vient le vent"),
         ("was afraid of the dark", "avait peur du noir"), ("wished to make the best soup in the world", "voulait faire la meilleure soupe du monde"), ("had never left home", "n'avait jamais quitté sa maison"), ("could not keep a secret", "ne savait pas garder un secret"), ("wanted to build a bridge", "voulait construire un pont")]
_HELPER = [("an old tortoise", "une vieille tortue"), ("a talking crow", "un corbeau qui parlait"), ("a kind old woman", "une vieille dame bienveillante"), ("a young musician", "un jeune musicien"), ("a lost child", "un enfant perdu"), ("a grumpy giant", "un géant grincheux"), ("a silver fish", "un poisson d'argent"), ("a travelling merchant", "un marchand ambulant")]
_TRIAL = [("A storm broke out, and the path disappeared under the rain.", "Un orage éclata et le chemin disparut sous la pluie."), ("The bridge was broken, and the water was cold and fast.", "Le pont était cassé, et l'eau était froide et rapide."), ("Night fell, and strange lights danced between the trees.", "La nuit tomba, et d'étranges lumières dansaient entre les arbres."),
          ("A heavy door blocked the way, and nobody had the key.", "Une lourde porte barrait la route, et personne n'avait la clé."), ("The snow grew so deep that every step was hard.", "La neige devint si épaisse que chaque pas était difficile."), ("They had to answer a riddle before they could go on.", "Il fallait répondre à une énigme avant de continuer."), ("The map was wrong, and they were walking in circles.", "La carte était fausse, et ils tournaient en rond.")]
_ADVICE = [("Walk slowly and listen; the answer is quieter than the question.", "Marche lentement et écoute : la réponse parle plus bas que la question."), ("Two small lamps shine further than one large one.", "Deux petites lampes éclairent plus loin qu'une grande."), ("You cannot carry everything. Choose what is light.", "On ne peut pas tout porter. Choisis ce qui est léger."),
           ("What you give away comes back by another road.", "Ce que l'on donne revient par un autre chemin."), ("Courage is not being fearless; it is taking your fear by the hand.", "Le courage, ce n'est pas ne pas avoir peur, c'est prendre sa peur par la main."), ("If the door is closed, try the window.", "Si la porte est fermée, essaie la fenêtre.")]
_ENDING = [("When they came home, the whole village was waiting with lanterns.", "À leur retour, tout le village attendait avec des lanternes."), ("In the end what had been missing was found in the very first place, only now it could be seen.", "À la fin, ce qui manquait se trouvait au point de départ, mais on pouvait enfin le voir."), ("From that day on nobody there was ever alone in the evening.", "Depuis ce jour, personne là-bas ne fut plus jamais seul le soir."),
           ("They laughed until the sun came up, and then they had breakfast.", "Ils rirent jusqu'au lever du soleil, puis ils prirent le petit déjeuner."), ("And if you pass that way, you can still hear the song.", "Et si vous passez par là, vous pouvez encore entendre la chanson."), ("It was not the end they had expected, but it was a better one.", "Ce n'était pas la fin attendue, mais elle était bien meilleure.")]
_OPEN = [("Once upon a time there lived", "Il était une fois"), ("Long ago there was", "Il y a bien longtemps vivait"), ("Once there was", "Un jour vivait")]


def story(rng, T):
    fr = rng.random() < 0.5
    i = 1 if fr else 0
    hero, setting, wish, helper, trial, advice, ending = (rng.choice(x) for x in (_HERO, _SETTING, _WISH, _HELPER, _TRIAL, _ADVICE, _ENDING))
    name, name2 = rng.sample(_NAMES, 2)
    a = "an" if hero[0][0] in "aeiou" else "a"
    if fr:
        q = rng.choice(["Raconte-moi une histoire avec {h}.", "Écris une courte histoire sur {h}.", "Raconte l'histoire d'{h} {s}.", "Invente un conte avec {h}.", "Une histoire avec {h}, s'il te plaît.", "Écris un conte pour enfants où il y a {h}."])
        fem = hero[1].startswith("une")
        p = "elle" if fem else "il"
        text = [f"{rng.choice(_OPEN)[1]} {setting[1]} {hero[1]} qui s'appelait {name}. {name} {wish[1]}.",
                rng.choice([f"Un matin, {p} prit un petit sac et se mit en route.", f"Chaque soir, {p} y pensait avant de s'endormir.", f"Ses voisins se moquaient un peu, mais {p} ne les écoutait pas."]) + f" En chemin, {name} rencontra {helper[1]}.",
                f"« {rng.choice(['Où vas-tu si vite ?', 'Pourquoi as-tu l’air si triste ?', 'Puis-je marcher avec toi ?'])} » {rng.choice(['Alors', 'Et'])} {name} raconta tout. « {advice[1]} »",
                trial[1] + f" {name} {rng.choice(['eut envie de faire demi-tour', 'se souvint alors du conseil', 'respira profondément'])}, mais {rng.choice(['ensemble, ils trouvèrent une solution', 'continua quand même, pas à pas', 'une idée lui vint à l’esprit'])}.", ending[1]]
    else:
        q = rng.choice(["Tell me a story about {h}.", "Write a short story about {h}.", "Write a story about {h} {s}.", "Tell me a tale with {h}.", "Make up a story about {h}, please.", "I would like a bedtime story about {h}."])
        text = [f"{rng.choice(_OPEN)[0]} {a} {hero[0]} called {name}, {setting[0]}. {name} {wish[0]}.",
                rng.choice([f"One morning {name} packed a small bag and set off.", f"Every evening {name} thought of it before falling asleep.", f"The neighbours laughed a little, but {name} did not listen to them."]) + f" On the way {name} met {helper[0]}.",
                f"\"{rng.choice(['Where are you going in such a hurry?', 'Why do you look so sad?', 'May I walk with you?'])}\" And {name} told the whole story. \"{advice[0]}\" was the answer.",
                trial[0] + f" {name} {rng.choice(['nearly turned back', 'remembered the advice', 'took a deep breath'])}, but {rng.choice(['together they found a way', 'went on all the same, step by step', 'then had an idea'])}.", ending[0]]
    h = hero[1] if fr else a + " " + hero[0]
    q = q.replace("d'{h}", "d'" + h) if fr else q
    return ask(q.format(h=h, s=setting[i]), "\n\n".join(text) if rng.random() < 0.6 else " ".join(text))


_OCC = [("ask for a day off", "demander un jour de congé", "Day off", "Demande de congé", "I would like to take {d} off for {r}.", "Je souhaiterais prendre un jour de congé {df} pour {rf}."),
        ("cancel a meeting", "annuler une réunion", "Our meeting", "Notre réunion", "Unfortunately I have to cancel our meeting on {d} because of {r}.", "Je dois malheureusement annuler notre réunion de {df} en raison d'un empêchement."),
        ("say sorry for being late", "m'excuser d'un retard", "My apologies", "Mes excuses", "I am sorry that I was late on {d}. It will not happen again.", "Je vous prie d'excuser mon retard de {df}. Cela ne se reproduira pas."),
        ("invite to dinner", "inviter à dîner", "Dinner", "Dîner", "I would be happy to have you over for dinner on {d}.", "Je serais heureux de vous inviter à dîner {df}."),
        ("thank for help", "remercier d'une aide", "Thank you", "Merci", "Thank you very much for your help on {d}. It made a great difference.", "Je vous remercie beaucoup de votre aide de {df}. Elle m'a été précieuse."),
        ("ask for information about a course", "demander des renseignements sur un cours", "Question about the course", "Question sur le cours", "I am interested in the course that begins on {d}. Could you tell me what it costs?", "Je m'intéresse au cours qui commence {df}. Pourriez-vous m'en indiquer le prix ?"),
        ("complain about noise", "me plaindre du bruit", "Noise", "Bruit", "On {d} it was very loud in the house until late. Could we please find a solution?", "Le bruit a duré très tard {df}. Pourrions-nous trouver une solution ?"),
        ("remind someone of a bill", "rappeler une facture", "Reminder", "Rappel", "Our invoice of {d} has not been paid yet. Please transfer the amount within ten days.", "Notre facture de {df} n'a pas encore été réglée. Merci de la payer sous dix jours.")]
_WHO = [("my boss", "mon patron"), ("a colleague", "un collègue"), ("my landlord", "mon propriétaire"), ("a friend", "un ami"), ("my teacher", "mon professeur"), ("a neighbour", "un voisin"), ("a customer", "un client")]


def letter(rng, T):
    fr, o, w, n, n2 = rng.random() < 0.5, rng.choice(_OCC), rng.choice(_WHO), rng.choice(_NAMES), rng.choice(_NAMES)
    i = rng.randrange(7)
    d, df = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"][i], _DAYS[i]
    if fr:
        q = rng.choice(["Écris un court e-mail à {w} pour {o}.", "Rédige un message à {w} pour {o}.", "Aide-moi à écrire à {w} pour {o}.", "Peux-tu écrire une lettre à {w} pour {o} ?"]).format(w=w[1], o=o[1])
        body = o[5].format(df=df, rf=rng.choice(["une affaire de famille", "un rendez-vous médical", "un déménagement"]))
        return ask(q, f"Objet : {o[3]}\n\n{rng.choice(['Bonjour', 'Cher Monsieur', 'Chère Madame'])},\n\n{body} {rng.choice(['Merci d’avance de votre réponse.', 'N’hésitez pas à me contacter.', 'Je reste à votre disposition.'])}\n\n{rng.choice(['Cordialement', 'Bien à vous', 'Avec mes salutations'])},\n{n}")
    q = rng.choice(["Write a short email to {w} to {o}.", "Draft a message to {w} to {o}.", "Help me write to {w} to {o}.", "Can you write a letter to {w} to {o}?"]).format(w=w[0], o=o[0])
    body = o[4].format(d=d, r=rng.choice(["a family matter", "a medical appointment", "a move"]))
    return ask(q, f"Subject: {o[2]}\n\nDear {n2},\n\n{body} {rng.choice(['Please let me know what you think.', 'Thank you in advance.', 'Feel free to call me.'])}\n\n{rng.choice(['Kind regards', 'Best wishes', 'Yours sincerely'])},\n{n}")


_LISTS = [("animals", "animaux", "dog cat horse lion elephant rabbit whale eagle", "chien chat cheval lion éléphant lapin baleine aigle"), ("fruits", "fruits", "apple pear banana cherry grape orange lemon peach", "pomme poire banane cerise raisin orange citron pêche"),
          ("colours", "couleurs", "red blue green yellow orange purple black white", "rouge bleu vert jaune orange violet noir blanc"), ("vegetables", "légumes", "carrot potato onion leek cabbage tomato bean pea", "carotte pomme-de-terre oignon poireau chou tomate haricot petit-pois"),
          ("musical instruments", "instruments de musique", "piano guitar violin flute drum trumpet harp cello", "piano guitare violon flûte tambour trompette harpe violoncelle"), ("countries", "pays", "France Italy Spain Germany Japan Brazil Canada Egypt", "France Italie Espagne Allemagne Japon Brésil Canada Égypte"),
          ("jobs", "métiers", "doctor baker teacher pilot farmer cook nurse lawyer", "médecin boulanger professeur pilote agriculteur cuisinier infirmier avocat"), ("sports", "sports", "football tennis swimming cycling running boxing hockey skiing", "football tennis natation cyclisme course boxe hockey ski"),
          ("clothes", "vêtements", "shirt coat trousers dress hat sock glove scarf", "chemise manteau pantalon robe chapeau chaussette gant écharpe"), ("European cities", "villes d'Europe", "Paris Rome Madrid Berlin Vienna Lisbon Prague Dublin", "Paris Rome Madrid Berlin Vienne Lisbonne Prague Dublin")]
_OPP = [("hot", "cold", "chaud", "froid"), ("big", "small", "grand", "petit"), ("day", "night", "jour", "nuit"), ("fast", "slow", "rapide", "lent"), ("happy", "sad", "heureux", "triste"), ("old", "young", "vieux", "jeune"), ("rich", "poor", "riche", "pauvre"), ("open", "closed", "ouvert", "fermé"),
        ("full", "empty", "plein", "vide"), ("hard", "soft", "dur", "mou"), ("strong", "weak", "fort", "faible"), ("early", "late", "tôt", "tard"), ("light", "dark", "clair", "sombre"), ("clean", "dirty", "propre", "sale"), ("high", "low", "haut", "bas"), ("beautiful", "ugly", "beau", "laid"), ("love", "hate", "amour", "haine")]


def small_things(rng, T):
    fr, k = rng.random() < 0.5, rng.randrange(3)
    if k == 0:
        en_name, fr_name, en, frl = rng.choice(_LISTS)
        n = rng.randint(3, 6)
        items = rng.sample((frl if fr else en).split(), n)
        q = rng.choice([f"Donne-moi {fr_number(n)} {fr_name}.", f"Cite {n} {fr_name}.", f"Nomme {fr_number(n)} {fr_name}."]) if fr else rng.choice([f"Name {n} {en_name}.", f"Give me {n} {en_name}.", f"List {n} {en_name}."])
        items = [x.replace("-", " ") if fr else x for x in items]
        return ask(q, "\n".join(f"{j + 1}. {x[0].upper() + x[1:]}" for j, x in enumerate(items)) if rng.random() < 0.6 else ", ".join(items) + ".")
    a, b, c, d = rng.choice(_OPP)
    if rng.random() < 0.5:
        a, b, c, d = b, a, d, c
    if fr:
        return ask(rng.choice([f"Quel est le contraire de « {c} » ?", f"Donne le contraire de {c}.", f"Antonyme de {c} ?"]), f"Le contraire de « {c} » est « {d} ».")
    return ask(rng.choice([f"What is the opposite of {a}?", f"Give me the opposite of \"{a}\".", f"Antonym of {a}?"]), f"The opposite of {a} is {b}.")


SKILLS = {"reading": (reading, 26), "planted": (planted, 16), "conjugation": (conjugation, 2), "capital": (capital, 4), "translation": (translation, 10), "definition": (definition, 5),
          "french_sums": (french_sums, 7), "calculator": (calculator, 6), "unknown": (unknown, 3), "mini_story": (story, 7), "letter": (letter, 5), "small_things": (small_things, 3)}
