#!/bin/sh
# Tests tern.torch against a build: its own tests; PyTorch's suite of torch.distributed from the wheel,
# under gloo and under Tern; and as far as they run on a processor, so, the tests of PyTorch's repository
# of functional collectives, FSDP2, DTensor and checkpoints.
#
#   torch_tests.sh [BIN [WORDS...]]    BIN: a folder with ternd and ternctl, libtern.so in lib beside
#                                      it (default: build/release/bin); WORDS go to torch_suite.py
#                                      (default: --world-size 2)
#
# The environment is that of tools/torch_env.sh.
set -eu
cd "$(dirname "$0")/.."
programs=$(cd "${1:-build/release/bin}" && pwd)
[ $# = 0 ] || shift
environment=$(tools/torch_env.sh)
export TERN_PROGRAMS="$programs" TERN_LIBRARY="$programs/../lib/libtern.so.1" PYTHONPATH="$PWD/python" \
  PYTHONDONTWRITEBYTECODE=1
unset TERN_SOCKET XDG_RUNTIME_DIR
(cd python && "$environment/bin/python" -m pytest -p no:cacheprovider -q tests/torch)
[ $# != 0 ] || set -- --world-size 2
record=
for word in "$@"; do
  [ "$word" != --record ] || record=--record
done
"$environment/bin/python" tools/torch_suite.py "$@"
tests=$(tools/torch_source.sh)
exec "$environment/bin/python" tools/torch_repository.py "$tests" $record
