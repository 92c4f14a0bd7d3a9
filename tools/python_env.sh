#!/bin/sh
# Makes the environment in which the Python package is tested, outside of the tree, and prints its
# folder. What is there already is left as it is.
#
#   python_env.sh [FOLDER]    default: $TERN_PYTHON_ENV, else ~/.cache/tern/python-env
#
# PYTHON is the interpreter (default: Debian's own).
set -eu
folder=${1:-${TERN_PYTHON_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/tern/python-env}}
python=${PYTHON:-/usr/bin/python3}
# ml_dtypes: bfloat16. The tools have fixed versions, for a later one may find more.
wanted='numpy pytest ml_dtypes kubernetes-validate==1.37.0 mypy==2.4.1 ruff==0.17.6'

# What an earlier call has begun and not ended is made anew.
if [ -e "$folder/half-made" ]; then rm -rf "$folder"; fi
if [ ! -x "$folder/bin/pip" ]; then
  if [ ! -e "$folder" ]; then
    mkdir -p "$folder"
    : >"$folder/half-made"
  fi
  "$python" -m venv "$folder" >&2 || {
    echo "No environment at $folder: install python3-venv." >&2
    exit 1
  }
  rm -f "$folder/half-made"
fi
# An environment that was made by other words is brought up to these.
if [ "$(cat "$folder/wanted" 2>/dev/null)" != "$wanted" ]; then
  "$folder/bin/pip" install --quiet --disable-pip-version-check $wanted >&2
  echo "$wanted" >"$folder/wanted"
fi
echo "$folder"
