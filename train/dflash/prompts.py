#!/usr/bin/env python3
"""Writes prompts.txt, the questions whose answers drafters are trained on: prompts.py > prompts.txt

Seeded: the same list each time. Every line is made here from the words below; nothing is taken from elsewhere.
"""
import random

NUMBER = 4200
ANIMALS = "fox owl bear mouse frog goose horse hare hedgehog otter raven snail tortoise wolf badger swan".split()
PLACES = "forest river mountain village harbour market mill bridge garden castle lighthouse meadow library station".split()
TRAITS = "curious brave lazy clever forgetful hungry patient proud shy cheerful stubborn kind".split()
THINGS = "lantern key map bell basket mirror kite clock violin letter coin compass blanket ladder".split()
TOPICS = ("rain", "the moon", "bread", "bees", "the sea", "volcanoes", "magnets", "sleep", "rainbows", "the heart", "paper", "glass", "salt", "tides",
          "seeds", "snow", "electricity", "sound", "shadows", "bridges", "clocks", "maps", "soap", "rivers", "trees", "fire", "stars", "bicycles")
NAMES = "Ada Ben Clara David Emma Felix Greta Henry Ida Jonas Karin Leo Mara Nils Olga Paul".split()
CITIES = "Oslo Lima Cairo Delhi Paris Quito Accra Turin Porto Kyoto".split()
JOBS = "baker sailor teacher smith gardener doctor painter miller tailor clerk".split()
FRUITS = "apples pears plums cherries lemons oranges melons figs grapes peaches".split()
VERBS = "sorts a list|counts the words of a text|reverses a string|adds two numbers|finds the largest number|reads a file line by line|removes duplicates|checks whether a number is prime|joins a list of words|computes a factorial".split("|")
LANGUAGES = ["Python", "C", "JavaScript", "Bash"]


def story(r):
    return f"Tell me a {r.choice(['short story', 'story', 'tale', 'bedtime story'])} about a {r.choice(TRAITS)} {r.choice(ANIMALS)} and a {r.choice(THINGS)} near the {r.choice(PLACES)}."


def sums(r):
    a, b, op = r.randint(2, 99), r.randint(2, 99), r.choice(["+", "-", "*"])
    return r.choice([f"What is {a} {op} {b}?", f"Compute {a} {op} {b}.", f"{a} {op} {b} = ?"])


def word_sums(r):
    n, m, k = r.randint(3, 40), r.randint(2, 20), r.choice(FRUITS)
    return f"{r.choice(NAMES)} has {n} {k} and {r.choice(['buys', 'finds', 'gets'])} {m} more. How many {k} are there now?"


def sorting(r):
    return f"Sort these numbers from {r.choice(['smallest to largest', 'largest to smallest'])}: {', '.join(str(r.randint(1, 99)) for _ in range(r.randint(3, 7)))}"


def explain(r):
    return r.choice(["Explain {} in two sentences.", "What is interesting about {}?", "How would you describe {} to a child?",
                     "Write a short paragraph about {}.", "List three facts about {}."]).format(r.choice(TOPICS))


def json_person(r):
    return f"Return JSON with the keys name, age and city for {r.choice(NAMES)}, who is {r.randint(18, 90)} and lives in {r.choice(CITIES)}."


def json_list(r):
    rows = ", ".join(f"{r.randint(1, 20)} {f}" for f in r.sample(FRUITS, r.randint(2, 4)))
    return f"Write this shopping list as a JSON array of objects with the keys item and count: {rows}."


def code(r):
    return f"Write a {r.choice(LANGUAGES)} function that {r.choice(VERBS)}."


def repeat(r):
    words = " ".join(r.sample(ANIMALS + THINGS + PLACES, r.randint(4, 9)))
    return r.choice([f"Repeat these words exactly: {words}", f"Write these words in capital letters: {words}", f"Write these words in reverse order: {words}"])


def rewrite(r):
    return f"Rewrite in the past tense: {r.choice(NAMES)} the {r.choice(JOBS)} walks to the {r.choice(PLACES)} and looks for a {r.choice(THINGS)}."


def recall(r):
    a, b = r.sample(NAMES, 2)
    return (f"{a} is a {r.choice(JOBS)} in {r.choice(CITIES)}. {b} is a {r.choice(JOBS)} in {r.choice(CITIES)}. "
            f"Where does {r.choice([a, b])} live?")


def greet(r):
    return f"{r.choice(['Hello', 'Hi', 'Good morning', 'Hey'])}, I am {r.choice(NAMES)}. {r.choice(['How are you?', 'What can you do?', 'Can you help me?', 'Who are you?'])}"


def yes_no(r):
    return f"Is a {r.choice(ANIMALS)} {r.choice(['larger', 'faster', 'heavier'])} than a {r.choice(ANIMALS)}? Answer yes or no, then say why."


def count(r):
    return f"Count from {r.randint(1, 30)} to {r.randint(31, 60)} in steps of {r.randint(1, 5)}."


KINDS = [story, story, sums, word_sums, sorting, explain, explain, json_person, json_list, code, code, repeat, rewrite, recall, greet, yes_no, count]


def prompts(number=NUMBER):
    r, seen = random.Random(20261127), {}
    while len(seen) < number: seen.setdefault(r.choice(KINDS)(r))
    return list(seen)


if __name__ == "__main__": print("\n".join(prompts()))
