#!/usr/bin/env bash
# corpus.sh OUT_DIR: about 1,000 real documents for eval/odo/manuals.jsonl: the manuals of Debian, Python and Git in
# English and French, from Debian's packages. Needs apt-get, dpkg and man.
set -euo pipefail
out=$(realpath -m "$1")
mkdir -p "$out/packages"
cd "$out/packages"
apt-get -qq download git-man python3.11-doc debian-faq debian-faq-fr debian-reference-en debian-reference-fr \
    debian-policy manpages-fr
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
rm -r "$out/packages"
find "$out/docs" -type f | wc -l
