#!/bin/sh
# Runs every benchmark program (*_bench) of a folder, one after the other.
set -eu
found=0
for program in "$1"/*_bench; do
  [ -x "$program" ] || continue
  found=1
  echo "== $(basename "$program")"
  "$program"
done
if [ "$found" = 0 ]; then
  echo "no *_bench program in $1" >&2
  exit 1
fi
