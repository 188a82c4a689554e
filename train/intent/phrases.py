"""Topics and request forms from which train.py composes labelled sentences, English and French.

Written by hand, with no sentence of eval/odo. A request is a form with its slot filled by a topic.
"""

TOPICS = {
    ("code", "en"): """a for loop|a while loop|a Python script|a bash script|a SQL query|a join|an index on a table|a hash map|a linked list
a binary search tree|a stack|a recursive function|a decorator|a generator|a class|an interface|inheritance|a pointer|a null pointer exception
a segmentation fault|a memory leak|a race condition|a mutex|a thread pool|a goroutine|a channel in Go|async code|a promise in JavaScript
a React component|a CSS grid|an HTML form|a REST endpoint|a JSON parser|a regular expression|a unit test|a mock object|a test fixture
a merge conflict|a git rebase|a pull request|a Dockerfile|a Kubernetes deployment|a Makefile|a CMake project|a compiler error|a linker error
a syntax error|an import error|a type error|a stack trace|a traceback|an off by one error|an array index out of bounds|a variable|a constant
a lambda|a closure|a template in C++|a macro|a struct in C|an enum in Rust|the borrow checker|a lifetime|a trait|a package|an npm module
a virtual environment|a requirements file|a pip install|a CSV reader|a web scraper|a command line tool|a parser|a lexer|an interpreter
a sorting algorithm|quicksort|dijkstra's algorithm|dynamic programming|big O notation|a cache|an LRU cache|a message queue|a microservice
a database migration|a transaction|a foreign key|an ORM|Django views|a Flask app|a Spring bean|a Java stream|a Kotlin coroutine|a Swift view
a PHP form handler|a Ruby gem|an R data frame|pandas groupby|a numpy array|a PyTorch model|a CUDA kernel|a shader|a game loop|a websocket
a login page in React|pagination of an API|a date parser|string formatting|file reading|a log file parser|a config file loader|the debugger
this function|my code|this program|the build|the loop body|my code base|our library|this class|the source file|a shell one-liner|a cron script""",
    ("code", "fr"): """une boucle for|une boucle while|un script Python|un script bash|une requête SQL|une jointure|un index sur une table|une table de hachage
une liste chaînée|un arbre binaire|une pile|une file|une fonction récursive|un décorateur|une classe|une interface|l'héritage|un pointeur
une exception|une erreur de compilation|une fuite de mémoire|un verrou|un fil d'exécution|du code asynchrone|une promesse en JavaScript
un composant React|une grille CSS|un formulaire HTML|une API REST|un analyseur JSON|une expression régulière|un test unitaire|un bouchon de test
un conflit de fusion|un commit git|une branche git|un Dockerfile|un déploiement Kubernetes|un Makefile|un projet CMake|une erreur de syntaxe
une trace d'appels|un dépassement de tableau|une variable|une constante|une fermeture|un modèle en C++|une macro|une structure en C|un module
un paquet npm|un environnement virtuel|une lecture de fichier CSV|un outil en ligne de commande|un interpréteur|un compilateur
un algorithme de tri|le tri rapide|la programmation dynamique|la complexité d'un algorithme|un cache|une file de messages|un microservice
une migration de base de données|une transaction|une clé étrangère|une vue Django|une application Flask|un flux Java|une coroutine Kotlin
un formulaire PHP|un tableau numpy|un modèle PyTorch|une boucle de jeu|une websocket|la pagination d'une API|un analyseur de dates
le formatage de chaînes|la lecture d'un fichier|un fichier de configuration|le débogueur|cette fonction|mon code|ce programme|ma base de code
notre bibliothèque|cette classe|le fichier source|un tableau en C|un dictionnaire Python|une chaîne de caractères|un entier non signé
un booléen en Java|le code retour d'une commande|l'indentation en Python|les accolades|un point-virgule manquant|une méthode statique""",
    ("cyber", "en"): """a phishing e-mail|ransomware|malware|a computer virus|a worm|a trojan|spyware|a keylogger|a rootkit|a botnet|a DDoS attack
SQL injection|cross-site scripting|CSRF|a buffer overflow exploit|a zero-day|a CVE|a vulnerability scan|a penetration test|a port scan
a firewall rule|an intrusion detection system|a SIEM alert|an EDR alert|suspicious network traffic|beaconing|command and control
lateral movement|privilege escalation|credential stuffing|a brute force attack|a password leak|password managers|two-factor authentication
multi-factor authentication|a security token|single sign-on|a VPN|TLS certificates|encryption at rest|public key cryptography|a stolen laptop
a hacked account|a compromised server|a data breach|data exfiltration|an insider threat|social engineering|a fake invoice|a scam message
identity theft|a suspicious attachment|a malicious macro|a dropper|obfuscated code from an attacker|a phishing site|DNS tunnelling
ARP spoofing|a man-in-the-middle attack|a rogue access point|wifi security|zero trust|network segmentation|a DMZ|an incident response plan
a forensic image|log analysis after an intrusion|indicators of compromise|threat intelligence|MITRE ATT&CK|a YARA rule|a Sigma rule
a supply chain attack|a backdoor in a library|a hardened server|SSH keys|security patches|a bug bounty|a security audit|ISO 27001|GDPR breach notice
a threat model|STRIDE|attack trees|Active Directory attacks|Kerberoasting|pass the hash|a honeypot|an air-gapped network|industrial control security
backups against ransomware|an antivirus|a spam filter|a deepfake call|a SIM swap|a stolen password|an open port|a leaked API key
the attacker|the intruder in our network|hackers|a suspicious login|an unknown process that calls home|the malware sample""",
    ("cyber", "fr"): """un courriel d'hameçonnage|un rançongiciel|un logiciel malveillant|un virus informatique|un ver informatique|un cheval de troie
un logiciel espion|un enregistreur de frappe|un rootkit|un botnet|une attaque DDoS|une attaque par déni de service|une injection SQL
une faille XSS|une faille zero-day|une vulnérabilité|une CVE|un scan de vulnérabilités|un test d'intrusion|un scan de ports
une règle de pare-feu|un système de détection d'intrusion|une alerte SIEM|une alerte EDR|un trafic réseau suspect|un serveur de commande
un déplacement latéral|une élévation de privilèges|une attaque par force brute|une fuite de mots de passe|un gestionnaire de mots de passe
la double authentification|l'authentification forte|un VPN|un certificat TLS|le chiffrement des disques|la cryptographie à clé publique
un ordinateur volé|un compte piraté|un serveur compromis|une fuite de données|une exfiltration de données|une menace interne
l'ingénierie sociale|une fausse facture|une arnaque par SMS|une usurpation d'identité|une pièce jointe suspecte|une macro malveillante
un site frauduleux|une attaque de l'homme du milieu|la sécurité du wifi|le zero trust|la segmentation réseau|un plan de réponse à incident
une analyse forensique|des indicateurs de compromission|le renseignement sur la menace|une règle YARA|une règle Sigma
une attaque de la chaîne d'approvisionnement|une porte dérobée|un serveur durci|des clés SSH|les correctifs de sécurité|un audit de sécurité
l'ISO 27001|une analyse de risques cyber|une politique de sécurité|un pirate informatique|des attaquants|un intrus dans notre réseau
une connexion suspecte|un mot de passe volé|un port ouvert|un antivirus|un filtre antispam|les sauvegardes face aux rançongiciels
une crise cyber|la cybersécurité d'une PME|la sécurité industrielle|un échantillon de malware|une campagne d'espionnage|le RSSI
la gestion des clés|la cryptographie post-quantique|les journaux après une intrusion|un hacker|une cyberattaque|la protection des données""",
    ("kine", "en"): """an ankle sprain|a knee injury|low back pain|neck pain|a stiff neck|sciatica|a herniated disc|a frozen shoulder|a rotator cuff tear
shoulder pain|tennis elbow|golfer's elbow|carpal tunnel syndrome|a wrist fracture|a hip replacement|a knee replacement|an ACL tear
ACL reconstruction|a meniscus tear|a hamstring strain|a calf strain|plantar fasciitis|heel pain|Achilles tendinopathy|a stress fracture
shin splints|runner's knee|osteoarthritis of the knee|hip pain|groin pain|whiplash|a rib injury|scoliosis|bad posture|sitting all day
a stroke patient|hemiplegia|spasticity|Parkinson's gait|balance problems|falls in the elderly|vertigo exercises|COPD|breathing exercises
pulmonary rehabilitation|cystic fibrosis|cardiac rehabilitation|pregnancy back pain|pelvic floor training|post-natal core exercises
muscle weakness|quadriceps strength|gluteal strength|core stability|range of motion|joint mobility|stretching|warming up|massage
manual therapy|dry needling|taping|ice on an injury|heat for muscles|crutches|a cast|swelling of the knee|a muscle cramp|muscle soreness
a torn ligament|a dislocated shoulder|return to sport|return to running|a limp|gait analysis|a Trendelenburg gait|an amputee|a prosthesis
chronic pain|fibromyalgia|exercise therapy|squats with knee pain|a physiotherapist's assessment|a physio session|rehab exercises
my patient|my sore back|my shoulder|my knee|my ankle|my hip|my neck|my calf|my wrist|my elbow|a nurse with back pain|a footballer's knee""",
    ("kine", "fr"): """une entorse de cheville|une blessure au genou|une lombalgie|des cervicalgies|un torticolis|une sciatique|une hernie discale
une épaule gelée|une capsulite|une rupture de la coiffe|une douleur à l'épaule|une épicondylite|un syndrome du canal carpien
une fracture du poignet|une prothèse de hanche|une prothèse de genou|une rupture du ligament croisé|une lésion du ménisque
une élongation des ischio-jambiers|une déchirure du mollet|une aponévrosite plantaire|une douleur au talon|une tendinopathie d'Achille
une fracture de fatigue|une périostite|l'arthrose du genou|une douleur de hanche|une pubalgie|un coup du lapin|une scoliose
une mauvaise posture|un patient après un AVC|une hémiplégie|la spasticité|la marche d'un parkinsonien|des troubles de l'équilibre
les chutes des personnes âgées|une BPCO|des exercices respiratoires|la rééducation respiratoire|la mucoviscidose|la rééducation cardiaque
la rééducation du périnée|le mal de dos de la grossesse|une faiblesse musculaire|le renforcement du quadriceps|le gainage
l'amplitude articulaire|la mobilité|les étirements|l'échauffement|le massage|la thérapie manuelle|le taping|la glace sur une blessure
des béquilles|un plâtre|un gonflement du genou|une crampe|des courbatures|un ligament déchiré|une épaule luxée|la reprise du sport
la reprise de la course|une boiterie|l'analyse de la marche|un amputé|la douleur chronique|la fibromyalgie|une séance de kiné
un bilan kinésithérapique|les exercices de rééducation|mon patient|mon dos|mon épaule|mon genou|ma cheville|ma hanche|ma nuque
mon mollet|mon poignet|mon coude|une patiente lombalgique|le muscle psoas|les muscles du dos|les abdominaux après une grossesse""",
    ("research", "en"): """the latest news|today's headlines|recent studies on sleep|published research on obesity|the literature on climate change
evidence for vaccines|a meta-analysis of exercise|clinical trials of a new drug|statistics on unemployment|the census figures
the current inflation rate|the price of oil today|the exchange rate now|the result of yesterday's match|the election results
the market for solar panels|the housing market|electric car sales|the state of the art in batteries|the scientific consensus on diet
papers about large language models|sources on the French revolution|the report of the United Nations|a government report|official data
a think tank's claims|surveys about remote work|the debate on nuclear power|arguments with sources on basic income|studies of school size
air pollution and health studies|microplastics research|biodiversity estimates|ocean temperature data|migration statistics
the effects of social media, according to studies|findings on intermittent fasting|trials of psychotherapy|the replication crisis
the history of estimates of poverty, with references|health systems compared|pension reforms in Europe|housing policy compared
the economic impact of tourism|the evidence on homeopathy|the newest articles on bees|the published evidence on coffee|a systematic review
current events in Asia|the negotiations on plastics|new laws on privacy|the stock price of a company|the weather records of last year
peer-reviewed work on ageing|a bibliography on slavery|citations for this claim|the source of a quote|data on traffic accidents
hydrogen in industry|carbon capture costs|the sodium battery field|urban heat research|lead exposure studies|minimum wage studies""",
    ("research", "fr"): """les dernières nouvelles|l'actualité du jour|les études récentes sur le sommeil|les travaux publiés sur l'obésité
la littérature sur le climat|les preuves de l'efficacité des vaccins|une méta-analyse sur l'exercice|les essais cliniques
les statistiques du chômage|les chiffres du recensement|le taux d'inflation actuel|le prix du pétrole aujourd'hui|le cours de l'or
le résultat du match d'hier|les résultats des élections|le marché du solaire|le marché immobilier|les ventes de voitures électriques
l'état de l'art des batteries|le consensus scientifique|les publications sur les modèles de langage|les sources sur la Révolution
le rapport de l'ONU|un rapport parlementaire|les données officielles|les enquêtes sur le télétravail|le débat sur le nucléaire
les arguments sourcés sur le revenu universel|les études sur l'école|pollution de l'air et santé selon les études|les microplastiques
les estimations de la biodiversité|les statistiques migratoires|les effets des réseaux sociaux selon les chercheurs
l'état des connaissances sur le jeûne|les évaluations de la psychothérapie|les systèmes de santé comparés|la réforme des retraites
les politiques du logement|l'impact économique du tourisme|les preuves sur l'homéopathie|les articles sur les abeilles
une revue de littérature|une revue systématique|les événements récents en Asie|les négociations sur le plastique|les nouvelles lois
la bibliographie sur l'esclavage|la source d'une citation|des références pour cette affirmation|les accidents de la route en chiffres
l'hydrogène dans l'industrie|les coûts du captage du carbone|les zones à faibles émissions|le salaire minimum selon les économistes
la désindustrialisation documentée|les enquêtes de l'Insee|le dernier rapport de la Cour des comptes|un dossier documenté
les grèves dans l'actualité|les publications sur l'illettrisme|les chiffres du logement|les études sur les pesticides""",
    ("default", "en"): """the capital of Norway|the colour of the sea|a cake recipe|pancakes|a vegetable soup|bread|a birthday party|a wedding speech
a love letter|a letter to the bank|a cover letter|a short story|a poem about rain|a song about home|a joke|a riddle|a bedtime story
a trip to Italy|a weekend in Paris|a family holiday|a packing list|a garden in spring|house plants|cats|a puppy's name|the French revolution
world war two|ancient Rome|Shakespeare|Einstein|the moon|the planets|gravity|photosynthesis|volcanoes|dinosaurs|the rules of chess
a board game|a quiz|a logic puzzle|a math problem|percentages|fractions|twelve times nine|the square root of two|prime numbers|a proof in geometry
a probability problem|a train timetable problem|the area of a circle|compound interest|a family budget|buying a house|renting a flat
a job interview|a salary negotiation|a career change|a resignation letter|an e-mail to my boss|an apology to a friend|a gift for my mother
a present for a colleague|a diet for the week|a vegan dinner|a wine for fish|the meaning of a word|a translation into German|a synonym
English grammar|a better wording|a summary of this text|a formal tone|spelling mistakes|an essay about freedom|ethics|happiness|friendship
Plato|stoicism|religion|a novel|a film for tonight|music for dancing|the guitar|learning Spanish|time zones|the days of the week
a business plan for a bakery|a small shop|a moving plan|home renovation|a painting|photography|the alphabet|good manners|small talk
your day|your name|my weekend|my cat|my grandmother|a neighbour|children's questions|rainbows|seasons|a bicycle|a car for the family""",
    ("default", "fr"): """la capitale de la Norvège|la couleur de la mer|une recette de gâteau|des crêpes|une soupe de légumes|du pain|une fête d'anniversaire
un discours de mariage|une lettre d'amour|une lettre à la banque|une lettre de motivation|une nouvelle|un poème sur la pluie|une chanson
une blague|une devinette|une histoire pour enfants|un voyage en Italie|un week-end à Rome|des vacances en famille|une liste de bagages
un jardin au printemps|des plantes d'intérieur|les chats|le nom d'un chiot|la Révolution|la seconde guerre mondiale|la Rome antique|Molière
Victor Hugo|Einstein|la lune|les planètes|la gravité|les volcans|les dinosaures|les règles des échecs|un jeu de société|une énigme logique
un problème de maths|des pourcentages|des fractions|douze fois neuf|la racine carrée de deux|les nombres premiers|une démonstration
un problème de probabilités|un problème de trains|l'aire d'un cercle|des intérêts composés|un budget familial|l'achat d'une maison
un appartement à louer|un entretien d'embauche|une négociation de salaire|un changement de carrière|une lettre de démission
un courriel à mon chef|des excuses à un ami|un cadeau pour mon père|un régime pour la semaine|un dîner végétarien|un vin pour le poisson
le sens d'un mot|une traduction en anglais|un synonyme|la grammaire|une meilleure formulation|le résumé de ce texte|un ton formel
les fautes d'orthographe|une dissertation sur la liberté|la morale|le bonheur|l'amitié|Platon|le stoïcisme|un roman|un film pour ce soir
la guitare|apprendre l'espagnol|les fuseaux horaires|les jours de la semaine|une boulangerie à ouvrir|un petit commerce|un déménagement
la rénovation d'une cuisine|la peinture|la photographie|la politesse|ta journée|ton nom|mon chat|ma grand-mère|un voisin|l'arc-en-ciel
les saisons|un vélo|une voiture pour la famille|une pâte à tarte|le dessert de dimanche|un balcon fleuri|une pièce de théâtre""",
}

# {t}: the topic as it stands above, with its article.
FORMS = {
    ("any", "low", "en"): """What is {t}?|What does {t} mean?|Define {t}.|Is {t} hard?|Who invented {t}?|When do I need {t}?|{t}?|Give me one example of {t}.
Name the parts of {t}.|How long does {t} take?|Tell me in one sentence what {t} is.|Where can I find {t}?|Quick question about {t}.|What is another word for {t}?
Which one is better for {t}?|How many kinds of {t} are there?|Can I have {t}?|Is there {t} today?|What is the short form of {t}?|Show me {t}.|yes, {t} please""",
    ("any", "medium", "en"): """Explain how {t} works and give an example.|Help me with {t}.|How do I deal with {t} and avoid the usual mistakes?
Write something about {t} for beginners.|What are the most important points about {t}?|My colleague asked me about {t}; what should I answer and why?
Give me a few tips for {t}.|I have a problem with {t}, what can I do?|How can I improve {t}?|Describe {t} in a paragraph.|What should I check first with {t}?
Suggest three ideas for {t}.|Rewrite my notes about {t} so that they are clear.|Why does {t} go wrong and how do I fix it?|Make a checklist for {t}.
Summarise {t} for a newcomer.|What is the difference between {t} and the alternatives?|Which steps does {t} need?|How do I prepare {t}?""",
    ("any", "high", "en"): """Design {t} from scratch, compare at least three approaches, justify the choice and describe how you would test it.
Analyse {t} step by step, name the causes, weigh the risks and propose a plan with milestones.|Prove or refute the main claim about {t} and discuss the limits of the argument.
Write a complete report on {t} with trade-offs, costs, counter-arguments and a recommendation.|Develop a strategy for {t} over twelve months, with criteria, fallback positions and measures of success.
Evaluate {t} critically: assumptions, strongest objections, and what would change your mind.|Derive a general method for {t}, then apply it to a hard case and explain every step.
Compare five ways to handle {t}, rank them and defend the ranking.|Plan {t} end to end: phases, dependencies, roles, budget, what can go wrong and how to recover.
Work out {t} in detail, considering edge cases, conflicting goals and uncertainty, then give a verdict with reasons.|Review {t} thoroughly, find the weak points, and rewrite the worst parts with an explanation of each change.
Given contradictory information about {t}, reconstruct what happened, say how certain you are and what remains open.""",
    ("any", "low", "fr"): """C'est quoi {t} ?|Qu'est-ce que {t} ?|Que veut dire {t} ?|Définis {t}.|Est-ce difficile, {t} ?|Qui a inventé {t} ?|{t} ?|Donne un exemple : {t}.
Combien de temps faut-il pour {t} ?|Où trouver {t} ?|Petite question sur {t}.|À quoi sert {t} ?|Dis en une phrase ce qu'est {t}.|Combien de sortes : {t} ?
Quel est l'autre nom pour {t} ?|Y a-t-il {t} ?|Montre-moi {t}.|oui, {t} s'il te plaît|Faut-il {t} ?""",
    ("any", "medium", "fr"): """Explique comment fonctionne {t} avec un exemple.|Aide-moi pour {t}.|Comment gérer {t} sans faire les erreurs habituelles ?
Écris quelque chose sur {t} pour des débutants.|Quels sont les points importants concernant {t} ?|Mon collègue m'a parlé de {t}, que dois-je répondre et pourquoi ?
Donne-moi quelques conseils pour {t}.|J'ai un problème avec {t}, que puis-je faire ?|Comment améliorer {t} ?|Décris {t} en un paragraphe.
Que faut-il vérifier d'abord pour {t} ?|Propose trois idées pour {t}.|Reformule mes notes sur {t} pour qu'elles soient claires.
Pourquoi y a-t-il des ennuis avec {t} et comment les éviter ?|Fais une liste de contrôle pour {t}.|Quelle est la différence entre {t} et les autres solutions ?
Quelles étapes pour {t} ?|Comment préparer {t} ?""",
    ("any", "high", "fr"): """Conçois {t} de bout en bout, compare au moins trois approches, justifie le choix et décris les essais.
Analyse {t} étape par étape, donne les causes, pèse les risques et propose un plan avec des jalons.|Démontre ou réfute l'affirmation principale sur {t} et discute les limites de l'argument.
Rédige un rapport complet sur {t} avec les compromis, les coûts, les objections et une recommandation.|Élabore une stratégie sur douze mois pour {t}, avec critères, solutions de repli et indicateurs.
Évalue {t} de façon critique : hypothèses, objections les plus fortes, et ce qui ferait changer d'avis.|Établis une méthode générale pour {t}, applique-la à un cas difficile et justifie chaque étape.
Compare cinq façons de traiter {t}, classe-les et défends ton classement.|Planifie {t} : phases, dépendances, responsabilités, budget, imprévus et reprise.
Étudie {t} en détail en tenant compte des cas limites et des buts contradictoires, puis conclus avec des raisons.|À partir d'informations contradictoires sur {t}, reconstitue les faits, dis ce qui est certain et ce qui reste ouvert.""",
    ("code", "low", "en"): """Print {t}.|Which keyword starts {t}?|How do I declare {t}?|How do I run {t}?|What is the syntax of {t}?|Rename {t}.|Which command shows {t}?""",
    ("code", "medium", "en"): """Write {t} in Python.|Write {t} and add tests.|Fix {t}, it crashes.|Why does {t} fail to compile?|Convert {t} from JavaScript to TypeScript.
Debug {t} for me.|Refactor {t} so that it is readable.|Implement {t} in C.|Add error handling to {t}.|My {t} returns the wrong value, what is wrong?""",
    ("code", "high", "en"): """Implement {t} without locks for many threads, and argue about correctness and memory order.|Architect a system around {t} for a million users, with schema, code, failure modes and tests.
Find every bug in {t}, propose a redesign, and prove that it terminates.|Optimise {t} for the cache, measure each step and explain the gain.""",
    ("code", "low", "fr"): """Affiche {t}.|Quel mot-clé pour {t} ?|Comment déclarer {t} ?|Comment exécuter {t} ?|Quelle est la syntaxe pour {t} ?|Quelle commande montre {t} ?""",
    ("code", "medium", "fr"): """Écris {t} en Python.|Écris {t} avec des tests.|Corrige {t}, ça plante.|Pourquoi {t} ne compile pas ?|Convertis {t} de JavaScript en TypeScript.
Débogue {t}.|Réécris {t} pour que ce soit lisible.|Implémente {t} en C.|Ajoute la gestion des erreurs à {t}.|Ma fonction avec {t} renvoie une mauvaise valeur, pourquoi ?""",
    ("code", "high", "fr"): """Implémente {t} sans verrou pour plusieurs fils, et argumente sa correction.|Conçois l'architecture autour de {t} pour un million d'utilisateurs, avec schéma, code, pannes et tests.
Trouve tous les défauts de {t}, propose une refonte et prouve la terminaison.|Optimise {t} pour le cache, mesure chaque étape et explique le gain.""",
    ("cyber", "medium", "en"): """We were hit by {t}, what do we do now?|How do attackers use {t} and how is it detected?|How do I protect my company against {t}?|Is this {t}?|How do I detect {t} in the logs?""",
    ("cyber", "high", "en"): """Write an incident response plan for {t} with roles, decisions, containment and recovery.|Map {t} to known techniques, identify detection gaps and prioritise the fixes.|Investigate {t}: timeline, affected hosts, certainty, eradication.""",
    ("cyber", "medium", "fr"): """Nous sommes victimes de {t}, que faire ?|Comment les attaquants utilisent {t} et comment le détecter ?|Comment protéger mon entreprise contre {t} ?|Est-ce {t} ?|Comment repérer {t} dans les journaux ?""",
    ("cyber", "high", "fr"): """Rédige un plan de réponse à incident pour {t} avec rôles, décisions, confinement et reprise.|Relie {t} aux techniques connues, identifie les manques de détection et classe les corrections.|Enquête sur {t} : chronologie, machines touchées, certitude, éradication.""",
    ("kine", "low", "en"): """Should I rest with {t}?|Ice or heat for {t}?|Can I walk with {t}?|How often should I train with {t}?|Does {t} hurt?""",
    ("kine", "medium", "en"): """Which exercises help with {t}?|Give me a strengthening programme for {t}.|What are the red flags in {t}?|How do I get back to sport after {t}?|What does a physiotherapist do for {t}?|It hurts because of {t}, what helps?""",
    ("kine", "high", "en"): """Write a twelve week rehabilitation plan for {t} with criteria of progression, tests and stop rules.|Patient aged 60 with {t}: assess, set goals and justify each intervention.|Discuss the differential diagnosis of {t}, the tests and the management of each.""",
    ("kine", "low", "fr"): """Faut-il se reposer avec {t} ?|Chaud ou froid pour {t} ?|Peut-on marcher avec {t} ?|Combien de séances pour {t} ?|Est-ce que {t} fait mal ?""",
    ("kine", "medium", "fr"): """Quels exercices pour {t} ?|Donne-moi un programme de renforcement pour {t}.|Quels sont les signes d'alerte pour {t} ?|Comment reprendre le sport après {t} ?|Que fait le kiné pour {t} ?|J'ai mal à cause de {t}, que faire pour soulager ?""",
    ("kine", "high", "fr"): """Établis un protocole de rééducation de douze semaines pour {t} avec critères de progression et précautions.|Patient de 60 ans avec {t} : bilan, objectifs et traitement argumenté.|Discute les diagnostics différentiels de {t}, les tests et la conduite à tenir.""",
    ("research", "low", "en"): """Find me {t}.|Look up {t}.|Give me a link to {t}.|What is new about {t}?|Search for {t}.""",
    ("research", "medium", "en"): """What do studies say about {t}?|Summarise {t} with references.|Find sources for and against {t}.|What has been published on {t}?|Give figures and sources on {t}.|Compare {t} across countries since 2000.""",
    ("research", "high", "en"): """Write a literature review of {t}, weigh the quality of the studies and name the gaps.|Assess {t} from all available studies, explain why they disagree, cite everything.|Prepare a documented report about {t} with competing views and citations.""",
    ("research", "low", "fr"): """Trouve-moi {t}.|Cherche {t}.|Donne-moi le lien vers {t}.|Quoi de neuf : {t} ?|De quand datent {t} ?""",
    ("research", "medium", "fr"): """Que disent les études : {t} ?|Résume {t} avec les références.|Trouve des sources pour et contre : {t}.|Qu'a-t-on publié sur le sujet : {t} ?|Donne des chiffres et des sources : {t}.|Compare {t} entre pays depuis 2000.""",
    ("research", "high", "fr"): """Rédige une revue de littérature : {t}, évalue la qualité des études et signale les lacunes.|Évalue {t} à partir de tous les travaux disponibles, explique les désaccords et cite tout.|Prépare un rapport documenté sur {t} avec les controverses et les références.""",
    ("default", "low", "en"): """Hello, {t}!|Thanks for {t}.|Tell me {t}.|What is the opposite of {t}?|Translate {t} into French.|How old is {t}?|What year was {t}?|How much is {t}?""",
    ("default", "medium", "en"): """Write {t} for my sister.|Help me write {t}.|Explain {t} to a child.|How do I make {t}?|Plan {t} for six people.|What were the main reasons for {t}?""",
    ("default", "high", "en"): """Write a long essay on {t} with thesis, antithesis and a defended position, quoting three thinkers.|Solve {t} with several conditions, explain each deduction and check the result another way.|Help me decide about {t} over ten years: build a model, vary the assumptions, explain the break-even.""",
    ("default", "low", "fr"): """Bonjour, {t} !|Merci pour {t}.|Raconte-moi {t}.|Quel est le contraire de {t} ?|Traduis {t} en anglais.|Quel âge a {t} ?|En quelle année : {t} ?|Combien coûte {t} ?""",
    ("default", "medium", "fr"): """Écris {t} pour ma sœur.|Aide-moi à écrire {t}.|Explique {t} à un enfant.|Comment faire {t} ?|Prévois {t} pour six personnes.|Quelles furent les causes principales de {t} ?""",
    ("default", "high", "fr"): """Rédige une longue dissertation sur {t} avec thèse, antithèse et dépassement, en citant trois auteurs.|Résous {t} avec plusieurs conditions, justifie chaque déduction et vérifie autrement.|Aide-moi à décider sur dix ans au sujet de {t} : construis un modèle, fais varier les hypothèses et explique le point d'équilibre.""",
}
