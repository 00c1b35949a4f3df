#!/bin/sh
# Proposes another value for what did not fit its pattern, and checks it. The input is in INPUT_FILE:
# {"executionId", "phase", "errors": [{"code", "details": {"value", "pattern"}}], "try"}.
set -eu

# A text of the input by its name. Enough for values without quotes.
text() { sed -n "s/.*\"$1\" *: *\"\\([^\"]*\\)\".*/\\1/p" "$INPUT_FILE"; }
value=$(text value)
pattern=$(text pattern)
try=$(sed -n 's/.*"try" *: *\([0-9]*\).*/\1/p' "$INPUT_FILE")

# Each try has an idea of its own.
case $try in
    1) proposal=$(printf '%s' "$value" | sed 's/^ *//; s/ *$//') ;;
    2) proposal=$(printf '%s' "$value" | sed 's|^\([0-9]*\)/\([0-9]*\)/\([0-9]*\)$|\3-\2-\1|') ;;
    *) proposal=$(printf '%s' "$value" | tr -cd '0-9-') ;;
esac

mended=false
if printf '%s' "$proposal" | grep -Eq "$pattern"; then mended=true; fi
echo "try $try: \"$value\" -> \"$proposal\", mended: $mended"
printf '@@tidemill {"kind":"result","output":{"mended":%s,"proposal":"%s","repair":%s}}\n' \
    "$mended" "$proposal" "$(cat "$INPUT_FILE")"
