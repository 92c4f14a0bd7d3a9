#!/bin/sh
# Builds the reference of the Python package from its docstrings: build/docs/index.html, a site of
# files that needs no server. The environment is that of tools/python_env.sh. tern.torch is in it if
# there is an environment with PyTorch already (tools/torch_env.sh).
#
#   make_docs.sh [FOLDER]    default: build/docs; replaces an older site there, and nothing else
set -eu
case "${1:-}" in
  '') folder= ;;
  /*) folder=$1 ;;
  *) folder=$PWD/$1 ;;
esac
cd "$(dirname "$0")/.."
if [ -n "$folder" ] && [ -n "$(ls -A "$folder" 2>/dev/null)" ] && [ ! -e "$folder/made-by-make_docs" ]; then
  echo "make_docs: $folder has files that are no older site; name a folder that is new or empty" >&2
  exit 1
fi
folder=${folder:-$PWD/build/docs}
environment=$(tools/python_env.sh)
"$environment/bin/pip" install --quiet --disable-pip-version-check pdoc==16.0.0 >&2
set -- tern tern.cuda tern.tensorboard
packages=$PWD/python
version() { "$1/bin/python" -c 'import sys; print(sys.version_info[:2])'; }
for torch in ${TERN_TORCH_ENV:+"$TERN_TORCH_ENV"} "${XDG_CACHE_HOME:-$HOME/.cache}"/tern/torch-env-*; do
  if "$torch/bin/python" -c 'import torch' 2>/dev/null && [ "$(version "$torch")" = "$(version "$environment")" ]; then
    packages=$packages:$("$torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    set -- "$@" tern.torch
    break
  fi
done
case "$*" in
  *tern.torch) ;;
  *) echo "without tern.torch, for there is no environment with PyTorch: tools/torch_env.sh makes one" >&2 ;;
esac
rm -rf "$folder"
mkdir -p "$folder"
: >"$folder/made-by-make_docs"
# A docstring's single backquotes are code: names and arguments.
PYTHONPATH=$packages PYTHONDONTWRITEBYTECODE=1 "$environment/bin/pdoc" --docformat markdown \
  --footer-text "Tern $(sed -n 's/^version = "\(.*\)"$/\1/p' python/pyproject.toml)" \
  --output-directory "$folder" "$@"
echo "$folder/index.html"
