#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# completion.sh FLEET F8CTL SHELL: runs the script that f8ctl completion makes in that shell, and
# compares what it offers for command lines. FLEET is ctl_fleet, F8CTL the program, and a fake
# fleet's weights are there to be named. Exit status 77 (skip) where there is no such shell.
set -euo pipefail

fleet=$1
f8ctl=$2
shell=$3
command -v "$shell" >/dev/null || {
    echo "skipped: there is no $shell here"
    exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$f8ctl" completion "$shell" >"$folder/script"

# In bash the words before the cursor are variables of the function.
cat >"$folder/run.bash" <<'RUN'
source "$1"
compopt() { :; } # only for a shell with a cursor
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_f8ctl
[[ ${#COMPREPLY[@]} -eq 0 ]] || printf '%s\n' "${COMPREPLY[@]}"
RUN

# In zsh they are too, and what is offered goes to commands that only a shell with a cursor has.
cat >"$folder/run.zsh" <<'RUN'
compdef() { : }
compset() { word=${word#*=} }
compadd() {
    local entry
    shift
    for entry; do
        [[ $entry != ${word}* ]] || print -r -- $entry
    done
}
_files() { print -rl -- ${word}*(N) }
_describe() {
    local name=${@[-1]} entry
    for entry in ${(P)name}; do
        [[ ${entry%%:*} != ${word}* ]] || print -r -- ${entry%%:*}
    done
}
source $1
shift
words=("$@")
CURRENT=$#
_f8ctl
RUN

# fish is asked for what it would offer.
cat >"$folder/run.fish" <<'RUN'
source $argv[1]
complete -C (string join ' ' -- (string escape -- $argv[2..-2]) $argv[-1]) | string replace -r '\t.*' ''
exit 0
RUN

# offers EXPECTED WORD...: the words, sorted, one of which is a line's last and not complete.
offers() {
    local expected=$1 got
    shift
    got=$("$fleet" 12 "$shell" "$folder/run.$shell" "$folder/script" "$f8ctl" "$@" |
        LC_ALL=C sort -u | paste -sd ' ')
    if [[ $got != "$expected" ]]; then
        echo "$shell: $* offers: $got"
        echo "not: $expected"
        exit 1
    fi
}

cd "$folder"
: >drawing.svg
offers 'weights' we
offers 'scales show snapshot stats status' s
offers '--last' history w --la
offers '--table --timeout' history w --t
offers '--socket --sort' weights --so
offers '--socket' ping --so
offers 'saturated scale scaled-at since-sync stale' scales --sort s
if [[ $shell == fish ]]; then # to which a word with a dash is a flag
    offers '--sort=-scale --sort=-scaled-at' scales --sort=-sc
else
    offers '-scale -scaled-at' scales --sort -sc
fi
offers 'bash fish zsh' completion ''
offers "$(printf 'model.layers.%d.mlp.weight ' 0 1 2 3 4 5 | sed 's/ $//')" show m
offers "$(printf 'model.layers.%d.mlp.weight ' 0 2 4 | sed 's/ $//')" history m # have one
offers 'model.layers.4.mlp.weight' history model.layers.4
offers 'model.layers.4.mlp.weight' --timeout 5 --json history --last 3 model.layers.4
offers 'other' --job o
offers 'other' export o
offers '' evict o # has clients
offers 'dp' export other d
offers 'drawing.svg' history w --svg d
offers 'drawing.svg' export other dp d
offers '' history w --last 1
offers '' show a b
echo "$shell completes commands, flags, columns, names and files"
