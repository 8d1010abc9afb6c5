# SPDX-License-Identifier: MIT
# For scripts that show an experiment; they source this file and set `nibble`, the program.

say() { printf '\n==> %s\n' "$*"; }

# Shows a command as a person would type it, and runs it.
run() { # ARGUMENTS OF NIBBLE...
  printf '$ nibble'
  printf ' %q' "$@"
  printf '\n'
  "$nibble" "$@"
}

# Who the model is, who the asker is, and something it knew before.
dialogues() { # MODEL [OPTIONS OF GENERATE...]
  local model=$1 question
  shift
  for question in 你是誰 我是誰 談談UFO 'Who are you?' 'Who am I?'; do
    printf '  %s\n    -> %s\n' "$question" "$("$nibble" generate --model "$model" \
      --prompt "$question" --temp 0 --max-tokens 60 --quiet "$@")"
  done
}
