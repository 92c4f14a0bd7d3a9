#!/bin/sh
# Tests the Python package against a build, and checks it by ruff and mypy.
#
#   python_tests.sh [BIN [PYTEST_WORDS...]]    BIN: a folder with ternd and ternctl; libtern.so is in
#                                              it, beside it, or in lib beside it
#                                              (default: build/release/bin)
#
# The environment is that of tools/python_env.sh. Where it cannot be had, the tests run with Debian's
# python3-pytest and python3-numpy, and a line says that ruff and mypy were not run.
set -eu
cd "$(dirname "$0")/.."
programs=$(cd "${1:-build/release/bin}" && pwd)
[ $# = 0 ] || shift

library=
for place in "$programs" "$programs/.." "$programs/../lib"; do
  if [ -e "$place/libtern.so.1" ]; then
    library=$(cd "$place" && pwd)/libtern.so.1
    break
  fi
done
if [ -z "$library" ]; then
  echo "no libtern.so.1 in $programs, beside it or in lib beside it: build the targets tern, ternd and ternctl" >&2
  exit 1
fi

if environment=$(tools/python_env.sh); then
  python=$environment/bin/python
  (cd python && "$environment/bin/ruff" check . && "$environment/bin/mypy" -p tern)
else
  python=${PYTHON:-/usr/bin/python3}
  echo "ruff and mypy were not run: there is no environment for them"
fi

if ! "$python" -c 'import torch.distributed' 2>/dev/null; then
  echo "python/tests/torch was not run: there is no PyTorch in this environment; see make test-torch"
fi

# Files of the interpreter do not go into the tree.
cd python
exec env -u TERN_SOCKET -u XDG_RUNTIME_DIR \
  TERN_LIBRARY="$library" TERN_PROGRAMS="$programs" PYTHONPATH="$PWD" PYTHONDONTWRITEBYTECODE=1 \
  "$python" -m pytest -p no:cacheprovider -q "$@"
