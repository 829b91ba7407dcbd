# "struct field" for each member of each struct that is a typedef, out of headers of src/api.
{ text = text $0 "\n" }

function without_remarks(    n, line, i, plain) {
    while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//))
        text = substr(text, 1, RSTART - 1) " " substr(text, RSTART + RLENGTH)
    n = split(text, line, /\n/)
    for (i = 1; i <= n; i++) if (line[i] !~ /^[ \t]*#/) plain = plain " " line[i]
    return plain
}

# The members of a struct, without what nested ones have; text goes on after it.
function body(    depth, i, c, all) {
    depth = 1
    for (i = 1; depth > 0; i++) {
        c = substr(text, i, 1)
        if (c == "{") depth++
        if (c == "}") depth--
        if (depth == 1) all = all c
    }
    text = substr(text, i)
    return all
}

function tell(type, member,    parts, n, i, name) {
    if (match(member, /\(\* *[a-z0-9_]+\)/)) {
        name = substr(member, RSTART, RLENGTH)
        gsub(/[^a-z0-9_]/, "", name)
        print type, name
        return
    }
    gsub(/\[[^]]*\]/, "", member)
    n = split(member, parts, ",")
    for (i = 1; i <= n; i++) {
        name = parts[i]
        gsub(/[*{}\t]/, " ", name)
        sub(/ +$/, "", name)
        sub(/.* /, "", name)
        if (name != "") print type, name
    }
}

END {
    text = without_remarks()
    while (match(text, /typedef struct dlp[a-z0-9_]* \{/)) {
        split(substr(text, RSTART, RLENGTH), head, " ")
        text = substr(text, RSTART + RLENGTH)
        n = split(body(), member, ";")
        for (k = 1; k <= n; k++) tell(head[3], member[k])
    }
}
