"""Short everyday requests in two languages: plurals, spelling, units, common knowledge, comparisons, colours, sentences with a
word, summaries, short poems, advice and messages. Tables written by hand; every generator is one of mini_skills' form.
"""

import re

from mini_skills import _NAMES, ask

_PLURAL_EN = dict(x.split(":") for x in """child:children man:men woman:women foot:feet tooth:teeth goose:geese ox:oxen person:people leaf:leaves knife:knives wife:wives
life:lives wolf:wolves half:halves shelf:shelves loaf:loaves box:boxes bus:buses church:churches dish:dishes glass:glasses watch:watches city:cities baby:babies story:stories
country:countries party:parties lady:ladies day:days key:keys boy:boys toy:toys potato:potatoes tomato:tomatoes hero:heroes photo:photos piano:pianos sheep:sheep fish:fish
deer:deer book:books house:houses car:cars tree:trees cat:cats dog:dogs louse:lice cactus:cacti crisis:crises analysis:analyses phenomenon:phenomena thief:thieves roof:roofs""".split())
_PLURAL_FR = dict(x.split(":") for x in """journal:journaux animal:animaux hôpital:hôpitaux travail:travaux œil:yeux bijou:bijoux genou:genoux chou:choux caillou:cailloux
bateau:bateaux gâteau:gâteaux château:châteaux oiseau:oiseaux jeu:jeux cheveu:cheveux feu:feux lieu:lieux bal:bals festival:festivals carnaval:carnavals clou:clous trou:trous
nez:nez prix:prix souris:souris bras:bras maison:maisons chien:chiens table:tables livre:livres canal:canaux général:généraux tribunal:tribunaux métal:métaux vitrail:vitraux
eau:eaux niveau:niveaux couteau:couteaux manteau:manteaux tableau:tableaux neveu:neveux pneu:pneus voix:voix croix:croix temps:temps corps:corps fils:fils""".split())
_UNITS = [("seconds", "a minute", 60, "secondes", "une minute"), ("minutes", "two hours", 120, "minutes", "deux heures"), ("hours", "a day", 24, "heures", "un jour"), ("hours", "two days", 48, "heures", "deux jours"),
          ("days", "a leap year", 366, "jours", "une année bissextile"), ("days", "January", 31, "jours", "janvier"), ("days", "April", 30, "jours", "avril"), ("days", "a year", 365, "jours", "une année"),
          ("months", "a year", 12, "mois", "un an"), ("weeks", "a year", 52, "semaines", "un an"), ("days", "two weeks", 14, "jours", "deux semaines"), ("years", "a century", 100, "ans", "un siècle"),
          ("years", "a decade", 10, "ans", "une décennie"), ("metres", "a kilometre", 1000, "mètres", "un kilomètre"), ("centimetres", "a metre", 100, "centimètres", "un mètre"),
          ("grams", "a kilogram", 1000, "grammes", "un kilogramme"), ("millilitres", "a litre", 1000, "millilitres", "un litre"), ("eggs", "a dozen", 12, "œufs", "une douzaine"),
          ("letters", "the English alphabet", 26, "lettres", "l'alphabet français"), ("cents", "a euro", 100, "centimes", "un euro"), ("legs", "a spider's body", 8, "pattes", "le corps d'une araignée"),
          ("seconds", "an hour", 3600, "secondes", "une heure"), ("degrees", "a right angle", 90, "degrés", "un angle droit"), ("sides", "a triangle", 3, "côtés", "un triangle"), ("sides", "a hexagon", 6, "côtés", "un hexagone")]
# question | answer, English then French; several wordings separated by ";".
_FACTS = """Who wrote Hamlet?;Hamlet was written by whom? | Hamlet was written by William Shakespeare. | Qui a écrit Hamlet ? | Hamlet a été écrit par William Shakespeare.
Who wrote Macbeth? | William Shakespeare wrote Macbeth. | Qui a écrit Macbeth ? | William Shakespeare a écrit Macbeth.
Who wrote Les Misérables? | Les Misérables was written by Victor Hugo. | Qui a écrit Les Misérables ? | Victor Hugo a écrit Les Misérables.
Who wrote Don Quixote? | Don Quixote was written by Miguel de Cervantes. | Qui a écrit Don Quichotte ? | Miguel de Cervantes a écrit Don Quichotte.
Who wrote The Little Prince? | Antoine de Saint-Exupéry wrote The Little Prince. | Qui a écrit Le Petit Prince ? | Antoine de Saint-Exupéry a écrit Le Petit Prince.
Who wrote Oliver Twist? | Charles Dickens wrote Oliver Twist. | Qui a écrit Oliver Twist ? | Charles Dickens a écrit Oliver Twist.
Who wrote The Odyssey? | The Odyssey is attributed to Homer. | Qui a écrit l'Odyssée ? | L'Odyssée est attribuée à Homère.
Who painted Guernica? | Pablo Picasso painted Guernica. | Qui a peint Guernica ? | Pablo Picasso a peint Guernica.
Who painted The Starry Night? | Vincent van Gogh painted The Starry Night. | Qui a peint La Nuit étoilée ? | Vincent van Gogh a peint La Nuit étoilée.
Who painted the Sistine Chapel? | Michelangelo painted its ceiling. | Qui a peint la chapelle Sixtine ? | Michel-Ange en a peint le plafond.
Who composed The Magic Flute? | Wolfgang Amadeus Mozart composed it. | Qui a composé La Flûte enchantée ? | Wolfgang Amadeus Mozart l'a composée.
Who composed the Ninth Symphony with the Ode to Joy? | Ludwig van Beethoven. | Qui a composé la symphonie avec l'Ode à la joie ? | Ludwig van Beethoven.
Who invented the telephone? | Alexander Graham Bell is credited with the telephone. | Qui a inventé le téléphone ? | On attribue le téléphone à Alexander Graham Bell.
Who invented printing with movable letters in Europe? | Johannes Gutenberg. | Qui a inventé l'imprimerie en Europe ? | Johannes Gutenberg.
Who discovered penicillin? | Alexander Fleming discovered penicillin in 1928. | Qui a découvert la pénicilline ? | Alexander Fleming a découvert la pénicilline en 1928.
Who discovered radium? | Marie and Pierre Curie discovered radium. | Qui a découvert le radium ? | Marie et Pierre Curie ont découvert le radium.
Who formulated the theory of relativity? | Albert Einstein. | Qui a formulé la théorie de la relativité ? | Albert Einstein.
Who was the first person on the Moon? | Neil Armstrong, in July 1969. | Qui a marché le premier sur la Lune ? | Neil Armstrong, en juillet 1969.
When did people first land on the Moon? | In July 1969. | En quelle année a-t-on marché sur la Lune ? | En 1969.
When did the Second World War end? | It ended in 1945. | Quand la Seconde Guerre mondiale s'est-elle terminée ? | Elle s'est terminée en 1945.
When did the First World War begin? | It began in 1914. | Quand la Première Guerre mondiale a-t-elle commencé ? | Elle a commencé en 1914.
When did the French Revolution begin? | It began in 1789. | Quand la Révolution française a-t-elle commencé ? | Elle a commencé en 1789.
When did the Berlin Wall fall? | It fell in November 1989. | Quand le mur de Berlin est-il tombé ? | Il est tombé en novembre 1989.
Which planet is closest to the Sun?;What is the planet nearest to the Sun? | Mercury is the planet closest to the Sun. | Quelle planète est la plus proche du Soleil ? | Mercure est la planète la plus proche du Soleil.
Which planet is called the red planet? | Mars is called the red planet. | Quelle planète appelle-t-on la planète rouge ? | Mars est appelée la planète rouge.
Which planet has bright rings? | Saturn is known for its rings; it is the second largest planet after Jupiter, the largest. | Quelle planète a de grands anneaux ? | Saturne est connue pour ses anneaux ; c'est la deuxième plus grande planète après Jupiter.
How many planets does the solar system have? | The solar system has eight planets. The largest is Jupiter, the smallest Mercury. | Combien y a-t-il de planètes dans le système solaire ? | Le système solaire compte huit planètes. La plus grande est Jupiter, la plus petite Mercure.
What is the largest ocean? | The Pacific is the largest ocean. | Quel est le plus grand océan ? | Le Pacifique est le plus grand océan.
What is the longest river in Africa? | The Nile is the longest river in Africa. | Quel est le plus long fleuve d'Afrique ? | Le Nil est le plus long fleuve d'Afrique.
What is the longest river in France? | The Loire is the longest river in France. | Quel est le plus long fleuve de France ? | La Loire est le plus long fleuve de France.
What is the highest mountain of the Alps? | Mont Blanc, at about 4,806 metres. Everest, in the Himalayas, is higher: 8,849 metres. | Quelle est la plus haute montagne des Alpes ? | Le mont Blanc, avec environ 4 806 mètres. L'Everest, dans l'Himalaya, est plus haut : 8 849 mètres.
What is the largest country? | Russia is the largest country by area. | Quel est le plus grand pays du monde ? | La Russie est le plus grand pays du monde par sa superficie.
What is the largest animal? | The blue whale is the largest animal that has ever lived. | Quel est le plus gros animal ? | La baleine bleue est le plus gros animal qui ait jamais vécu.
What is the fastest land animal? | The cheetah. | Quel est l'animal terrestre le plus rapide ? | Le guépard.
What is the tallest animal? | The giraffe is the tallest animal. | Quel est l'animal le plus grand en hauteur ? | La girafe.
How many continents are there? | There are seven continents: Africa, Antarctica, Asia, Europe, North America, Oceania and South America. | Combien y a-t-il de continents ? | On en compte souvent six ou sept, selon que l'on sépare les deux Amériques.
On which continent is Egypt? | Egypt is in Africa. | Sur quel continent se trouve l'Égypte ? | L'Égypte se trouve en Afrique.
At what temperature does water boil? | At 100 degrees Celsius at sea level. | À quelle température l'eau bout-elle ? | À 100 degrés Celsius au niveau de la mer.
At what temperature does water freeze? | At 0 degrees Celsius. | À quelle température l'eau gèle-t-elle ? | À 0 degré Celsius.
What is the chemical formula of water? | H2O: two atoms of hydrogen and one of oxygen. | Quelle est la formule chimique de l'eau ? | H2O : deux atomes d'hydrogène et un d'oxygène.
What gas do we breathe in to live? | Oxygen. | De quel gaz avons-nous besoin pour respirer ? | De l'oxygène.
What gas do plants take from the air? | Carbon dioxide. With light and water they turn it into sugar and give off oxygen; this is photosynthesis. | Quel gaz les plantes prennent-elles dans l'air ? | Le dioxyde de carbone. Avec la lumière et l'eau elles en font du sucre et rejettent de l'oxygène : c'est la photosynthèse.
What is the young of a dog called? | A puppy. | Comment appelle-t-on le petit du chien ? | Le chiot.
What is the young of a cow called? | A calf. | Comment appelle-t-on le petit de la vache ? | Le veau.
What is the young of a sheep called? | A lamb. | Comment appelle-t-on le petit de la brebis ? | L'agneau.
What is the young of a horse called? | A foal. | Comment appelle-t-on le petit de la jument ? | Le poulain.
What do bees make? | Bees make honey and wax. | Que fabriquent les abeilles ? | Les abeilles fabriquent du miel et de la cire.
What do cows eat? | Cows eat grass and hay. | Que mangent les vaches ? | Les vaches mangent de l'herbe et du foin.
What is bread made of? | Flour, water, salt and yeast. | De quoi le pain est-il fait ? | De farine, d'eau, de sel et de levure.
What is cheese made from? | From milk. | À partir de quoi fait-on le fromage ? | À partir de lait.
What is glass made from? | Mostly from sand, melted at great heat. | Avec quoi fait-on le verre ? | Surtout avec du sable, fondu à très haute température.
What is paper made from? | Mostly from wood fibres. | Avec quoi fait-on le papier ? | Surtout avec des fibres de bois.
In which direction does the sun rise? | The sun rises in the east and sets in the west. | Où le soleil se lève-t-il ? | Le soleil se lève à l'est et se couche à l'ouest.
Which season comes after winter? | Spring comes after winter. | Quelle saison vient après l'hiver ? | Le printemps vient après l'hiver.
What are the four seasons? | Spring, summer, autumn and winter. | Quelles sont les quatre saisons ? | Le printemps, l'été, l'automne et l'hiver.
What are the months of the year? | January, February, March, April, May, June, July, August, September, October, November and December. | Quels sont les mois de l'année ? | Janvier, février, mars, avril, mai, juin, juillet, août, septembre, octobre, novembre et décembre.
What are the points of the compass? | North, east, south and west. | Quels sont les points cardinaux ? | Le nord, l'est, le sud et l'ouest.
What are the primary colours of paint? | Red, yellow and blue. | Quelles sont les couleurs primaires ? | Le rouge, le jaune et le bleu.
Is a whale a fish? | No. A whale is a mammal: it breathes air and feeds its young with milk. | La baleine est-elle un poisson ? | Non. La baleine est un mammifère : elle respire de l'air et allaite ses petits.
Is a cucumber a fruit or a vegetable? | Botanically a cucumber is a fruit, because it grows from the flower and holds the seeds; in the kitchen it is used as a vegetable. | Le concombre est-il un fruit ou un légume ? | Pour la botanique c'est un fruit, car il vient de la fleur et contient les graines ; en cuisine, c'est un légume.
Is a spider an insect? | No. Insects have six legs; a spider has eight and is an arachnid. | L'araignée est-elle un insecte ? | Non. Les insectes ont six pattes ; l'araignée en a huit : c'est un arachnide.
Is the Moon a planet? | No, the Moon is a satellite: it circles the Earth. | La Lune est-elle une planète ? | Non, la Lune est un satellite : elle tourne autour de la Terre.
What language is spoken in Brazil? | Portuguese. | Quelle langue parle-t-on au Brésil ? | Le portugais.
What language is spoken in Austria? | German. | Quelle langue parle-t-on en Autriche ? | L'allemand.
What is the currency of Japan? | The yen. | Quelle est la monnaie du Japon ? | Le yen.
What is the currency of the United Kingdom? | The pound sterling. | Quelle est la monnaie du Royaume-Uni ? | La livre sterling.
What is a computer program? | A list of instructions that a computer carries out one after the other. | Qu'est-ce qu'un programme informatique ? | Une liste d'instructions qu'un ordinateur exécute l'une après l'autre.
What is a language model? | A program that has learned from many texts which word is likely to come next, and writes answers in that way. | Qu'est-ce qu'un modèle de langue ? | Un programme qui a appris, dans beaucoup de textes, quel mot vient probablement ensuite, et qui écrit ainsi des réponses.
What is a neuron in a computer's network? | A small unit that adds up its inputs, each with a weight, and passes the result on. Many such units in layers form a network that learns from examples. | Qu'est-ce qu'un neurone artificiel ? | Une petite unité qui additionne ses entrées, chacune avec un poids, et transmet le résultat. Beaucoup d'unités en couches forment un réseau qui apprend par l'exemple.
Why do we have seasons? | Because the Earth's axis is tilted: in summer our half leans towards the Sun, in winter away from it. | Pourquoi y a-t-il des saisons ? | Parce que l'axe de la Terre est incliné : en été, notre hémisphère penche vers le Soleil, en hiver il s'en éloigne.
Why is the sea salty? | Rivers carry dissolved salts from rocks to the sea; the water evaporates and the salt stays. | Pourquoi la mer est-elle salée ? | Les rivières y apportent les sels des roches ; l'eau s'évapore et le sel reste.
Why are sunsets red? | In the evening the light crosses more air; blue light is scattered away and the red light remains. | Pourquoi le coucher de soleil est-il rouge ? | Le soir, la lumière traverse plus d'air ; le bleu est diffusé et il reste le rouge.
Why do ships float? | Because a ship pushes aside water that weighs as much as the ship does. | Pourquoi les bateaux flottent-ils ? | Parce qu'un bateau déplace une eau qui pèse autant que lui."""
_FACTS = [[p.strip() for p in line.split(" | ")] for line in _FACTS.split("\n")]
_COLOURS = [("snow", "white", "la neige", "blanche"), ("coal", "black", "le charbon", "noir"), ("grass", "green", "l'herbe", "verte"), ("a ripe lemon", "yellow", "un citron mûr", "jaune"), ("a carrot", "orange", "une carotte", "orange"),
            ("blood", "red", "le sang", "rouge"), ("the sky on a clear day", "blue", "le ciel par beau temps", "bleu"), ("a ripe strawberry", "red", "une fraise mûre", "rouge"), ("milk", "white", "le lait", "blanc"), ("chocolate", "brown", "le chocolat", "brun"),
            ("an aubergine", "purple", "une aubergine", "violette"), ("a sunflower", "yellow", "un tournesol", "jaune"), ("an elephant", "grey", "un éléphant", "gris"), ("spinach", "green", "les épinards", "verts"), ("a tomato", "red", "une tomate", "rouge")]
_HELLO = [("thank you", "merci", "gracias", "danke", "grazie"), ("hello", "bonjour", "hola", "hallo", "ciao"), ("good night", "bonne nuit", "buenas noches", "gute Nacht", "buona notte"), ("please", "s'il vous plaît", "por favor", "bitte", "per favore"),
          ("yes", "oui", "sí", "ja", "sì"), ("no", "non", "no", "nein", "no"), ("goodbye", "au revoir", "adiós", "auf Wiedersehen", "arrivederci"), ("water", "eau", "agua", "Wasser", "acqua"), ("bread", "pain", "pan", "Brot", "pane"), ("house", "maison", "casa", "Haus", "casa"),
          ("cat", "chat", "gato", "Katze", "gatto"), ("dog", "chien", "perro", "Hund", "cane"), ("friend", "ami", "amigo", "Freund", "amico"), ("good evening", "bonsoir", "buenas tardes", "guten Abend", "buona sera"), ("day", "jour", "día", "Tag", "giorno")]
_TONGUES = [("French", "français"), ("Spanish", "espagnol"), ("German", "allemand"), ("Italian", "italien")]
_TYPO = {"en": "receive:recieve believe:beleive friend:freind because:becuase which:wich their:thier until:untill tomorrow:tommorow really:realy beautiful:beautifull separate:seperate definitely:definately necessary:neccessary business:buisness weather:wether school:shcool people:poeple letter:leter house:huose before:befor about:abuot there:ther would:woud write:wirte message:mesage yesterday:yesteday".split(),
         "fr": "beaucoup:baucoup toujours:toujour aujourd'hui:aujourdhui parce:parceque maison:méson femme:famme temps:tan longtemps:lontemps comme:come aller:allé être:etre même:meme après:apres déjà:deja jamais:jamai mangé:manger homme:home quelque:quelques chose:choze merci:mercie grande:grende avec:avéc porte:prote ville:vile petit:petis".split()}
_WORDS = [("rain", "The rain drums on the roof all night.", "pluie", "La pluie tombe sur le toit toute la nuit."), ("moon", "The moon stood bright above the hill.", "lune", "La lune brillait au-dessus de la colline."), ("bread", "She bought fresh bread at the bakery.", "pain", "Elle achète du pain frais à la boulangerie."),
          ("river", "The river runs slowly through the town.", "rivière", "La rivière traverse lentement la ville."), ("window", "He opened the window to let in some air.", "fenêtre", "Il ouvre la fenêtre pour laisser entrer l'air."), ("train", "The train leaves at eight o'clock.", "train", "Le train part à huit heures."),
          ("garden", "Roses grow in my grandmother's garden.", "jardin", "Des roses poussent dans le jardin de ma grand-mère."), ("winter", "In winter the lake freezes over.", "hiver", "En hiver, le lac gèle."), ("music", "Music makes the long drive shorter.", "musique", "La musique rend le trajet plus court."),
          ("school", "The children walk to school together.", "école", "Les enfants vont à l'école ensemble."), ("star", "One star after another appeared in the sky.", "étoile", "Une étoile après l'autre apparaît dans le ciel."), ("sea", "The sea was calm and grey this morning.", "mer", "La mer était calme et grise ce matin.")]
_POEM_EN = {"the moon": "silver light the sleeping town|a lantern over quiet fields|the tide climbs slowly to its call", "winter": "white roofs under a pale sun|the pond holds its breath in ice|footprints lead to the warm door", "rain": "grey drops run along the glass|the garden drinks and shines|a puddle keeps a piece of sky",
            "spring": "a green tip opens in the hedge|blackbirds sing before the light|the wind smells of wet earth", "the forest": "tall trunks hold up the evening|moss swallows every step|an owl asks its old question", "the night": "one window after another goes dark|the clock walks on alone|stars keep the long watch",
            "a river": "water carries the bridge's shadow|stones are round from listening|it leaves and never is gone", "summer": "warm dust on the long road|cicadas fill the noon|children shout at the lake"}
_POEM_FR = {"la lune": "La lune veille sur les toits|et verse son lait sur le chemin|la nuit marche à pas de chat", "l'hiver": "Le givre écrit sur la fenêtre|le jardin dort sous un drap blanc|on entend craquer le silence", "la pluie": "La pluie compte les tuiles une à une|le jardin boit sans se presser|une flaque garde un coin de ciel",
            "le printemps": "Une feuille ouvre ses doigts verts|le merle chante avant le jour|le vent sent la terre mouillée", "la forêt": "Les grands troncs portent le soir|la mousse avale tous les pas|un hibou pose sa question", "la nuit": "Une fenêtre après l'autre s'éteint|l'horloge marche toute seule|les étoiles montent la garde",
            "la rivière": "L'eau emporte l'ombre du pont|les galets ont l'air d'écouter|elle s'en va et reste là", "l'amitié": "Une main sur l'épaule le soir|deux tasses fument sur la table|on rit sans savoir pourquoi"}
_ADVICE = [("save money", "économiser de l'argent", "Write down what you spend for a month.|Cook at home and take lunch with you.|Put a fixed sum aside on the day you are paid.|Cancel what you do not use.", "Notez vos dépenses pendant un mois.|Cuisinez à la maison et emportez votre déjeuner.|Mettez une somme de côté dès que vous êtes payé.|Résiliez ce qui ne sert pas."),
           ("learn a language", "apprendre une langue", "Practise a quarter of an hour every day.|Learn whole sentences instead of single words.|Listen to songs and films in the language.|Speak from the first week, with mistakes.", "Travaillez un quart d'heure chaque jour.|Apprenez des phrases entières plutôt que des mots.|Écoutez des chansons et des films dans la langue.|Parlez dès la première semaine, même avec des fautes."),
           ("study better", "mieux étudier", "Plan short sessions with breaks.|Put the phone in another room.|Explain the matter to somebody in your own words.|Test yourself without the book.", "Prévoyez de courtes séances avec des pauses.|Laissez le téléphone dans une autre pièce.|Expliquez la matière avec vos propres mots.|Interrogez-vous sans le livre."),
           ("stay fit", "rester en forme", "Walk half an hour each day.|Take the stairs.|Drink water and eat vegetables.|Go to bed at regular hours.", "Marchez une demi-heure par jour.|Prenez l'escalier.|Buvez de l'eau et mangez des légumes.|Couchez-vous à des heures régulières."),
           ("write a good letter", "écrire une bonne lettre", "Say in the first sentence what you want.|Use short sentences.|Be polite and concrete.|Read it aloud before you send it.", "Dites dès la première phrase ce que vous voulez.|Faites des phrases courtes.|Restez poli et concret.|Relisez-la à voix haute avant de l'envoyer."),
           ("feel less nervous before an exam", "être moins nerveux avant un examen", "Prepare early and in small portions.|Sleep well the night before.|Breathe out slowly a few times.|Begin with a question that you know.", "Préparez-vous tôt et par petites parties.|Dormez bien la veille.|Expirez lentement plusieurs fois.|Commencez par une question que vous connaissez."),
           ("keep plants alive", "garder ses plantes en vie", "Give them light but not burning sun.|Water only if the soil is dry.|Let the water drain away.|Turn the pot now and then.", "Donnez-leur de la lumière sans soleil brûlant.|Arrosez seulement si la terre est sèche.|Laissez l'eau s'écouler.|Tournez le pot de temps en temps.")]
_QUOTE = {"en": ["\"{x}\"", "{x}", "'{x}'"], "fr": ["« {x} »", "{x}", "\"{x}\""]}


def _q(rng, lang, x):
    return rng.choice(_QUOTE[lang]).format(x=x)


def plural(rng, T):
    fr = rng.random() < 0.5
    one, many = rng.choice(list((_PLURAL_FR if fr else _PLURAL_EN).items()))
    if rng.random() < 0.3:                           # the other way round
        q = rng.choice(["Quel est le singulier de {x} ?", "Mets au singulier : {x}"]) if fr else rng.choice(["What is the singular of {x}?", "Singular of {x}?"])
        return ask(q.format(x=_q(rng, "fr" if fr else "en", many)), f"Le singulier de « {many} » est « {one} »." if fr else f"The singular of \"{many}\" is \"{one}\".")
    q = rng.choice(["Quel est le pluriel de {x} ?", "Mets au pluriel : {x}", "Comment écrit-on {x} au pluriel ?"]) if fr else rng.choice(["What is the plural of {x}?", "Plural of {x}?", "How do you write {x} in the plural?"])
    return ask(q.format(x=_q(rng, "fr" if fr else "en", one)), f"Le pluriel de « {one} » est « {many} »." if fr else f"The plural of \"{one}\" is \"{many}\".")


def spelling(rng, T):
    """A real sentence with letters lost, doubled or exchanged; the answer is the sentence."""
    lang = rng.choice(["en", "fr"])
    good = (rng.choice(T.long)[lang == "fr"]).strip()
    words = good.split()
    for _ in range(rng.randint(1, 2)):
        i = rng.randrange(len(words))
        w = words[i]
        known = [t.split(":") for t in _TYPO[lang] if t.split(":")[0] == w.lower()]
        if known:
            words[i] = known[0][1]
        elif len(w) > 4:
            at = rng.randint(1, len(w) - 3)
            words[i] = rng.choice([w[:at] + w[at + 1:], w[:at] + w[at] + w[at:], w[:at] + w[at + 1] + w[at] + w[at + 2:]])
    q = rng.choice(["Correct the spelling: {x}", "Fix the mistakes: {x}", "Please correct this sentence: {x}"] if lang == "en" else ["Corrige l'orthographe : {x}", "Corrige les fautes : {x}", "Peux-tu corriger cette phrase : {x}"])
    return ask(q.format(x=_q(rng, lang, " ".join(words))), good)


def common(rng, T):
    fr, k = rng.random() < 0.5, rng.randrange(10)
    if k < 5:
        row = rng.choice(_FACTS)
        return ask(rng.choice(row[2 * fr].split(";")), row[2 * fr + 1])
    if k < 7:
        n, box, x, nf, boxf = rng.choice(_UNITS)
        if fr:
            return ask(rng.choice([f"Combien de {nf} y a-t-il dans {boxf} ?", f"Combien y a-t-il de {nf} dans {boxf} ?", f"{boxf[0].upper() + boxf[1:]}, c'est combien de {nf} ?"]), f"Il y a {x} {nf} dans {boxf}.")
        return ask(rng.choice([f"How many {n} are there in {box}?", f"How many {n} does {box} have?", f"How many {n} are in {box}?"]), f"There are {x} {n} in {box}.")
    if k == 7:
        a, b, c, d = rng.choice(_COLOURS)
        return ask(f"De quelle couleur {'sont' if c.startswith('les') else 'est'} {c} ?", f"{c[0].upper() + c[1:]} {'sont' if c.startswith('les') else 'est'} {d}.") if fr else ask(rng.choice([f"What colour is {a}?", f"Which colour does {a} have?"]), f"{a[0].upper() + a[1:]} is {b}.")
    if k == 8:
        row, i = rng.choice(_HELLO), rng.randint(1, 3) + 1
        if fr:
            return ask(rng.choice(["Comment dit-on {x} en {l} ?", "Traduis {x} en {l}."]).format(x=_q(rng, "fr", row[1]), l=_TONGUES[i - 1][1]), f"En {_TONGUES[i - 1][1]}, « {row[1]} » se dit « {row[i]} ».")
        i = rng.randint(1, 4)
        return ask(rng.choice(["How do you say {x} in {l}?", "Translate {x} into {l}.", "{x} in {l}?"]).format(x=_q(rng, "en", row[0]), l=_TONGUES[i - 1][0]), f"\"{row[0]}\" is \"{row[i]}\" in {_TONGUES[i - 1][0]}.")
    a, b = rng.sample(range(1, 60), 2)
    unit = rng.choice([("kilograms", "kilos"), ("metres", "mètres"), ("litres", "litres"), ("euros", "euros")])
    x, y = rng.choice([("stones", "pierres"), ("wood", "bois"), ("rope", "corde"), ("water", "eau")]), max(a, b)
    return ask(f"Lequel est le plus grand : {a} {unit[1]} ou {b} {unit[1]} ?", f"{y} {unit[1]} est plus que {min(a, b)} {unit[1]}.") if fr else ask(f"Which is more: {a} {unit[0]} of {x[0]} or {b} {unit[0]} of {x[0]}?", f"{y} {unit[0]} is more than {min(a, b)} {unit[0]}.")


def sentence(rng, T):
    e, es, f, fs = rng.choice(_WORDS)
    if rng.random() < 0.5:
        return ask(rng.choice(["Fais une phrase avec le mot {x}.", "Écris une phrase avec {x}.", "Utilise {x} dans une phrase."]).format(x=_q(rng, "fr", f)), fs)
    return ask(rng.choice(["Write a sentence with the word {x}.", "Make a sentence with {x}.", "Use {x} in a sentence."]).format(x=_q(rng, "en", e)), es)


def summary(rng, T):
    """A passage in short is its first sentence: crude, and the only summary that a rule can vouch for."""
    lang = rng.choice(["en", "fr"])
    for _ in range(20):
        p = re.split(r"(?<=[.!?])\s+", rng.choice(T.passages[lang]))
        if 30 < len(p[0]) < 200:
            break
    q = ["Summarise in one sentence:\n\n{t}", "Give a short summary: {t}"] if lang == "en" else ["Résume en une phrase :\n\n{t}", "Résume ce texte : {t}"]
    return ask(rng.choice(q).format(t=" ".join(p[:4])), p[0])


def poem(rng, T):
    fr = rng.random() < 0.5
    topic, lines = rng.choice(list((_POEM_FR if fr else _POEM_EN).items()))
    q = rng.choice(["Écris un petit poème sur {t}.", "Fais-moi un poème sur {t}.", "Un poème sur {t}, s'il te plaît."]) if fr else rng.choice(["Write a short poem about {t}.", "A haiku about {t}, please.", "Write me a few lines of poetry about {t}."])
    return ask(q.format(t=topic), lines.replace("|", "\n") if fr else "\n".join(x[0].upper() + x[1:] for x in lines.split("|")))


def advice(rng, T):
    e, f, tips, conseils = rng.choice(_ADVICE)
    n = rng.randint(2, 4)
    count = [("two", "deux"), ("three", "trois"), ("four", "quatre")][n - 2]
    if rng.random() < 0.5:
        return ask(rng.choice([f"Donne-moi {count[1]} idées pour {f}.", f"{count[1].capitalize()} conseils pour {f} ?", f"Comment {f} ? Donne {n} conseils."]), "\n".join(f"{i + 1}. {x}" for i, x in enumerate(rng.sample(conseils.split("|"), n))))
    return ask(rng.choice([f"Give me {count[0]} tips to {e}.", f"{count[0].capitalize()} ideas for how to {e}?", f"How can I {e}? Give {n} tips."]), "\n".join(f"{i + 1}. {x}" for i, x in enumerate(rng.sample(tips.split("|"), n))))


def wish(rng, T):
    n, fr = rng.choice(_NAMES), rng.random() < 0.5
    who = rng.choice([("my brother", "mon frère"), ("my sister", "ma sœur"), ("a friend", "un ami"), ("my father", "mon père"), ("my neighbour", "ma voisine"), ("my grandmother", "ma grand-mère")])
    what = rng.choice([("a happy birthday", "un joyeux anniversaire", "Happy birthday! I wish you health, joy and a wonderful year. I am thinking of you with love.", "Joyeux anniversaire ! Je te souhaite la santé, de la joie et une belle année. Je t'embrasse fort."),
                       ("a good journey", "un bon voyage", "Have a good journey! Take many pictures and come back safely.", "Bon voyage ! Prends beaucoup de photos et reviens-nous en forme."),
                       ("a quick recovery", "un bon rétablissement", "Get well soon! Rest, and tell me if I can do anything for you.", "Bon rétablissement ! Repose-toi, et dis-moi si je peux t'aider."),
                       ("good luck", "bonne chance", "Good luck! You are well prepared, and I will keep my fingers crossed.", "Bonne chance ! Tu es bien préparé, et je croise les doigts.")])
    if fr:
        return ask(rng.choice(["Écris un message à {w} pour souhaiter {x}.", "Aide-moi à souhaiter {x} à {w}."]).format(w=who[1], x=what[1]), f"{what[3]}\n\n{n}")
    return ask(rng.choice(["Write a message to {w} to wish {x}.", "Help me wish {w} {x}."]).format(w=who[0], x=what[0]), f"{what[2]}\n\n{n}")


SKILLS = {"plural": (plural, 2), "spelling": (spelling, 4), "common": (common, 8), "sentence": (sentence, 1), "summary": (summary, 2), "poem": (poem, 1), "advice": (advice, 1), "wish": (wish, 1)}
