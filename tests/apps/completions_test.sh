#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The completions of `nibble completions` in real shells. Usage: completions_test.sh NIBBLE
# bash always; zsh and fish where they are installed, else a message.
set -euo pipefail
nibble=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir folder
touch 'a model.dat' folder/other.dat
failed=0
skipped=

# check SHELL LINE ANSWERS WANTED...: each word WANTED is one of the lines ANSWERS, each !WORD is not.
check() {
  local shell=$1 line=$2 answers=$3 wanted
  shift 3
  for wanted in "$@"; do
    if [[ $wanted == !* ]]; then
      ! grep -qxF -- "${wanted#!}" <<<"$answers" && continue
    else
      grep -qxF -- "$wanted" <<<"$answers" && continue
    fi
    printf '%s: "%s" should give %s, gave:\n%s\n' "$shell" "$line" "$wanted" "$answers"
    failed=1
  done
}

# What every shell must do: the line up to the cursor, then words.
cases=(
  'nibble tr|train|trace|!chat'
  'nibble help cha|chat'
  'nibble generate --dev|--device|!--train-data'
  'nibble generate --device |auto|cpu|cuda|!cuda:N'
  'nibble train --memory-mode re|release|remake|resident|!host'
  'nibble data |corpus|overlap'
  'nibble runs sh|show'
  'nibble completions |bash|zsh|fish'
  'nibble guard --ram|--ram-limit-gb'
)

"$nibble" completions bash > nibble.bash
bash_answers() {  # LINE, split at spaces as readline does; = is a word of its own
  bash -c '
    source ./nibble.bash
    COMP_WORDS=()
    for word in ${1//=/ = }; do COMP_WORDS+=("$word"); done
    [[ $1 == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _nibble
    ((${#COMPREPLY[@]})) && printf "%s\n" "${COMPREPLY[@]}" || true' _ "$1"
}
bash -n nibble.bash
check bash 'complete -p' "$(bash -c 'source ./nibble.bash; complete -p nibble')" \
  'complete -F _nibble nibble'
for case in "${cases[@]}"; do
  IFS='|' read -r -a words <<<"$case"
  check bash "${words[0]}" "$(bash_answers "${words[0]}")" "${words[@]:1}"
done
for line in 'nibble generate --model ' 'nibble generate --model=' 'nibble inspect '; do
  check bash "$line" "$(bash_answers "$line")" 'a model.dat' folder
done
check bash 'equals' "$(bash_answers 'nibble generate --device=c')" cpu cuda '!auto'
check bash 'boolean' "$(bash_answers 'nibble convert --force=')" true false
check bash 'second argument' "$(bash_answers 'nibble runs compare ')" folder '!list'
check bash 'option, then argument' "$(bash_answers 'nibble data --seed 5 mi')" mix
check bash 'a number is not completed' "$(bash_answers 'nibble generate --seed ')" '' '!folder'
check bash 'program of guard' "$(bash_answers 'nibble guard -- tru')" true
check bash 'its arguments' "$(bash_answers 'nibble guard ls ')" folder '!--ram-limit-gb'
# Every command of --help is offered.
check bash commands "$(bash_answers 'nibble ')" \
  $("$nibble" --help | sed -n '/^Commands:/,/^$/ s/^  \([a-z]*\) .*/\1/p')

if command -v fish >/dev/null; then
  "$nibble" completions fish > nibble.fish
  fish -n nibble.fish
  fish_answers() {
    HOME=$work fish --no-config -c "source nibble.fish; complete -C '$1'" | cut -f1
  }
  for case in "${cases[@]}"; do
    IFS='|' read -r -a words <<<"$case"
    check fish "${words[0]}" "$(fish_answers "${words[0]}")" "${words[@]:1}"
  done
  check fish files "$(fish_answers 'nibble generate --model ')" 'a model.dat' folder/
  check fish 'no files' "$(fish_answers 'nibble generate --seed ')" '!folder/'
  check fish 'files of an argument' "$(fish_answers 'nibble inspect ')" folder/
else
  skipped+=" fish"
fi

if command -v zsh >/dev/null; then
  mkdir fpath
  "$nibble" completions zsh > fpath/_nibble
  zsh -n fpath/_nibble
  # A shell at a pseudo terminal, whose completion list is printed between two marks.
  cat > drive.zsh <<'ZSH'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "cd $PWD; PS1= PS2=; fpath=($PWD/fpath \$fpath); autoload -Uz compinit; compinit -u -D"
zpty -w shell "zstyle ':completion:*' list-grouped no; LISTMAX=0; setopt no_beep no_zle_bracketed_paste 2>/dev/null"
# compadd tells what it would offer, and offers nothing.
zpty -w shell 'compadd() {
  if [[ ${@[(i)-[OAD]]} -le ${#@} ]]; then builtin compadd "$@"; return; fi
  local -a offered; builtin compadd -O offered "$@"; print -rl -- $offered >> answers; builtin compadd "$@"; }'
zpty -w shell 'done-word() { print -r end >> finished; zle kill-buffer }; zle -N done-word; bindkey "^X^D" done-word'
zpty -w shell 'print ready >> finished'
while [[ ! -s finished ]]; do sleep 0.05; done
rm finished
zpty -w -n shell "$1"$'\t'$'\C-x\C-d'
for i in {1..200}; do [[ -s finished ]] && break; sleep 0.05; zpty -r -t shell ignored; done
[[ -s answers ]] && cat answers
rm -f answers finished
zpty -d shell
ZSH
  zsh_answers() { TERM=vt100 zsh -f drive.zsh "$1" 2>/dev/null | sed 's/ *$//'; }
  for case in "${cases[@]}"; do
    IFS='|' read -r -a words <<<"$case"
    check zsh "${words[0]}" "$(zsh_answers "${words[0]}")" "${words[@]:1}"
  done
  check zsh files "$(zsh_answers 'nibble generate --model ')" 'a\ model.dat'
else
  skipped+=" zsh"
fi

[[ -n $skipped ]] && echo "not installed, not tried:$skipped"
exit "$failed"
