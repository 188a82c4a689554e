# Counts the text on the standard input. Characters are those of UTF-8, without the ends of lines; sentences end in
# . ! ? or …, several of which in a row are one end; 130 words are read aloud in a minute.
{
    words += NF
    line = $0
    if (line ~ /[^ \t\r]/) open = 1
    gsub(/\342\200\246/, ".", line)
    ends = gsub(/[.!?]+[)"']*([ \t\r]|$)/, "&", line)
    sentences += ends
    if (ends) open = line !~ /[.!?]+[)"']*[ \t\r]*$/
    line = $0
    gsub(/[\200-\277]/, "", line)
    sub(/\r$/, "", line)
    characters += length(line)
}
END {
    printf "words: %d\ncharacters: %d\nsentences: %d\nlines: %d\nminutes aloud: %.1f\n",
        words, characters, sentences + open, NR, words / 130
}
