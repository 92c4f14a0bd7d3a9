#!/bin/sh
# Makes the environment in which tern.torch is tested, outside of the tree, and prints its folder. What
# is there already is left as it is. PyPI's PyTorch brings the libraries of CUDA, 4 GB that nothing
# here calls: empty ones take their place, and the environment has 1.4 GB.
#
#   torch_env.sh [FOLDER]    default: $TERN_TORCH_ENV, else ~/.cache/tern/torch-env-VERSION
#
# TORCH_VERSION is that of PyTorch (default: 2.15.0), PYTHON the interpreter (default: Debian's own).
set -eu
cd "$(dirname "$0")/.."
version=${TORCH_VERSION:-2.15.0}
folder=${1:-${TERN_TORCH_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/tern/torch-env-$version}}
python=${PYTHON:-/usr/bin/python3}
# expecttest, psutil and zstandard: PyTorch's own tests import them.
wanted="torch==$version numpy pytest expecttest psutil zstandard sympy networkx jinja2 fsspec filelock \
  typing_extensions setuptools"

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
if [ "$(cat "$folder/wanted" 2>/dev/null)" != "$wanted" ]; then
  "$folder/bin/pip" install --quiet --disable-pip-version-check ${wanted#* } >&2
  "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps ${wanted%% *} >&2
  "$python" tools/torch_without_cuda.py "$("$folder/bin/python" -c \
    'import sysconfig; print(sysconfig.get_path("platlib"))')/torch"
  echo "$wanted" >"$folder/wanted"
fi
echo "$folder"
