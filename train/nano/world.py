"""Words, names and the invented encyclopedia.

Everything here is made up or plain vocabulary. `Split` decides what may be seen in training:
each list has a held-out part that only evaluation items draw from.
"""

import random

FIRST_NAMES = """Ana Ben Carla David Emma Felix Grace Hugo Iris Jack Karim Lena Marco Nina Oscar Paula
Quentin Rosa Sam Tara Umar Vera Will Yara Zoe Alice Bruno Chloe Diego Elsa Farid Gina Henry Ines Jonas
Kate Leo Mia Noah Olga Peter Ruth Simon Theo Ursula Victor Wanda Xavier Yves Zara Adam Bella Colin Dora
Eric Fiona Gabriel Hana Ivan Julia Kevin Laura Max Nora Otto Pia Ravi Sara Tom Lucy Mark Anna Paul""".split()
CITIES = """Paris London Berlin Madrid Rome Oslo Vienna Prague Lisbon Dublin Athens Warsaw Helsinki Brussels
Geneva Lyon Nice Tokyo Cairo Delhi Lima Boston Chicago Sydney Toronto Nairobi Seoul Bergen Porto Munich Turin
Seville Krakow Bordeaux Lille Nantes Basel Ghent Malmo Riga""".split()
COLOURS = "red blue green yellow black white orange purple brown pink grey silver".split()
ANIMALS = """cat dog horse cow sheep goat pig duck hen fox wolf bear lion tiger rabbit mouse owl eagle frog
turtle whale shark snake bee ant deer camel monkey parrot otter""".split()
FRUITS = "apples pears plums cherries oranges lemons figs bananas grapes peaches melons berries".split()
THINGS = """books pens cups boxes chairs lamps coins stamps marbles shells cards balls bottles eggs candles
stickers pencils tickets buttons stones flowers cookies keys bags""".split()
PLACES = "market shop school farm library station garden kitchen office museum park harbour".split()
NOUNS = """table river window bread mountain letter garden bridge forest clock paper stone road music
winter summer morning evening island village door candle mirror ladder basket hammer pocket blanket engine
bottle feather saddle tunnel anchor carpet thunder valley meadow ribbon lantern cottage orchard harvest
compass pencil kettle barrel copper velvet""".split()
ADJECTIVES = """small large old new bright dark quiet loud soft hard warm cold clean dry sweet sharp
heavy light narrow wide gentle proud brave clever""".split()
VERBS = [("walk", "walked"), ("open", "opened"), ("paint", "painted"), ("carry", "carried"), ("clean", "cleaned"),
         ("watch", "watched"), ("cook", "cooked"), ("help", "helped"), ("call", "called"), ("visit", "visited"),
         ("find", "found"), ("see", "saw"), ("take", "took"), ("buy", "bought"), ("write", "wrote"),
         ("read", "read"), ("make", "made"), ("sing", "sang"), ("bring", "brought"), ("draw", "drew")]
JOBS = """teacher baker doctor farmer nurse pilot painter driver lawyer writer singer cook engineer gardener
plumber tailor dentist judge sailor librarian""".split()
HOBBIES = """chess tennis swimming cooking reading painting hiking cycling music gardening fishing dancing
photography football singing skating""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November December""".split()
MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
NUMBER_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty""".split()

_SYL = ("ba be bi bo bu da de di do du fa fe fi ga ge go gu ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu "
        "pa pe pi po ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo za ze zo").split()
_END = ["l", "n", "r", "s", "k", "m", "th", "x", "d", "", "", ""]


# Open classes: in training half of the draws come from wide lists (`widen`), so that what the model
# learns about such a slot is to copy it, not to know it.
_OPEN_COMMON = [NOUNS, ANIMALS, FRUITS, THINGS, JOBS, HOBBIES, PLACES, ADJECTIVES]
_OPEN_PROPER = [FIRST_NAMES, CITIES]
_wide = {"common": [], "proper": [], "ours": [], "names": []}


def widen(words):
    """Give training a wide list of lower-case words. Words are not held out; wordings, operand pairs and facts are."""
    every = sorted(set(words) | {w.lower() for words_ in _OPEN_COMMON + _OPEN_PROPER for w in words_})
    _wide["common"], _wide["proper"] = every, [w.capitalize() for w in every]
    _wide["ours"] = [w for words_ in _OPEN_COMMON for w in words_]
    _wide["names"] = [w for words_ in _OPEN_PROPER for w in words_]


def _wide_list(words):
    if any(words is x for x in _OPEN_COMMON):
        return _wide["common"]
    return _wide["proper"] if any(words is x for x in _OPEN_PROPER) else None


class Split:
    """train draws from the train part; eval draws half of the time from the held-out part."""

    def __init__(self, rng, name):
        self.rng, self.name = rng, name

    def is_eval(self):
        return self.name == "eval"

    def of(self, train, held):
        if self.name == "eval" and held and self.rng.random() < 0.5:
            return self.rng.choice(held)
        return self.rng.choice(train)

    def word(self, words):
        """One of `words`; every eighth is held out of training."""
        if self.name == "train":
            wide = _wide_list(words)
            if wide is not None and self.rng.random() < 0.55:
                r = self.rng.random()
                if wide and r < 0.25:
                    return self.rng.choice(_wide["names" if wide is _wide["proper"] else "ours"])
                return self.rng.choice(wide) if wide and r < 0.85 else _slot_name(self.rng, wide is _wide["proper"])
        train, held = [w for i, w in enumerate(words) if i % 8 != 5], words[5::8]
        return self.of(train, held)

    def words(self, words, n):
        out = []
        for _ in range(200):
            w = self.word(words)
            if w not in out:
                out.append(w)
            if len(out) == n:
                break
        return out


def invented(rng, lo=2, hi=3):
    """A pronounceable name that is no word."""
    s = "".join(rng.choice(_SYL) for _ in range(rng.randint(lo, hi))) + rng.choice(_END)
    return s.capitalize()


def _slot_name(rng, proper):
    s = invented(rng)
    return s if proper else s.lower()


def person(rng):
    return invented(rng, 2, 2) + " " + invented(rng, 2, 2)


def _year(rng):
    return str(rng.randint(1203, 1989))


def _metres(rng):
    return f"{rng.randint(112, 8950)} metres"


def _kilos(rng):
    return f"{rng.randint(12, 980)} kilograms"


def _date(rng):
    return f"{rng.randint(1, 28)} {rng.choice(MONTHS)}"


def _name(rng):
    return invented(rng)


# kind -> list of (attribute, value maker, statements, questions). Statement wordings 0 and 1 are the
# "same wording" and "paraphrase" of articles; the last question of each list is held out.
KINDS = {
    "town": [
        ("founder", person,
         ["{e} was founded by {v}.", "It was {v} who built the first houses of {e}.", "The founder of {e} is {v}."],
         ["Who founded {e}?", "Who was the founder of {e}?", "By whom was {e} founded?", "Name the founder of {e}.",
          "Who built the first houses of {e}?", "Which person founded {e}?", "Who is the founder of {e}?", "{e}: who founded it?", "Do you know who founded {e}?", "Tell me who founded the town of {e}."]),
        ("year", _year,
         ["{e} was founded in {v}.", "The first houses of {e} date from {v}.", "The town of {e} goes back to the year {v}."],
         ["When was {e} founded?", "In which year was {e} founded?", "What year does {e} date from?",
          "Give the year in which {e} was founded.", "How far back does {e} go?", "The year {e} was founded?", "Since when does {e} exist?", "{e}: when was it founded?", "Do you know when {e} was founded?", "In what year did the town of {e} begin?"]),
        ("river", _name,
         ["{e} lies on the river {v}.", "The river {v} flows through {e}.", "The water of {e} comes from the river {v}."],
         ["Which river flows through {e}?", "On which river does {e} lie?", "What is the river of {e}?",
          "Name the river that runs through {e}.", "What river is {e} on?", "Which river is in {e}?", "The river of {e}?", "What water flows through {e}?", "{e}: which river?", "Through {e} flows which river?"]),
        ("lord", person,
         ["The mayor of {e} is {v}.", "{e} is led by its mayor, {v}.", "At the head of {e} stands the mayor {v}."],
         ["Who is the mayor of {e}?", "Who leads {e}?", "Name the mayor of {e}.", "What is the name of the mayor of {e}?",
          "Which person is mayor of {e}?", "Who heads {e}?", "The mayor of {e} is who?", "{e}: who is the mayor?", "Who is at the head of {e}?", "Tell me who is mayor in {e}."]),
    ],
    "mountain": [
        ("height", _metres,
         ["{e} is {v} high.", "The top of {e} stands at {v}.", "{e} rises to {v}."],
         ["How high is {e}?", "What is the height of {e}?", "How tall is the mountain {e}?", "Give the height of {e}.",
          "At what height is the top of {e}?", "How many metres high is {e}?", "{e}: how high?", "The height of {e}?", "How far up is the top of {e}?", "How many metres does {e} rise?"]),
        ("climber", person,
         ["{e} was first climbed by {v}.", "The first person on top of {e} was {v}.", "{v} was the first to reach the top of {e}."],
         ["Who first climbed {e}?", "Who was the first person on top of {e}?", "By whom was {e} first climbed?",
          "Name the first climber of {e}.", "Who was the first to climb {e}?", "{e}: who climbed it first?", "Which person first climbed {e}?", "Who got to the top of {e} first?", "The first climber of {e}?", "Who reached the top of {e} first?"]),
        ("climbed", _year,
         ["{e} was first climbed in {v}.", "Nobody stood on top of {e} before {v}.", "The first climb of {e} took place in {v}."],
         ["When was {e} first climbed?", "In which year was {e} first climbed?", "What year was the first climb of {e}?",
          "Give the year of the first climb of {e}.", "When did someone first climb {e}?", "{e}: when was it first climbed?", "The year of the first climb of {e}?", "Since what year has {e} been climbed?", "When was the first climb of {e}?", "In what year did people first reach the top of {e}?"]),
        ("lake", _name,
         ["At the foot of {e} lies the lake {v}.", "The lake below {e} is called {v}.", "{e} looks down on the lake {v}."],
         ["Which lake lies at the foot of {e}?", "What is the lake below {e} called?", "Name the lake near {e}.",
          "What lake does {e} look down on?", "Which lake is below {e}?", "{e}: which lake is near?", "The lake of {e}?", "Which lake can one see from {e}?", "What is the lake at {e}?", "What is the name of the lake at the foot of {e}?"]),
    ],
    "machine": [
        ("inventor", person,
         ["The {e} was invented by {v}.", "{v} is the inventor of the {e}.", "We owe the {e} to {v}."],
         ["Who invented the {e}?", "Who is the inventor of the {e}?", "By whom was the {e} invented?",
          "Name the inventor of the {e}.", "To whom do we owe the {e}?", "{e}: who invented it?", "The inventor of the {e}?", "Who made the first {e}?", "Who thought of the {e}?", "Which person invented the {e}?"]),
        ("built", _year,
         ["The {e} was first built in {v}.", "The first {e} dates from {v}.", "The year {v} saw the first {e}."],
         ["When was the {e} first built?", "In which year was the first {e} built?", "What year is the first {e} from?",
          "Give the year of the first {e}.", "When was the first {e} made?", "{e}: when was it built?", "The year of the {e}?", "Since when is there a {e}?", "When did the first {e} appear?", "From what year is the first {e}?"]),
        ("weight", _kilos,
         ["The {e} weighs {v}.", "The weight of the {e} is {v}.", "On the scales the {e} shows {v}."],
         ["How much does the {e} weigh?", "What is the weight of the {e}?", "How heavy is the {e}?",
          "Give the weight of the {e}.", "What does the {e} weigh?", "{e}: what weight?", "The weight of the {e}?", "How many kilograms is the {e}?", "What do the scales say for the {e}?", "Tell me how heavy the {e} is."]),
        ("metal", _name,
         ["The {e} is made of the metal {v}.", "A metal called {v} is used for the {e}.", "To build the {e} one needs the metal {v}."],
         ["Which metal is the {e} made of?", "What metal is used for the {e}?", "Of what metal is the {e} made?",
          "Name the metal of the {e}.", "What is the {e} made of?", "{e}: which metal?", "The metal of the {e}?", "From which metal is the {e} built?", "What metal goes into the {e}?", "Which metal does one need for the {e}?"]),
    ],
    "book": [
        ("author", person,
         ["The book {e} was written by {v}.", "{v} is the author of {e}.", "{e} came from the pen of {v}."],
         ["Who wrote {e}?", "Who is the author of {e}?", "By whom was {e} written?", "Name the author of {e}.",
          "Which writer wrote {e}?", "{e}: who wrote it?", "The author of {e}?", "Who is the writer of {e}?", "Whose book is {e}?", "From whose pen did {e} come?"]),
        ("printed", _year,
         ["{e} was printed in {v}.", "The first copies of {e} appeared in {v}.", "Readers first saw {e} in {v}."],
         ["When was {e} printed?", "In which year was {e} printed?", "What year did {e} appear?",
          "Give the year in which {e} was printed.", "When did the first copies of {e} appear?", "{e}: when was it printed?", "The year of {e}?", "When could people first read {e}?", "When did {e} come out?", "In what year did readers first see {e}?"]),
        ("hero", person,
         ["The hero of {e} is {v}.", "{e} tells the life of {v}.", "In {e} we follow {v}."],
         ["Who is the hero of {e}?", "Whose life does {e} tell?", "Name the hero of {e}.", "What is the hero of {e} called?",
          "Who is the main character of {e}?", "{e}: who is the hero?", "The hero of {e}?", "About whom is {e}?", "Whose story is told in {e}?", "Who is {e} about?", "Whom do we follow in {e}?"]),
    ],
    "festival": [
        ("day", _date,
         ["The feast of {e} is held on {v}.", "Every year {e} begins on {v}.", "People gather for {e} on {v}."],
         ["When is the feast of {e} held?", "On which day does {e} begin?", "What is the date of {e}?",
          "Give the date of {e}.", "When do people gather for {e}?", "{e}: when is it?", "The day of {e}?", "When does {e} start?", "On which date does {e} begin?", "On what date is {e}?"]),
        ("town", _name,
         ["{e} is held in the town of {v}.", "The town of {v} is the home of {e}.", "For {e} one goes to the town of {v}."],
         ["In which town is {e} held?", "Where is {e} held?", "Name the town of {e}.", "What town is the home of {e}?",
          "Which town does one go to for {e}?", "{e}: in which town?", "The town of {e}?", "Where do people go for {e}?", "In what town can one see {e}?", "Where does {e} take place?"]),
        ("king", person,
         ["{e} was started by {v}.", "It was {v} who began {e}.", "The first to hold {e} was {v}."],
         ["Who started {e}?", "Who began {e}?", "By whom was {e} started?", "Name the person who started {e}.",
          "Who first held {e}?", "{e}: who started it?", "The founder of {e}?", "Who was the first to hold {e}?", "With whom did {e} begin?", "Which person began {e}?"]),
    ],
}
_LEADS = {
    "town": ["{e} is a town.", "{e} is a small town in the north.", "The town of {e} is known for its market."],
    "mountain": ["{e} is a mountain.", "{e} is a steep mountain.", "The mountain {e} can be seen from far away."],
    "machine": ["The {e} is a machine.", "The {e} is an old machine.", "The {e} is a machine that few people know."],
    "book": ["{e} is a book.", "{e} is a well known book.", "{e} is a long book."],
    "festival": ["{e} is a feast.", "{e} is a feast that lasts two days.", "The feast of {e} is loved by all."],
}
_FILL = ["Many visitors come in summer.", "The winters there are long.", "Children learn about it at school.",
         "Old songs speak of it.", "A small museum tells its story.", "It is drawn on old maps.",
         "Travellers wrote about it in their letters.", "Its name has an unknown origin."]


class Entity:
    def __init__(self, rng, kind=None):
        self.kind = kind or rng.choice(list(KINDS))
        self.name = invented(rng, 3, 3) if rng.random() < 0.6 else invented(rng, 2, 2) + " " + invented(rng, 2, 2)
        self.values = {a: make(rng) for a, make, _, _ in KINDS[self.kind]}

    def facts(self):
        return [(a, st, qs) for a, _, st, qs in KINDS[self.kind]]

    def question(self, attr, split):
        qs = next(q for a, _, _, q in KINDS[self.kind] if a == attr)
        return split.of(qs[:-1], qs[-1:]).format(e=self.name)

    def article(self, rng, attrs=None, wording=None, fill=True):
        """Short article; `wording` picks one statement wording for all, None mixes them."""
        rows = []
        for a, _, st, _ in KINDS[self.kind]:
            if attrs is None or a in attrs:
                w = rng.randrange(len(st)) if wording is None else wording % len(st)
                rows.append(st[w].format(e=self.name, v=self.values[a]))
        rng.shuffle(rows)
        lead = rng.choice(_LEADS[self.kind]).format(e=self.name)
        if fill and rng.random() < 0.5:
            rows.insert(rng.randrange(len(rows) + 1), rng.choice(_FILL))
        return lead + " " + " ".join(rows)


ENCYCLOPEDIA_SEED = 20260101
N_KNOWN, N_WITHHELD = 240, 80


def encyclopedia():
    """(known entities, withheld entities). Fixed by seed; withheld ones never enter training."""
    rng = random.Random(ENCYCLOPEDIA_SEED)
    seen, out = set(), []
    while len(out) < N_KNOWN + N_WITHHELD:
        e = Entity(rng)
        if e.name not in seen:
            seen.add(e.name)
            out.append(e)
    return out[:N_KNOWN], out[N_KNOWN:]
