#!/bin/sh
# Builds the reference of the Python package from its docstrings: build/docs/index.html, a site of
# files that needs no server. The environment is that of tools/python_env.sh.
#
#   make_docs.sh [FOLDER]    default: build/docs
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/docs}
environment=$(tools/python_env.sh)
"$environment/bin/pip" install --quiet --disable-pip-version-check pdoc==16.0.0 >&2
set -- tern tern.tensorboard
if [ -d python/tern/torch ]; then
  if "$environment/bin/python" -c 'import torch' 2>/dev/null; then
    set -- "$@" tern.torch
  else
    echo "without tern.torch, for $environment has no PyTorch" >&2
  fi
fi
rm -rf "$folder"
# A docstring's single backquotes are code: names and arguments.
PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 "$environment/bin/pdoc" --docformat markdown \
  --footer-text "Tern $(sed -n 's/^version = "\(.*\)"$/\1/p' python/pyproject.toml)" \
  --output-directory "$folder" "$@"
echo "$folder/index.html"
