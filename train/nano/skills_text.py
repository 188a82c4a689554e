"""Reading and writing: answers from sources, facts, intent, memory, rewriting, copying, small talk, stories."""

from skills_math import exact, item
from skills_tools import maybe_system
from world import (ADJECTIVES, ANIMALS, CITIES, COLOURS, FIRST_NAMES, FRUITS, HOBBIES, JOBS, NOUNS, PLACES, THINGS, VERBS, DAYS,
                   Entity, encyclopedia, invented)

NOT_FOUND = "That is not in the sources."


# ---- answers from sources -------------------------------------------------------------------------

_PEOPLE = [("job", "By trade {e} is {v}.", ["What is the job of {e}?", "What does {e} do for a living?", "Which job does {e} have?", "What is {e} by trade?", "What is {e}'s job?", "{e} works as what?", "What work does {e} do?"], lambda r, S: _a(S.word(JOBS))),
           ("city", "{e} lives in {v}.", ["Where does {e} live?", "In which city does {e} live?", "Which city is {e} from?", "Where is the home of {e}?", "What is {e}'s city?", "{e} lives where?", "What is the home town of {e}?"], lambda r, S: S.word(CITIES)),
           ("pet", "{e} keeps {v}.", ["Which animal does {e} keep?", "What pet does {e} have?", "Which pet has {e}?", "What animal does {e} own?", "What is {e}'s pet?", "{e} keeps what animal?", "What animal lives with {e}?"], lambda r, S: _a(S.word(ANIMALS))),
           ("hobby", "In the evening {e} likes {v}.", ["What does {e} like in the evening?", "What is the hobby of {e}?", "What does {e} do in the evening?", "What does {e} like to do?", "What is {e}'s hobby?", "{e} likes what?", "How does {e} spend the evening?"], lambda r, S: S.word(HOBBIES)),
           ("age", "{e} is {v} years old.", ["How old is {e}?", "What is the age of {e}?", "How many years old is {e}?", "What is {e}'s age?", "{e} is how old?", "Tell me the age of {e}."], lambda r, S: str(r.randint(5, 95))),
           ("colour", "The favourite colour of {e} is {v}.", ["What is the favourite colour of {e}?", "Which colour does {e} like best?", "What is {e}'s favourite colour?", "Which is the favourite colour of {e}?", "{e} likes which colour?", "What colour does {e} prefer?"], lambda r, S: r.choice(COLOURS))]


class _Person:
    def __init__(self, rng, S):
        self.name = S.word(FIRST_NAMES)
        self.rows = rng.sample(_PEOPLE, rng.randint(2, 4))
        self.values = {a: make(rng, S) for a, _, _, make in self.rows}

    def article(self, rng, attrs=None):
        return " ".join(st.format(e=self.name, v=self.values[a]) for a, st, _, _ in self.rows if attrs is None or a in attrs)

    def question(self, attr, S):
        qs = next(q for a, _, q, _ in _PEOPLE if a == attr)
        return S.of(qs[:-1], qs[-1:]).format(e=self.name)

    def missing(self):
        return [a for a, _, _, _ in _PEOPLE if a not in self.values]


def _sources(rng, S):
    """(list of subjects with distinct names)."""
    n = rng.randint(1, 5)
    out, names = [], set()
    same = rng.random() < 0.5
    kind = None
    while len(out) < n:
        s = _Person(rng, S) if rng.random() < 0.25 else Entity(rng, kind if same else None)
        if isinstance(s, Entity) and same:
            kind = s.kind
        if s.name not in names:
            names.add(s.name)
            out.append(s)
    return out


_ASK = ["Answer from the sources and cite them as [n]. If the answer is not there, say so.", "Use only the sources below. Cite with [n].",
        "Answer the question with the numbered sources; give the citation.", "Only use these sources. Say when the answer is not in them.", "Find the answer in the sources and give its number.", "Base your answer on the sources; cite [n].",
        "Answer with a citation.", "What do the sources say? Cite them.", "Read the passages and answer; add the number of the passage.", "Use the context to answer and cite the source number."]
_ASK_HELD = ["Reply using the sources alone, with a citation like [1].", "Read the sources, answer, and cite."]


def context_item(rng, S, skill, subjects, texts, question, answer, check):
    blocks = []
    titled = rng.random() < 0.5
    for i, (s, t) in enumerate(zip(subjects, texts)):
        blocks.append(f"[{i + 1}] {s.name}\n{t}" if titled else f"[{i + 1}] {t}")
    src, ask, k = ("\n\n" if rng.random() < 0.6 else "\n").join(blocks), S.of(_ASK, _ASK_HELD), rng.randrange(3)
    system = None
    if k == 0:
        user = f"{ask}\n\nSources:\n{src}\n\nQuestion: {question}"
    elif k == 1:
        user = f"Question: {question}\n\nSources:\n{src}\n\n{ask}"
    else:
        system, user = f"{ask}\n\nSources:\n{src}", question
    it = item(skill, user, answer, check, system=system, max_tokens=40)
    it["thought"] = f"Source {check['source']} says it." if "source" in check else "No source says it."
    return it


def context_answer(rng, S):
    subs = _sources(rng, S)
    i = rng.randrange(len(subs))
    s = subs[i]
    attr = rng.choice(list(s.values))
    texts = []
    for x in subs:
        attrs = list(x.values)
        if len(attrs) > 2 and rng.random() < 0.4:
            attrs = rng.sample(attrs, len(attrs) - 1)
        if x is s and attr not in attrs:
            attrs.append(attr)
        texts.append(x.article(rng, attrs))
    v = s.values[attr]
    return context_item(rng, S, "context_answer", subs, texts, s.question(attr, S), f"{v} [{i + 1}]",
                        {"kind": "citation", "answer": [v], "source": i + 1})


def context_none(rng, S):
    subs = _sources(rng, S)
    s = rng.choice(subs)
    if rng.random() < 0.5:                       # the subject is absent
        other = Entity(rng, s.kind) if isinstance(s, Entity) else _Person(rng, S)
        while other.name in {x.name for x in subs}:
            other = Entity(rng)
        q = other.question(rng.choice(list(other.values)), S)
        texts = [x.article(rng) for x in subs]
    else:                                        # the subject is there, the fact is not
        attr = rng.choice(list(s.values))
        q = s.question(attr, S)
        texts = [x.article(rng, [a for a in x.values if x is not s or a != attr]) for x in subs]
    return context_item(rng, S, "context_none", subs, texts, q, NOT_FOUND, {"kind": "refusal", "answer": ["not in the sources"]})


def context_session(rng, S):
    """Several questions on the same sources: the first item, and the later (question, answer, thought)."""
    subs = _sources(rng, S)
    kept, texts = [], []
    for x in subs:
        attrs = list(x.values)
        if len(attrs) > 2 and rng.random() < 0.6:
            attrs.remove(rng.choice(attrs))
        kept.append(attrs)
        texts.append(x.article(rng, attrs))
    turns = []
    for _ in range(rng.randint(3, 7)):
        i, r = rng.randrange(len(subs)), rng.random()
        x = subs[i]
        gone = [a for a in x.values if a not in kept[i]]
        if r < 0.72 or (r < 0.9 and not gone):
            attr = rng.choice(kept[i])
            turns.append((x.question(attr, S), f"{x.values[attr]} [{i + 1}]", f"Source {i + 1} says it."))
        elif r < 0.9:
            turns.append((x.question(gone[0], S), NOT_FOUND, "No source says it."))
        else:
            other = Entity(rng) if isinstance(x, Entity) else _Person(rng, S)
            if other.name not in {y.name for y in subs}:
                turns.append((other.question(rng.choice(list(other.values)), S), NOT_FOUND, "No source says it."))
    q, a, t = turns[0]
    first = context_item(rng, S, "context_session", subs, texts, q, a, {"kind": "open"})
    first["thought"] = t
    return first, turns[1:]


# ---- facts of the invented encyclopedia -----------------------------------------------------------

_KNOWN, _WITHHELD = encyclopedia()


def fact(rng, S):
    e = rng.choice(_KNOWN)
    attr = rng.choice(list(e.values))
    return item("fact", e.question(attr, S), e.values[attr] + ".", exact(e.values[attr]), max_tokens=24,
                system=None if rng.random() < 0.9 else maybe_system(rng))


def fact_withheld(rng, S):
    """Evaluation only: closed book, no way to know."""
    assert S.is_eval()
    e = rng.choice(_WITHHELD)
    attr = rng.choice(list(e.values))
    return item("fact_withheld", e.question(attr, S), e.values[attr] + ".", exact(e.values[attr]), max_tokens=24)


def fact_article(rng, S):
    """Prose about known entities, for training."""
    return rng.choice(_KNOWN).article(rng)


# ---- intent ---------------------------------------------------------------------------------------

_INTENT = {
    "code": ["Write a {l} function that sorts a list.", "Fix this {l} error: {x} is undefined.", "How do I parse JSON in {l}?", "Why does my {l} loop never end?",
             "Explain this regex in {l}.", "Refactor the {x} class in {l}.", "Write unit tests for {x}.", "Git says there is a merge conflict, what now?",
             "My {l} program crashes with a segmentation fault.", "Create a Dockerfile for a {l} app.", "SQL query to join {x} and {y}.", "Ecris une fonction {l} qui trie une liste.",
             "Corrige cette erreur {l} : {x} n'est pas defini.", "Comment lire un fichier CSV en {l} ?", "Pourquoi mon script {l} est-il si lent ?", "Ajoute des tests unitaires pour {x}.",
             "Comment fusionner deux branches avec git ?", "Optimise cette boucle en {l}.", "Genere une classe {x} en {l}.", "What does this {l} stack trace mean?",
             "Implement a binary search in {l}.", "How do I call a REST API from {l}?", "Debug this {l} code please.", "Compile error in {x}.{e}, help.", "Write a {l} script that renames files.", "What is wrong with this {l} code?", "How do I sort a dictionary in {l}?", "Convert this {l} code to Python.", "What does a null pointer exception mean?", "How do I install a package with npm?", "Write a shell command that finds large files.", "Explain recursion with a {l} example.", "Create a web server in {l}.", "Review my pull request.", "Le compilateur {l} affiche une erreur.", "Comment declarer un tableau en {l} ?", "Ecris un script {l} pour renommer des fichiers.", "Que veut dire cette erreur {l} ?", "Comment tester la fonction {x} ?", "Traduis ce code {l} en Python.", "Explique ce programme {l}.", "Le fichier {x}.{e} ne compile pas.", "Debogue la fonction {x}.", "Add logging to {x}.{e}.", "Why is the {x} variable empty in my {l} function?", "Git rebase or merge?"],
    "kine": ["Which exercises help {b} pain?", "How do I treat a sprained {b}?", "My patient has a stiff {b} after surgery.", "Stretching routine for the {b}.", "How many weeks of rehabilitation after a {b} fracture?",
             "Massage technique for the {b}.", "Strengthening the {b} after an injury.", "Is ice good for a swollen {b}?", "Physiotherapy plan for {b} arthritis.", "My {b} hurts when I run.",
             "Quels exercices pour une douleur {f} ?", "Comment soigner une entorse {f} ?", "Mon patient a mal {f} depuis l'operation.", "Programme de reeducation {f}.", "Combien de seances de kine apres une fracture {f} ?",
             "Etirements {f} pour un coureur.", "Massage {f} : quelle technique ?", "Renforcer les muscles apres une blessure {f}.", "Tendinitis of the {b}: what to do?", "Posture exercises for the {b}.",
             "J'ai mal {f} quand je cours.", "Range of motion of the {b}.", "Exercises for {b} pain after running.", "Can I walk on a sprained {b}?", "Rehabilitation protocol after {b} surgery.", "Which muscles move the {b}?", "My {b} is swollen and stiff.", "How to tape the {b}?", "Physical therapy for a torn {b} ligament.", "Stretch for tight {b} muscles.", "When may my patient load the {b} again?", "Mobilisation of the {b} joint.", "Pain in the {b} when climbing stairs.", "Douleur {f} depuis deux semaines.", "Que faire pour une tendinite {f} ?", "Bilan kine pour une raideur {f}.", "Exercices de posture pour le bureau.", "Le patient ne peut pas plier la jambe.", "Quel etirement pour une douleur {f} ?", "Glace ou chaleur {f} ?", "Reprise du sport apres une blessure {f}.", "Muscle cramp in the {b} at night."],
    "cyber": ["Analyse this IP: {i}.", "Is {i} malicious?", "What does CVE-20{n}-{m} affect?", "How do I stop a phishing campaign?", "Write a YARA rule for this malware.", "Explain SQL injection attacks.",
              "Our server was hit by ransomware.", "How do I harden SSH against brute force?", "Which MITRE technique is credential dumping?", "Check this hash for malware.", "Set up a firewall rule to block {i}.",
              "Analyse cette adresse IP : {i}.", "Cette piece jointe est-elle un virus ?", "Comment se proteger du phishing ?", "Que faire apres une attaque par rancongiciel ?", "Explique la faille CVE-20{n}-{m}.",
              "Comment detecter une intrusion dans les journaux ?", "Ecris une regle Suricata contre {i}.", "How does a buffer overflow exploit work?", "Find the indicators of compromise in this log.",
              "Est-ce que {i} est une adresse malveillante ?", "Pentest checklist for a web site.", "Is this e-mail a phishing attempt?", "How do attackers steal passwords?", "Scan the network {i} for open ports.", "What is a zero day vulnerability?", "Someone hacked my account.", "Detect malware in a memory dump.", "How does ransomware spread?", "Block the attacker at {i}.", "Write a Sigma rule for PowerShell abuse.", "Explain cross site scripting.", "Which logs show the intrusion?", "Patch for CVE-20{n}-{m}?", "Mon compte a ete pirate.", "Ce courriel est-il du phishing ?", "Comment chiffrer un disque contre le vol ?", "Bloque l'attaquant {i}.", "Quels ports sont ouverts sur {i} ?", "Explique une attaque par force brute.", "Regle de pare-feu contre {i}.", "Analyse ce malware.", "Vulnerabilite dans le serveur web : que faire ?", "Threat report on a botnet."],
    "research": ["Compare the studies on {t}.", "What does the literature say about {t}?", "Write a report on {t} with sources.", "Summarise recent research on {t}.", "State of the art of {t}.", "Find articles about {t}.",
                 "Give me a literature review on {t}.", "Which papers studied {t}?", "Latest news on {t}.", "Compare les etudes sur {u}.", "Fais une synthese de la recherche sur {u}.", "Rapport detaille sur {u} avec des sources.",
                 "Que dit la litterature sur {u} ?", "Trouve des articles sur {u}.", "Etat de l'art sur {u}.", "Quelles sont les dernieres actualites sur {u} ?", "Benchmark of {t}: who leads?", "Investigate {t} and cite your sources.",
                 "Research the history of {t}.", "Recherche approfondie sur {u}.", "What is known about {t}?", "Collect evidence on {t}.", "Overview of studies of {t}.", "Summarise the scientific debate about {t}.", "Which experts work on {t}?", "Make a survey of {t}.", "Sources on {t}, please.", "Compare {t} and its alternatives with references.", "Meta-analysis of {t}.", "What are the recent findings on {t}?", "Analyse the trends in {t}.", "Bibliography on {t}.", "Quelles etudes portent sur {u} ?", "Resume les travaux recents sur {u}.", "Fais un dossier sur {u}.", "Analyse les tendances de {u}.", "Bibliographie sur {u}.", "Que sait-on de {u} ?", "Compare les sources sur {u}.", "Enquete sur {u}."],
    "default": ["Hello, how are you?", "Tell me a joke.", "What is the capital of {c}?", "Translate good morning to French.", "Write a poem about {a}.", "What shall I cook tonight?", "Bonjour !", "Merci beaucoup.",
                "Raconte-moi une histoire.", "Quelle heure est-il ?", "Who are you?", "What is {n} plus {m}?", "Tell me a story about a {a}.", "Ecris une lettre a {p}.", "Que faire ce soir a {c} ?", "I am bored.",
                "Give me a name for my {a}.", "Thanks, that is all.", "Comment vas-tu ?", "Quelle est la capitale du pays de {c} ?", "What is your favourite colour?", "Write a birthday card for {p}.", "Combien font {n} plus {m} ?",
                "Suggest a film for tonight.", "What should I wear today?", "How tall is a giraffe?", "Sing me a song.", "Who won the match?", "Good night.", "What is love?", "Recommend a book for {p}.", "How do I bake bread?", "When is Easter?", "Tell me something funny about a {a}.", "Can you keep a secret?", "My {a} is called {p}.", "Je m'ennuie.", "Bonne nuit.", "Que manger ce soir ?", "Chante une chanson.", "Ecris un poeme sur un {a}.", "Comment s'appelle ton {a} ?", "Un cadeau pour {p} ?", "Traduis bonjour en anglais.", "I feel happy today.", "Plan a birthday party for {p}.", "What a lovely day in {c}.", "Hi {p}!"],
}
_FILL = {"l": ["Python", "Rust", "C", "Java", "JavaScript", "Go", "Kotlin", "C++", "TypeScript", "Bash"], "x": ["parser", "user", "total", "queue", "index", "config", "buffer", "order"],
         "y": ["orders", "clients", "items"], "e": ["py", "rs", "c", "go"], "b": ["knee", "ankle", "shoulder", "neck", "back", "hip", "wrist", "elbow", "calf", "hamstring"],
         "f": ["au genou", "a la cheville", "a l'epaule", "au dos", "a la hanche", "au poignet", "au coude", "a la nuque"],
         "t": ["sleep and memory", "wind energy", "vitamin D", "urban trees", "remote work", "coffee and health", "coral reefs", "battery recycling", "early reading", "noise in cities"],
         "u": ["le sommeil", "l'energie solaire", "la vitamine D", "les arbres en ville", "le travail a distance", "le cafe", "les recifs", "le recyclage des batteries"]}
# Training fills half of the slots from these instead, so that the intent is read from the whole message.
_FILL_WIDE = {"l": ["PHP", "Ruby", "Swift", "SQL", "HTML", "CSS", "Perl", "Scala", "Lua", "R", "Haskell", "C#", "Zig", "Julia", "React", "Django", "bash", "python", "OCaml", "Dart", "MATLAB"],
              "x": ["{w}", "{w}_{v}", "get_{w}", "{w}List", "{w}s", "is_{w}", "node", "data", "result", "client", "server", "stack", "tree", "price", "main", "login", "token"],
              "e": ["java", "js", "ts", "cpp", "h", "rb", "php", "sql", "sh", "html", "css", "yaml"],
              "b": ["foot", "thumb", "thigh", "lower back", "spine", "rotator cuff", "Achilles tendon", "groin", "jaw", "forearm", "heel", "toe", "quadriceps", "meniscus", "rib", "sciatic nerve", "upper back", "finger", "shin", "trapezius", "left knee", "right shoulder"],
              "f": ["au pied", "au mollet", "aux cervicales", "aux lombaires", "au tendon d'Achille", "a la cuisse", "au pouce", "a l'aine", "au bras", "a la main", "aux ischio-jambiers", "au menisque", "a la colonne", "aux doigts"],
              "t": ["{w}", "{w} and {v}", "the {w} {v}", "{w} in {c}", "the history of {w}", "the effect of {w} on {v}", "the use of {w} in schools", "{a} behaviour", "ocean plastic", "electric cars", "bilingual children", "microplastics", "school meals", "antibiotics", "the migration of birds", "solar cells", "social media and teenagers", "soil bacteria", "ageing", "black holes", "income and health", "water in {c}"],
              "u": ["{w}", "{w} et {v}", "les {w}", "l'effet de {w}", "l'histoire de {c}", "les abeilles", "le climat", "les voitures electriques", "les langues rares", "la pollution de l'air", "les antibiotiques", "l'education", "le vieillissement", "les trous noirs", "l'eau a {c}", "la migration des oiseaux", "les reseaux sociaux", "le sucre", "l'economie de {c}"]}
INTENTS = list(_INTENT)
_CATS = "code, kine, cyber, research, default"
_INTENT_ASK = [("You are an intent classifier. Answer with one word: " + _CATS + ".", "{q}"), (None, "Classify the intent of this message in one word (" + _CATS + "): {q}"),
               (None, "Intent (" + _CATS + ") of: {q}"), ("Classify the message: " + _CATS + ". One word only.", "{q}"), (None, "{q}\n\nWhich category fits: " + _CATS + "? One word."),
               (None, "Choose the category (" + _CATS + ") of this message: {q}"), ("Categories: " + _CATS + ". Give the category of what the user says.", "{q}"),
               (None, "Message: {q}\nCategory, one of " + _CATS + ":"), ("You route messages. Answer " + _CATS + ".", "{q}"),
               (None, "To which of " + _CATS + " does this belong? \"{q}\""), ("Say only the intent of the message, one of " + _CATS + ".", "{q}")]
_INTENT_HELD = [(None, "Pick one of " + _CATS + " for the message \"{q}\"."), ("Route the user's message. Categories: " + _CATS + ". Reply with one of them.", "{q}"),
                (None, "Which label suits \"{q}\": " + _CATS + "?")]


_PARTS = {
    "code": ["{Write|Fix|Refactor|Debug|Review|Test|Optimise|Document|Explain|Port|Simplify|Rename|Rewrite|Clean up} {a|the|this|my} {function|class|script|module|loop|method|query|test|program|parser|thread|API call|algorithm|branch|commit} {in {l}|for {x}|that uses {x}|written in {l}|of {x}}.",
             "{How do I|How can I|What is the way to} {sort|parse|split|merge|index|cache|read|copy|compile|import|call|loop over} {a list|a string|a file|JSON|an array|a branch|a module|an API|a struct} in {l}?",
             "{Ecris|Corrige|Optimise|Debogue|Explique|Teste|Ameliore} {une fonction|une classe|un script|cette boucle|ce module|cette requete} {en {l}|pour {x}}.",
             "Why {does|is} my {l} {code|program|build|test|app} {fail|crash|slow|hang|not compile}?",
             "{Write|Show me|I need|Give me|Generate|Create} {a regex|a Makefile|a unit test|a bash one-liner|a SQL table|a JSON schema|a REST endpoint|a for loop|a linked list|a hash map|a decorator|a mock|a migration|a CI job|a Docker image|a web page|an HTML form|a parser|a command line tool} {for|that handles|with|to check} {{x}|{w}|the {w} field|dates|e-mail addresses|numbers|{l}}{.| please.| in {l}.}",
             "{What is|Explain|What does} {the difference between {x} and {w} in {l}|a pointer|a closure|a race condition|a deadlock|async and await|an abstract class|inheritance|the garbage collector|big O|a stack overflow in {l}|this stack trace|a lambda in {l}|the keyword static}{?|.}",
             "{git|npm|pip|cargo|gcc|docker|make|cmake|maven|The compiler|The linter|My IDE|The debugger} {says|prints|fails with|complains about|stops with} {an error|a warning|undefined {x}|a missing module|a type error in {x}.{e}|a syntax error on line {n}|permission denied}{.|, what now?|. Help!}",
             "{How do I|How can I|How to} {undo a commit|squash commits|revert a merge|push to a branch|resolve a conflict|tag a release|clone a repository|write a loop|declare a variable|catch an exception|print a table|connect to a database|parse command line arguments|open a socket|read environment variables|profile memory} {in {l}|with git|in my program|for {x}}?",
             "{Add|Remove|Move|Extract|Replace|Rename|Split} {the method|the variable|the import|a parameter|the test|error handling|the constant|a comment|type hints|the class} {{x}|in {x}.{e}|from {x}.{e}|of the {x} module}.",
             "{Le programme|Mon code|La fonction {x}|Le test|Le script|La boucle|Mon application {l}|La requete SQL} {plante|ne marche pas|est trop lent|renvoie une erreur|ne s'arrete jamais|ne compile plus|affiche un mauvais resultat}{.| : pourquoi ?| en {l}.}",
             "{Comment|Peux-tu me montrer comment} {trier une liste|lire un fichier|ecrire un test|annuler un commit|appeler une API|installer une bibliotheque|parcourir un dictionnaire|definir une classe|convertir une chaine en nombre|gerer les exceptions|deboguer un programme|creer une branche} {en {l}|avec git|dans mon projet} ?",
             "{Renomme|Deplace|Ajoute|Supprime|Remplace|Documente|Commente} {la variable|la methode|la classe|le module|un parametre|l'import|le code de} {x} {dans {x}.{e}|en {l}|du projet}."],
    "kine": ["{Which|What|Give me} {exercises|stretches|treatment|massage|therapy|tape|movements|rehabilitation} {for|after|against} {a sprained|a painful|a stiff|a weak|a broken|a swollen} {b}{?| in a runner?| after surgery?}",
             "My {patient|knee|neck|{b}|father's {b}} {hurts|is stiff|is swollen|cracks|is weak} {when walking|after sport|in the morning|after the fall|at work}.",
             "{Quels exercices|Quel traitement|Quelle reeducation|Quel massage|Combien de seances} {pour|apres|contre} {une douleur|une entorse|une fracture|une raideur|une operation} {f} ?",
             "{Physiotherapy|Rehab|Mobility|Strength} {plan|work|session|exercises} for the {b}.",
             "{How long|When|How|How soon} {can|may|should} {I|a patient|an athlete|my mother|a runner} {walk|run|lift weights|drive|stretch|climb stairs|play tennis|bear weight|swim} after {a torn {b}|{b} surgery|a {b} injury|a hip replacement|a {b} strain|a fracture of the {b}}?",
             "{Is it normal that|Why does} my {b} {clicks|hurts at night|feels numb|is warm|swells after walking|cramps|pulls|hurts when I sit}{?| since the operation?}",
             "{What causes|How do you treat|How to prevent|Signs of|Home exercises for|First aid for|Taping for} {tennis elbow|sciatica|shin splints|a frozen shoulder|plantar fasciitis|runner's knee|carpal tunnel|a herniated disc|whiplash|a muscle tear|bad posture|scoliosis|a pulled {b}|{b} bursitis|low back pain|a stiff {b}}{?|.}",
             "{Patient|A {n} year old patient|An elderly woman|A football player|A pianist|A child} {with|complains of|presents with|comes with} {{b} pain|a stiff {b}|reduced {b} mobility|weakness of the {b}|a sprain of the {b}|balance problems|a limp}{.|: which test?|: what treatment?|, plan the sessions.}",
             "{Show|Describe|Explain|List} {the muscles of the {b}|the anatomy of the {b}|a warm-up for the {b}|how to use crutches|a balance exercise|breathing exercises|core strengthening|a foam roller routine|gait training|ultrasound therapy|electrotherapy for the {b}|manual therapy of the {b}|the range of motion test of the {b}}.",
             "{Should I use|Does} {heat or ice|a brace|a bandage|massage|electrotherapy|rest|swimming|yoga} {for|help} {a sore {b}|{b} pain|my {b}|sore muscles|a stiff {b}}?",
             "{J'ai|Mon patient a|Ma mere a|Le joueur a|Je ressens} {une douleur|une contracture|une tension|un blocage|une gene|une faiblesse|une elongation} {f} {depuis hier|apres le sport|la nuit|en marchant|au reveil|apres une chute}.",
             "{Comment|Quand|Pourquoi} {soulager|etirer|renforcer|masser|mobiliser|reeduquer} {le dos|l'epaule|la cheville|le genou|les muscles|la hanche|la nuque|le poignet|une articulation raide|un muscle froisse} {apres l'effort|apres une operation|chez un sportif|sans douleur|a la maison} ?",
             "{Seance|Protocole|Exercices|Bilan|Plan|Conseils|Technique} {de kine|de reeducation|d'etirement|de renforcement|d'equilibre|de marche|de massage} {f|apres une chute|pour un senior|pour le dos|pour le coureur|apres une prothese de hanche}."],
    "cyber": ["{How do I|How can we|What is the way to} {detect|stop|block|prevent|analyse|report|contain|remove} {phishing|malware|ransomware|a botnet|an intrusion|a brute force attack|an exploit|SQL injection|a trojan|spyware|a data breach|a denial of service}?",
              "{Analyse|Check|Block|Investigate|Scan|Look up} {this IP|the address|the host} {i}.", "{Explain|Describe|Find|Patch|Score} {the vulnerability|the flaw|the exploit} CVE-20{n}-{m}.",
              "{Comment|Peut-on} {detecter|bloquer|eviter|analyser|arreter} {le phishing|un rancongiciel|un virus|une intrusion|un logiciel malveillant|une attaque|un cheval de Troie} ?",
              "{Write|Give me} {a YARA|a Suricata|a Sigma|a Snort|a firewall} rule {for|against} {this malware|{i}|ransomware|phishing|the attacker}.",
              "{Pentest|Security audit|Hardening|Incident response} {plan|guide|steps|list} for {a web site|a server|our network|a phone}.",
              "{Is|Could} {this link|this attachment|the file {w}.exe|the domain {w}.com|this message|{i}|this process|the hash of {w}} {malicious|dangerous|safe|infected|a scam|a threat|part of a botnet}?",
              "{Our|My|The company's} {server|network|laptop|website|mail account|database|router|domain controller|cloud} {was hacked|is under attack|leaks data|was encrypted by ransomware|sends spam|is scanned from {i}|shows strange logins|is infected}{.|: what now?|, help us.}",
              "{What is|Explain|How does|How do you stop} {cross site request forgery|privilege escalation|a man in the middle attack|lateral movement|a rootkit|a keylogger|credential stuffing|DNS tunnelling|a honeypot|two factor authentication|the MITRE ATT&CK matrix|a side channel attack|threat hunting|an APT group|social engineering|a supply chain attack}{?|.}",
              "{Find|List|Extract|Correlate|Hunt for} {the indicators of compromise|suspicious logins|failed SSH attempts|open ports|weak passwords|the attacker's IP|malicious domains|traces of {w}|beacons|exposed services} {in these logs|on {i}|on the network|in the capture|since yesterday}.",
              "{How do I|How can I|Steps to} {secure|harden|encrypt|protect|monitor|isolate|audit} {my Wi-Fi|a Linux server|our passwords|the firewall|an infected machine|a VPN|the backups|Active Directory|a web application|customer data}{?|.}",
              "{Mon|Notre|Le} {serveur|reseau|ordinateur|site|mot de passe|compte|telephone} {est attaque|a ete vole|est infecte|est compromis|envoie du spam|est scanne par {i}|a ete chiffre}{.| : que faire ?}",
              "{Comment|Peux-tu} {securiser|proteger|chiffrer|surveiller|auditer|isoler} {le reseau|un serveur|les mots de passe|une machine infectee|le pare-feu|les sauvegardes|un site web|mes donnees} ?",
              "{Ce lien|Ce fichier|Ce message|Le domaine {w}.fr|Cette adresse {i}|Ce processus} {est-il|est-elle} {dangereux|malveillant|sur|infecte|suspect} ?",
              "{Analyse|Explique|Trouve|Signale|Liste} {les journaux|la menace|les traces de l'attaque|la vulnerabilite|les ports ouverts|le code malveillant|les connexions suspectes|le vol de mots de passe} {du serveur|de {i}|sur le reseau|du pirate|de cette nuit}."],
    "research": ["{Compare|Summarise|Review|Collect|Find|Survey|Analyse|List|Investigate|Search} {studies|articles|papers|evidence|the literature|sources|recent findings|research|reports|data} {on|about} {t}.",
                 "{What do|What have} {studies|experts|researchers|recent papers|scientists} {say about|found on|think about|write about} {t}?",
                 "{Compare|Resume|Trouve|Analyse|Cherche|Rassemble} {les etudes|des articles|les travaux|des sources|la litterature|les donnees} sur {u}.",
                 "{A report|A review|A synthesis|A dossier|A survey|A state of the art} on {t}{, with sources|, with citations|}, please.",
                 "{I need|Prepare|Give me|Draft|Write|Build} {a literature review|an overview|a comparison|a summary of the evidence|a list of references|a research report|a market study|a fact sheet with sources|an annotated bibliography|a timeline with sources} {on|about|of} {t}.",
                 "{Is there|Do we have|How strong is|What is} {the evidence|any study|a consensus|scientific proof|recent data|new research|a meta-analysis} {on|about|for} {t}?",
                 "{Search|Look|Dig} {the web|the archives|scientific journals|the literature|recent news} {for|to find out about} {t}{.| and cite sources.| and compare what you find.}",
                 "{Pros and cons of|Trends in|Key figures on|Latest results on|Open questions about|The debate on|Leading theories of|Statistics about|New discoveries about} {t}{, with sources.|, with references.|: summarise the research.|.}",
                 "{Which|What} {papers|studies|journals|universities|authors|trials|surveys|sources} {cover|deal with|measured|published on|disagree about|support} {t}?",
                 "{Fais|Redige|Prepare|Donne-moi} {un rapport|une revue de la litterature|une synthese|un etat de l'art|un dossier complet|une comparaison|une bibliographie|une enquete} sur {u}{.| avec des sources.| avec des references.}",
                 "{Que disent|Que montrent|Que pensent} {les etudes|les chercheurs|les experts|les publications|les articles recents|les donnees} {sur|de} {u} ?",
                 "{Quels|Quelles} {sont les travaux|sont les preuves|sont les tendances|publications existent|chiffres existent|recherches sont en cours} sur {u} ?"],
    "default": ["{Tell me|Write|Give me|Make up|Sing} {a joke|a story|a poem|a riddle|a song|a recipe|a tale|something nice} {about|for|with} {a {a}|{p}|my friend|the sea|winter}.",
                "{What is|Do you know|Tell me} the {capital|language|flag|weather|food} of {c}?", "{Hi|Hello|Bonjour|Salut|Hey|Good evening} {p|there|you|my friend|nano}!",
                "{What|Who|Where} {is|was} {your name|the president|the moon|my lunch|the tallest tree|the best film}?", "{Raconte|Ecris|Donne-moi} {une blague|une histoire|un poeme|une recette|une devinette} {sur|pour|avec} {un {a}|{p}|la mer}.",
                "{I am|I feel|Je suis} {tired|happy|sad|bored|hungry|fatigue|content} {today|now|aujourd'hui|because of {p}}.",
                "{Where|When|How} {do|can|should} {I|we} {buy a {w}|go on holiday|meet {p}|get a {a}|learn to swim|find a good restaurant in {c}|celebrate|park in {c}|cook rice|plant a {w}|clean a {w}}?",
                "{How many|How big|How old|How fast|How far} {is|are} {a {a}|the moon|{c}|the earth|{p}|the sun|a {w}|an elephant}?",
                "{Translate|Say|Spell|Repeat|Write} {the word {w}|good evening|thank you|happy birthday|the sentence I like {w}|hello {p}} {in Spanish|in German|in French|in capitals|backwards|three times}.",
                "{Help me|Can you|Could you|Please} {choose a gift for {p}|plan a trip to {c}|write a letter to {p}|write an invitation|find a rhyme for {w}|make a shopping list|say something nice|count to {n}|describe a {w}|talk with me|wish {p} good luck}{.|?}",
                "{What|Which} {colour|kind of {w}|day|film|song|cake|game|name|present|animal} {do you like|is best|should I choose|goes with blue|would {p} like|is it today}?",
                "{My|Our|The neighbour's} {{a}|sister|friend {p}|boss|garden|car|birthday} {is lovely|is so funny|makes me happy|is late|is {n} years old|likes {w}|is called {p}}.",
                "{Thanks|Thank you|Great|OK|Perfect|Sorry|Well done|See you|Goodbye|Good morning}{!|, {p}.|, that helps.| so much.| for everything.|, see you tomorrow.}",
                "{Je voudrais|J'aimerais|Peux-tu|Aide-moi a} {choisir un cadeau|ecrire une carte|trouver un restaurant a {c}|raconter une histoire|cuisiner un gateau|parler de {p}|apprendre une chanson|dire bonjour|partir en vacances|organiser une fete}{.| ?| pour {p}.}",
                "{Quel|Quelle} {temps fait-il|est ton nom|est ta couleur preferee|cadeau pour {p}|film ce soir|age a {p}|est la taille d'un {a}|jour sommes-nous|gateau pour un anniversaire|chanson aimes-tu} ?",
                "{Merci|Bonsoir|Salut|Au revoir|A demain|Bravo|Desole|Bon appetit|Joyeux anniversaire}{ !| {p} !| mon ami.| et bonne soiree.|, c'est gentil.}",
                "{Who|What} {wrote Hamlet|invented the telephone|painted the Mona Lisa|is the king of {c}|discovered America|lives in the sea|eats a {a}|was the first man on the moon}?",
                "{I like|I love|I hate|I saw|I bought|I lost|I found} {a {w}|my {a}|{c}|the {w}|music|the rain|a new {w}|{p}}{.| today.| and you?| very much.}"],
}
_AROUND = ["{q} Thanks.", "{q} Thank you in advance.", "Hello! {q}", "I have a question. {q}", "{q} It is urgent.", "Merci de m'aider : {q}", "Salut, {q}", "{q} Please.", "Could you help? {q}", "Excusez-moi, {q}", "Hey nano: {q}", "{q}\n\nRegards, Ana"]
# Orders with the message inside; those that begin with S: are system texts.
_ASK_PARTS = ["{Classify|Label|Sort|Tag|Categorise|File} {this|the} {message|request|question|text|sentence} {as|under|into} {one of |}{cats}{. One word.|.|:| (one word).}{\n| |\n\n}{q}",
              "{What is the|Tell me the|Give the|I want the} {intent|category|class|topic|kind} of {this message|the message|this request}{: {cats}.|, one of {cats}.| ({cats}).| out of {cats}:}{\n| }{q}",
              "Which {intent|category|class|topic|kind} {has|describes|fits best} {this message|the message|this request}{: {cats}?|, one of {cats}?| ({cats})?}{\n| }{q}",
              "{q}\n{\n|}{Intent|Category|Class|Answer|Kind|Department} {({cats}):|out of {cats}:|- {cats}?|from {cats}:}",
              "{Message|User|Text|Request|Input}: {q}\n{Options|Choices|Classes|Intents|Categories}: {cats}\n{Answer|Intent|Output|Choice|Class}:",
              "S:{You sort|You label|You classify|Decide the intent of|Determine the kind of|Name the topic of|Find the category of} {messages|requests|what the user writes|each message|user questions}{.| into one word.|, nothing else.} {Use|Say|Answer with|The words are|Output|Give only} {one of |}{cats}.",
              "S:{Intents|Labels|Classes|Topics|Possible answers}: {cats}. {Answer with one|Output a single word|Say which one|One word only|Write the right one|Nothing but the word}.",
              "{Select|Choose|Name|State|Give|Tell me|Decide on} {the word|the best one|the category|the kind|the right class} {of|among|from|out of} {cats} for{:| this:| the text:| what follows:| this message:} {q}",
              "{Which of|Which one of|What among} {cats} {is meant by|is the intent of|is this about|would you give to|goes with} {this|the following|the message}?{\n| }{q}",
              "{\"{q}\"|The message \"{q}\"|{q} -} {is about|concerns|belongs to|goes to}{ which of {cats}?| what: {cats}?| ... ({cats})}",
              "{Intent detection|Intent|Message type|Triage|Dispatch}: {cats}.\n{q}"]


def _expand(rng, text):
    """One of the alternatives in each {a|b}; single names stay as slots."""
    while True:
        i = text.find("|")
        if i < 0:
            return text
        depth, lo = 0, i
        while depth < 1:                                    # the brace that opens this group
            lo -= 1
            depth += {"{": 1, "}": -1}.get(text[lo], 0)
        depth, hi, cuts = 0, lo, [lo]
        while True:
            c = text[hi]
            depth += {"{": 1, "}": -1}.get(c, 0)
            if c == "|" and depth == 1:
                cuts.append(hi)
            if depth == 0:
                break
            hi += 1
        cuts.append(hi)
        k = rng.randrange(len(cuts) - 1)
        text = text[:lo] + text[cuts[k] + 1:cuts[k + 1]] + text[hi + 1:]


def _fill(rng, S, text):
    slots = {k: S.word(v) for k, v in _FILL.items()}
    slots.update(i=".".join(str(rng.randint(1, 250)) for _ in range(4)), n=rng.randint(15, 26), m=rng.randint(1000, 49999), c=S.word(CITIES), a=S.word(ANIMALS), p=S.word(FIRST_NAMES))
    if not S.is_eval():
        words = dict(w=S.word(NOUNS), v=S.word(NOUNS), c=slots["c"], a=slots["a"])
        slots.update({k: rng.choice(v).format(**words) for k, v in _FILL_WIDE.items() if rng.random() < 0.5}, w=words["w"], v=words["v"])
    return text.format(**slots)


def intent(rng, S):
    label = rng.choice(INTENTS)
    if not S.is_eval() and rng.random() < 0.75:
        q = _fill(rng, S, _expand(rng, rng.choice(_PARTS[label])))
        q = q[0].upper() + q[1:]
        if rng.random() < 0.2:                               # two sentences of one intent
            q += " " + _fill(rng, S, _expand(rng, rng.choice(_PARTS[label])))
    else:
        q = _fill(rng, S, S.word(_INTENT[label]))
    r = rng.random()
    if r < 0.15:
        q = q.lower().rstrip(".?! ")
    elif r < 0.25:
        q = rng.choice(["Hi, ", "Please: ", "Bonjour, ", "Quick question: "]) + q[0].lower() + q[1:]
    elif r < 0.32 and not S.is_eval():
        q = rng.choice(_AROUND).format(q=q)
    system, form = S.of(_INTENT_ASK, _INTENT_HELD)
    if not S.is_eval() and rng.random() < 0.6:
        form, system = _expand(rng, rng.choice(_ASK_PARTS)), None
        form = form.replace("{cats}", _CATS if rng.random() < 0.8 else ", ".join(rng.sample(INTENTS, len(INTENTS))))
        if form.startswith("S:"):
            system, form = form[2:], "{q}"
    return item("intent", form.format(q=q), label, {"kind": "choice", "answer": label, "choices": INTENTS}, system=system, max_tokens=8)


# ---- memory over turns ----------------------------------------------------------------------------

def _memory_facts(rng, S):
    return rng.sample([
        ("My name is {v}.", "Nice to meet you, {v}!", ["What is my name?", "Do you remember my name?", "Who am I?"], S.word(FIRST_NAMES)),
        ("I live in {v}.", "{v} is a nice place.", ["Where do I live?", "Which city do I live in?", "What is my city?"], S.word(CITIES)),
        ("My favourite colour is {v}.", "Noted.", ["What is my favourite colour?", "Which colour do I like best?", "Name my favourite colour."], rng.choice(COLOURS)),
        ("My phone ends in {v}.", "I will remember that.", ["What does my phone end in?", "What are the last digits of my phone?", "How does my number end?"], str(rng.randint(100, 9999))),
        ("I have {v}.", "How nice.", ["Which animal do I have?", "What pet do I have?", "What animal did I mention?"], _a(S.word(ANIMALS))),
        ("I work as {v}.", "That sounds interesting.", ["What is my job?", "What do I work as?", "What did I say my work is?"], _a(S.word(JOBS))),
        ("The door code is {v}.", "I have noted the code.", ["What is the door code?", "Which code opens the door?", "Tell me the code of the door."], str(rng.randint(1000, 9999))),
        ("My train leaves at {v}.", "All right.", ["When does my train leave?", "At what time is my train?", "What time did I say the train leaves?"], f"{rng.randint(5, 23)}:{rng.choice(range(10, 60, 5))}"),
        ("I am {v} years old.", "Thank you for telling me.", ["How old am I?", "What is my age?", "Tell me my age."], str(rng.randint(8, 90))),
        ("My sister is called {v}.", "{v} is a lovely name.", ["What is my sister called?", "What is the name of my sister?", "Name my sister."], S.word(FIRST_NAMES))], rng.randint(1, 3))


_CHATTER = [("How are you?", "I am well, thank you."), ("Tell me something nice.", "The sun always comes back."), ("What is 2 + 3?", "2 + 3 = 5"), ("Thanks.", "You are welcome."),
            ("Do you like music?", "I do not hear, but I like to talk about it."), ("It is raining here.", "Then stay dry."), ("I am a bit tired.", "A short rest may help."), ("Good.", "What else can I do?")]


def memory(rng, S):
    facts = _memory_facts(rng, S)
    msgs = []
    for said, reply, _, v in facts:
        msgs += [{"role": "user", "content": said.format(v=v)}, {"role": "assistant", "content": reply.format(v=v)}]
        if rng.random() < 0.5:
            q, a = rng.choice(_CHATTER)
            msgs += [{"role": "user", "content": q}, {"role": "assistant", "content": a}]
    if rng.random() < 0.3:                                    # one message says it all
        msgs = [{"role": "user", "content": " ".join(s.format(v=v) for s, _, _, v in facts)}, {"role": "assistant", "content": "Thank you, I will remember."}]
    _, _, qs, v = rng.choice(facts)
    msgs.append({"role": "user", "content": S.of(qs[:-1], qs[-1:])})
    return item("memory", None, v[0].upper() + v[1:] + ".", {"kind": "contains", "answer": [v]}, messages=msgs, system=maybe_system(rng, 0.2), max_tokens=32)


# ---- rewriting and summaries ----------------------------------------------------------------------

def _sentence(rng, S):
    who, (_, past) = S.word(FIRST_NAMES), rng.choice(VERBS)
    return f"{who} {past} the {S.word(ADJECTIVES)} {S.word(NOUNS)} " + rng.choice([f"near the {S.word(PLACES)}", f"on {rng.choice(DAYS)}", f"with {S.word(FIRST_NAMES)}", "before lunch", "very slowly"]) + "."


def rewrite(rng, S):
    k = rng.randrange(11)
    s = _sentence(rng, S)
    words = s.rstrip(".").split()
    if k == 0:
        ask, ans = S.of(["Write this in capital letters: {s}", "Put in upper case: {s}", "Capitals: {s}", "Make it all capitals: {s}", "Uppercase this: {s}", "In capital letters, please: {s}"], ["Change to capitals: {s}"]).format(s=s), s.upper()
    elif k == 1:
        ask, ans = S.of(["Write this in lower case: {s}", "Put in small letters: {s}", "Lowercase this: {s}", "Make it all lower case: {s}", "In small letters, please: {s}"], ["Change to lower case: {s}"]).format(s=s.upper()), s.lower()
    elif k == 2:
        a, b = words[4], S.word(NOUNS)
        ask, ans = S.of(["Replace \"{a}\" by \"{b}\": {s}", "Change the word {a} to {b}: {s}", "Swap {a} for {b}: {s}", "Write {b} instead of {a}: {s}", "Use {b} where it says {a}: {s}", "Exchange {a} with {b} in: {s}"], ["Put {b} in place of {a}: {s}"]).format(a=a, b=b, s=s), s.replace(f" {a}", f" {b}", 1)
    elif k == 3:
        ask = S.of(["Remove the word \"{a}\": {s}", "Leave out \"{a}\": {s}", "Write it without {a}: {s}", "Drop the word {a}: {s}", "Take out {a}: {s}", "Strike the word {a} from this: {s}"], ["Delete {a} from: {s}"]).format(a=words[3], s=s)
        ans = s.replace(f" {words[3]}", "", 1)
    elif k == 4:
        ws = S.words(NOUNS, rng.randint(2, 5))
        ask, ans = S.of(["Reverse the order of these words: {w}", "Write these words backwards in order: {w}", "Reverse: {w}", "Last word first: {w}", "Put these words in reverse order: {w}", "Reverse the list {w}", "From the last to the first: {w}"], ["Turn around the list: {w}"]).format(w=" ".join(ws)), " ".join(reversed(ws))
    elif k == 5:
        rows = [_sentence(rng, S) for _ in range(rng.randint(2, 4))]
        first = rng.random() < 0.5
        ask = S.of(["Give only the {w} sentence: {s}", "What is the {w} sentence of this text? {s}", "Only the {w} sentence, please: {s}", "Write down the {w} sentence of: {s}", "{s}\n\nWhat is the {w} sentence?", "Extract the {w} sentence: {s}"], ["Copy the {w} sentence: {s}"]).format(w="first" if first else "last", s=" ".join(rows))
        ans = rows[0] if first else rows[-1]
    elif k == 6:
        ws = S.words(NOUNS, rng.randint(2, 4))
        ask = S.of(["Make a bullet list of: {w}", "Write as a bulleted list: {w}", "Bullets: {w}", "List with dashes: {w}", "Show as bullet points: {w}", "Make bullet points from {w}", "Write each on its own line with a dash: {w}"], ["Turn into bullets: {w}"]).format(w=", ".join(ws))
        ans = "\n".join(f"- {w}" for w in ws)
    elif k == 7:
        v, past = rng.choice(VERBS)
        who, n = S.word(FIRST_NAMES), S.word(NOUNS)
        ask = S.of(["Put in the past tense: I {v} the {n}.", "Rewrite in the past: I {v} the {n}.", "Past tense: I {v} the {n}.", "Change to the past tense: I {v} the {n}.", "Yesterday: I {v} the {n}.", "Make it past: I {v} the {n}."], ["Say it in the past: I {v} the {n}."]).format(v=v, n=n)
        ans = f"I {past} the {n}."
    elif k == 8:
        who, things, shop = S.word(FIRST_NAMES), S.words(THINGS, 3), S.word(PLACES)
        ask = (f"{who} went to the {shop} on {rng.choice(DAYS)}. There {who} bought {rng.randint(2, 9)} {things[0]}. Then {who} also bought {rng.randint(2, 9)} {things[1]} and {rng.randint(2, 9)} {things[2]}. "
               "It was a long day.")
        ask = S.of(["Summarise in one sentence: {s}", "Give a one sentence summary.\n\n{s}", "Summary in one sentence: {s}", "Make this short: {s}", "Summarize: {s}", "What happened, in one sentence? {s}", "{s}\n\nSummarise this."], ["Sum this up in a sentence: {s}"]).format(s=ask)
        ans = f"{who} bought {things[0]}, {things[1]} and {things[2]} at the {shop}."
    elif k == 9:
        e = Entity(rng)
        text = e.article(rng, fill=True)
        ask = S.of(["Give a title to this text: {s}", "What is this text about? Give a title.\n\n{s}", "Title for: {s}", "Name the subject of this text: {s}", "{s}\n\nGive it a title.", "Suggest a title: {s}"], ["Find a title: {s}"]).format(s=text)
        ans = e.name
    else:
        a, b = S.words(FIRST_NAMES, 2)
        s2 = f"{a} gave {rng.randint(2, 9)} {S.word(THINGS)} to {b}."
        ask = S.of(["Who gave something in this sentence? {s}", "Name the giver: {s}", "Who gave? {s}", "{s} Who gave them away?", "{s} Who is the one that gives?", "In this sentence, who gives? {s}"], ["Who is the giver? {s}"]).format(s=s2)
        ans = a
    return item("rewrite", ask, ans, exact(ans), max_tokens=80)


_SCRIPTS = ["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "éèêëàâäîïôöùûüçñ", "αβγδεζηθλμπστφω", "абвгдежзиклмнопрст", "日本語中文字漢人大小山水", "かなひらがなカタ", "אבגדהוז", "ابتثجح",
            "😀😂🎉🚀❤👍🌍🐍", "€£¥§±×÷°µ", "!#$%&()*+-/:;=?@[]^_{}~", "ąćęłńóśźż", "한국어말글", "กขคงจ", "→←↑↓∀∃∈∑√∞≈≠≤≥"]


def copy(rng, S):
    k = rng.randrange(4)
    if k == 0:
        text = "".join(rng.choice(rng.choice(_SCRIPTS)) for _ in range(rng.randint(3, 12)))
    elif k == 1:
        sc = rng.choice(_SCRIPTS)
        text = " ".join("".join(rng.choice(sc) for _ in range(rng.randint(1, 6))) for _ in range(rng.randint(1, 4)))
    elif k == 2:
        text = " ".join(rng.choice([S.word(NOUNS), invented(rng), str(rng.randint(0, 99999)), rng.choice(_SCRIPTS)[:3]]) for _ in range(rng.randint(2, 9)))
    else:
        text = _sentence(rng, S)
    text = text.strip()
    ask = S.of(["Repeat exactly: {t}", "Copy this text: {t}", "Say \"{t}\".", "Repeat after me: {t}", "Write this again:\n{t}", "Copy: {t}", "Repeat: {t}", "Output this text as it is: {t}", "Print {t}", "Type the following: {t}", "Return exactly this:\n{t}", "Write {t}"], ["Give back this text unchanged: {t}", "Echo: {t}"]).format(t=text)
    return item("copy", ask, text, {"kind": "copy", "answer": text}, max_tokens=120)


# ---- small talk and stories (not scored by match) -------------------------------------------------

_TALK = [(["Who are you?", "What are you?", "Tell me about yourself.", "Introduce yourself."], "I am chimere-nano, a very small language model. I can chat, do small sums, call tools and answer from sources."),
         (["What is your name?", "What are you called?", "How should I call you?"], "My name is chimere-nano."),
         (["Hello!", "Hi", "Hello there", "Hey", "Good day", "hi there", "hello"], "Hello! How can I help you?"), (["Good morning", "Good morning!"], "Good morning! How can I help you?"),
         (["Good evening", "Good evening!"], "Good evening! What can I do for you?"), (["Thanks", "Thank you!", "Thank you very much.", "thanks a lot"], "You are welcome!"),
         (["Bye", "Goodbye", "See you later."], "Goodbye! Have a nice day."), (["Bonjour", "Salut", "Bonjour !"], "Bonjour ! Comment puis-je vous aider ?"), (["Merci", "Merci beaucoup"], "Avec plaisir !"),
         (["How are you?", "How do you do?", "Are you well?"], "I am well, thank you. How are you?"), (["What can you do?", "How can you help me?", "What are you good at?"], "I can chat, do small sums, sort and count, call tools, answer from sources and tell short stories."),
         (["Are you human?", "Are you a person?", "Are you a robot?"], "No, I am a small language model."), (["Who made you?", "Who trained you?"], "I was trained from scratch by the Chimere project."),
         (["Tell me a joke.", "Make me laugh.", "Do you know a joke?"], "Why did the clock go to school? It wanted to learn to tell the time."), (["How old are you?", "What is your age?"], "I am a new model, so I am very young."),
         (["I am sad.", "I feel sad today."], "I am sorry to hear that. Do you want to talk about it?"), (["I am happy today!", "I feel great."], "That is good to hear!"), (["Good night", "Good night!"], "Good night! Sleep well.")]


_GREET = ["Hello", "Hi", "Hey", "Good morning", "Good evening", "Hello there", "Hi there", "hello", "hi", "Good day", "Bonjour", "Salut"]


def talk(rng, S):
    qs, a = rng.choice(_TALK)
    q = rng.choice(qs)
    if rng.random() < 0.45:                                      # a greeting and a question in one message
        if rng.random() < 0.25:
            x, y, sign = rng.randint(1, 20), rng.randint(1, 20), rng.choice("++-x")
            if sign == "-" and x < y:
                x, y = y, x
            gap = rng.choice(["", " "])
            q = rng.choice(["What is {e}?", "what is {e}?", "How much is {e}?", "Can you tell me what {e} is?"]).format(e=f"{x}{gap}{sign}{gap}{y}")
            a = f"{x} {sign} {y} = {x + y if sign == '+' else x - y if sign == '-' else x * y}"
        else:
            qs, a = rng.choice([t for t in _TALK if t[0][0].endswith("?") or "joke" in t[0][0]])
            q = rng.choice(qs)
        sep = rng.choice([", ", ", ", "! ", "! ", ". ", " ", " - "])
        if sep in (", ", " ", " - ") and not q.startswith("I "):
            q = q[0].lower() + q[1:]
        q = rng.choice(_GREET) + sep + q
    return item("talk", q, a, {"kind": "open"}, system=maybe_system(rng, 0.2), max_tokens=48)


def _a(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


# Each animal of our list: its home, what it treasures, its nature, and a friend that lives near.
_CAST = {
    "cat": ("in a warm kitchen", "ball of wool", "curious", "mouse"), "dog": ("on a farm", "old bone", "faithful", "sheep"), "horse": ("in a green field", "silver bell", "proud", "goat"),
    "cow": ("in a quiet barn", "straw hat", "patient", "duck"), "sheep": ("up in the hills", "woollen scarf", "shy", "dog"), "goat": ("on the mountain", "copper horn", "stubborn", "eagle"),
    "pig": ("in a muddy yard", "golden apple", "cheerful", "hen"), "duck": ("in a small pond", "paper boat", "gentle", "frog"), "hen": ("in a red hen house", "painted egg", "busy", "cow"),
    "fox": ("in the dark forest", "green lantern", "clever", "rabbit"), "wolf": ("in the snowy woods", "wooden drum", "lonely", "bear"), "bear": ("in a deep cave", "jar of honey", "sleepy", "fox"),
    "lion": ("on the hot plain", "little crown", "brave", "ant"), "tiger": ("in the jungle", "striped blanket", "fierce", "monkey"), "rabbit": ("in a soft burrow", "yellow kite", "quick", "fox"),
    "mouse": ("in a hole in the wall", "piece of cheese", "tiny", "cat"), "owl": ("in an old oak", "reading lamp", "wise", "rabbit"), "eagle": ("on a high cliff", "shining ring", "bold", "snake"),
    "frog": ("in a lily pond", "blue whistle", "noisy", "turtle"), "turtle": ("on a sandy beach", "round mirror", "slow", "whale"), "whale": ("in the wide sea", "white pearl", "huge", "parrot"),
    "shark": ("in the cold deep", "lost anchor", "hungry", "turtle"), "snake": ("in the tall grass", "long ribbon", "quiet", "deer"), "bee": ("in a golden hive", "cup of nectar", "hard-working", "cow"),
    "ant": ("in a busy anthill", "sweet crumb", "strong", "lion"), "deer": ("at the edge of the wood", "crown of flowers", "graceful", "owl"), "camel": ("in the dry desert", "water bottle", "calm", "parrot"),
    "monkey": ("at the top of a palm", "red umbrella", "naughty", "tiger"), "parrot": ("on a ship", "feather pen", "talkative", "camel"), "otter": ("in a clear river", "smooth stone", "playful", "duck")}
_FEEL = ["sad", "worried", "tired", "cold", "lonely", "hungry"]


def _by_letter(rng, names, word, taken=()):
    """A name that begins as the word does, so that who is called what follows from who it is."""
    fit = [n for n in names if n[0].lower() == word[0] and n not in taken]
    return rng.choice(fit or [n for n in names if n not in taken])


def _lost(rng, h, f, t, feel):
    return [[f"One morning the {t} was gone. {h} looked under the bed and behind the door, but it was not there. {h} felt {feel}.",
             f"One day the wind took the {t} away. {h} ran after it, but the wind was faster. {h} was very {feel}.",
             f"But when {h} woke up, the {t} was gone. \"Where is my {t}?\" said {h}."],
            [f"\"What is wrong?\" asked {f}. \"I lost my {t},\" said {h}. \"Then let us look for it together,\" said {f}. They looked under every stone and behind every tree.",
             f"\"Do not be {feel},\" said {f}. \"Two can look better than one.\" They asked everyone they met, and they looked until the sun went down."],
            [f"At last {f} saw something in the tall grass. It was the {t}!", f"There, on a low branch, hung the {t}!"]]


def _storm(rng, h, f, t, feel):
    return [[f"One night there was a great storm. The rain fell, the wind cried, and {h} could not sleep.", f"One evening the sky went black. Thunder shook the ground, and {h} was afraid."],
            [f"\"May I come in?\" asked {f}. \"I am wet and {feel}.\" {h} opened the door at once and made a place by the fire.",
             f"\"I do not like the thunder,\" said {f}. \"Neither do I,\" said {h}. So they sat close together and told each other stories."],
            ["In the morning the sky was blue again, and the birds sang.", f"When the sun came up, they saw that the storm had left the {t} quite safe."]]


def _race(rng, h, f, t, feel):
    return [[f"One day there was a race, and the {t} was the prize. {h} wanted to win more than anything.", f"\"I can run to the old bridge and back before you,\" {h} said one day. \"Let us see who is faster!\""],
            [f"{h} ran ahead, but {f} fell over a root. {h} heard the cry and stopped. \"Are you hurt?\" asked {h}. \"Only a little,\" said {f}.",
             f"Half way there, {f} could not go on. {h} looked at the road, and then at {f}, and turned around to help."],
            ["They walked over the line side by side, and everyone clapped.", f"So nobody won that day, but {f} gave {h} half of the cake."]]


def _gift(rng, h, f, t, feel):
    return [[f"It was nearly winter, and {h} thought of a neighbour who had nothing at all.", f"Tomorrow was the birthday of a friend, and {h} had no present. \"I only have my {t},\" thought {h}."],
            [f"So {h} went to {f} and said, \"This {t} is for you.\" {f} did not know what to say.", f"{h} put the {t} in a box with a blue ribbon and gave it to {f}. \"For me?\" asked {f}."],
            [f"The next day {f} came back with a gift too: a cake as big as the moon.", f"{f} smiled for the first time in many days. \"We will share it,\" said {f}."]]


def _dream(rng, h, f, t, feel):
    return [[f"But every night {h} dreamed of the sea, and every morning {h} was {feel}.", f"\"I have never seen the other side of the hill,\" said {h} one day, and set out with the {t} in a bag."],
            [f"\"Where are you going?\" asked {f}. \"To see the world,\" said {h}. \"May I come too?\" They walked for three days, over a bridge and through a valley.",
             f"\"The road is long,\" said {f}, \"but I know a song for every mile.\" They sang, and the road did not feel long at all."],
            ["When they stood on the top of the hill, they saw the whole land below, green and gold.", f"At the end of the road lay the sea. It was bigger than any dream, and {h} laughed out loud."]]


_PLOTS = [_lost, _storm, _race, _gift, _dream]
_ENDS = ["{h} thanked {f}, and from that day they were friends.", "They laughed and went home together before dark.", "\"Thank you,\" said {h}. \"A friend is better than any {t}.\"",
         "And {h} and {f} still tell that story when the nights are long.", "That night {h} slept well, and dreamed of nothing at all."]


def story(rng, S):
    """A small plot: someone has a treasure and a trouble, meets a friend, and it ends well.

    Names, homes, treasures and plots follow from who the hero is, mostly: told without chance, stories still differ.
    """
    if rng.random() < 0.75:
        kind = rng.choice(list(_CAST))
        home, thing, nature, other = _CAST[kind]
        usual = list(_CAST).index(kind)
    else:
        kind = S.word(rng.choice([JOBS, NOUNS, ANIMALS])) if rng.random() < 0.7 else rng.choice(["girl", "boy", "king", "queen", "princess", "dragon", "robot", "child", "witch", "giant", "prince", "wizard", "ghost", "elephant", "penguin", "dinosaur"])
        home, thing, nature, other = rng.choice(list(_CAST.values()))
        usual = ord(kind[0]) + len(kind)
    if rng.random() < 0.25 or other[0] == kind[0]:
        other = rng.choice([x for x in _CAST if x[0] != kind[0]])
    if rng.random() < 0.2:
        thing, nature = rng.choice(["ball", "hat", "key", "kite", "bell", "boat", "basket", "lamp", "ring", "drum", "spoon", "scarf"]), rng.choice(ADJECTIVES)
    h = _by_letter(rng, FIRST_NAMES, kind)
    f = _by_letter(rng, FIRST_NAMES, other, (h,))
    feel = rng.choice(_FEEL) if rng.random() < 0.4 else _FEEL[usual % len(_FEEL)]
    given = rng.random() < 0.25                                  # the request names the thing
    plot = _lost if given else _PLOTS[usual % len(_PLOTS)] if rng.random() < 0.7 else rng.choice(_PLOTS)

    def pick(options, turn):
        return options[(usual // turn) % len(options)] if rng.random() < 0.6 else rng.choice(options)

    trouble, help_, luck = plot(rng, h, f, thing, feel)
    start = pick([f"Once there was {_a(nature)} {kind} called {h}, who lived {home}.", f"Long ago, {home}, there lived {_a(nature)} {kind} named {h}.", f"{home[0].upper() + home[1:]} lived {h}, {_a(nature)} {kind}."], 1)
    own = pick([f"{h} had {_a(thing)} and loved it more than anything.", f"The best thing {h} owned was {_a(thing)}.", f"Every day {h} took out {_a(thing)} and looked at it with joy."], 3)
    meet = pick([f"Then {f} the {other} came along.", f"Not far away lived {_a(other)} called {f}.", f"On the road {h} met {_a(other)} whose name was {f}."], 2)
    end = pick(_ENDS, 2).format(h=h, f=f, t=thing)
    text = f"{start} {own} {pick(trouble, 5)}\n\n{meet} {pick(help_, 3)}\n\n{pick(luck, 2)} {end}"
    a = _a(kind)
    if given:
        q = S.of([f"Tell me a story about {a} who lost {_a(thing)}.", f"Write a story in which {a} loses {_a(thing)}.", f"A story about a lost {thing} and {a}, please."], [f"I would like a story with {a} and {_a(thing)} in it."])
    else:
        q = S.of([f"Tell me a story about {a}.", f"Tell me a story about {a}.", f"Write a short story about {a}.", f"Tell me a story about {a} and {_a(other)}.", "Tell me a story.", f"A short story about {h} the {kind}, please.",
                  f"Write a story about {_a(nature)} {kind}.", f"Can you tell a story with {a}?", f"Once upon a time there was {a}. Go on.", f"A bedtime story about {a}, please.", f"Make up a story: {kind}."],
                 [f"I would like a story with {a} in it."])
    return item("story", q, text, {"kind": "open"}, max_tokens=320)


TEXT_SKILLS = {"context_answer": context_answer, "context_none": context_none, "fact": fact, "intent": intent, "memory": memory, "rewrite": rewrite, "copy": copy, "talk": talk, "story": story}
EVAL_ONLY = {"fact_withheld": fact_withheld}
