#!/bin/sh
# Makes the environment in which tern.torch is tested, outside of the tree, and prints its folder. What
# is there already is left as it is. PyTorch with what it needs takes 6 GB, so that the other tests
# have an environment without it.
#
#   torch_env.sh [FOLDER]    default: $TERN_TORCH_ENV, else ~/.cache/tern/torch-env-VERSION
#
# TORCH_VERSION is that of PyTorch (default: 2.15.0), PYTHON the interpreter (default: Debian's own).
set -eu
version=${TORCH_VERSION:-2.15.0}
folder=${1:-${TERN_TORCH_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/tern/torch-env-$version}}
python=${PYTHON:-/usr/bin/python3}
# expecttest: PyTorch's own suite imports it.
wanted="torch==$version numpy pytest expecttest"

if [ ! -x "$folder/bin/python" ]; then
  "$python" -m venv "$folder" >&2 || {
    echo "No environment at $folder: install python3-venv." >&2
    exit 1
  }
fi
if [ "$(cat "$folder/wanted" 2>/dev/null)" != "$wanted" ]; then
  "$folder/bin/pip" install --quiet --disable-pip-version-check $wanted >&2
  echo "$wanted" >"$folder/wanted"
fi
echo "$folder"
