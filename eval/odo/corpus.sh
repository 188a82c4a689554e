#!/usr/bin/env bash
# corpus.sh [--unseen] OUT_DIR: about 1,000 real documents for eval/odo/manuals.jsonl, from Debian's packages: the
# manuals of Debian, Python and Git in English and French. --unseen: 1,247 other files, for manuals_unseen.jsonl: the
# handbook and installation guide of Debian, Apache's manual, Python's C API, Git's design notes, pages of Linux.
# Needs apt-get, dpkg, man and python3.
set -euo pipefail
unseen=
if [ "$1" = --unseen ]; then
    unseen=1
    shift
fi
out=$(realpath -m "$1")
mkdir -p "$out/packages"
cd "$out/packages"
if [ "$unseen" ]; then
    apt-get -qq download debian-handbook installation-guide-amd64 apache2-doc git-doc manpages manpages-dev \
        manpages-fr-dev python3.11-doc
else
    apt-get -qq download git-man python3.11-doc debian-faq debian-faq-fr debian-reference-en debian-reference-fr \
        debian-policy manpages-fr
fi
for package in *.deb; do dpkg -x "$package" tree; done
docs=tree/usr/share/doc
copy() { # FOLDER FILES...: HTML as it is
    mkdir -p "$out/docs/$1"
    cp "${@:2}" "$out/docs/$1"
}
render() { # FOLDER FILES...: manual pages as text
    mkdir -p "$out/docs/$1"
    local page
    for page in "${@:2}"; do
        MANWIDTH=100 man -l "$page" 2>/dev/null | col -bx >"$out/docs/$1/$(basename "${page%.gz}").txt" || true
    done
}
seen() {
    local folder
    for folder in library reference tutorial howto faq using whatsnew installing distributing extending; do
        copy "python/$folder" "$docs"/python3.11/html/$folder/*.html
    done
    copy debian-faq "$docs"/debian/FAQ/*.html
    copy debian-faq-fr "$docs"/debian/FAQ/fr/*.html
    copy debian-reference tree/usr/share/debian-reference/*.en.html
    copy debian-reference-fr tree/usr/share/debian-reference/*.fr.html
    copy debian-policy "$docs"/debian-policy/policy.html/*.html
    render git tree/usr/share/man/man[157]/git*.gz
    render manpages-fr tree/usr/share/man/fr/man[1578]/*.gz
}
draw() { # COUNT FILES...: a draw of them that is the same each time
    python3 -c 'import random, sys
files = sorted(sys.argv[2:])
random.Random(7).shuffle(files)
print(*files[: int(sys.argv[1])], sep="\n")' "$@"
}
unseen() {
    local man=tree/usr/share/man file pages
    copy debian-handbook "$docs"/debian-handbook/html/en-US/*.html
    copy debian-handbook-fr "$docs"/debian-handbook/html/fr-FR/*.html
    copy installation-guide "$docs"/installation-guide-amd64/en/*.html
    copy installation-guide-fr "$docs"/installation-guide-amd64/fr/*.html
    copy python-c-api "$docs"/python3.11/html/c-api/*.html
    copy python-distutils "$docs"/python3.11/html/distutils/*.html
    copy git-doc "$docs"/git-doc/[A-Z]*.txt "$docs"/git-doc/howto/*.txt "$docs"/git-doc/technical/*.txt
    (cd "$docs/apache2-doc/manual/en" && find . -name "*.html" -printf "%P\n") | while read -r file; do
        mkdir -p "$out/docs/apache" "$out/docs/apache-fr"
        cp "$docs/apache2-doc/manual/en/$file" "$out/docs/apache/${file//\//_}"
        cp "$docs/apache2-doc/manual/fr/$file" "$out/docs/apache-fr/${file//\//_}"
    done
    mapfile -t pages < <(draw 90 "$man"/man4/*.gz "$man"/man5/*.gz "$man"/man7/*.gz)
    render manpages "${pages[@]}"
    mapfile -t pages < <(draw 120 "$man"/fr/man2/*.gz "$man"/fr/man3/*.gz)
    render manpages-fr-dev "${pages[@]}"
}
if [ "$unseen" ]; then unseen; else seen; fi
rm -r "$out/packages"
find "$out/docs" -type f | wc -l
