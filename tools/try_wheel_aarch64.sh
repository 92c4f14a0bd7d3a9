#!/bin/sh
# Tries the wheel for aarch64 under qemu-user, with NumPy's wheel for aarch64 and Debian's arm64 Python:
#
#   - pip installs both, as it would on such a machine;
#   - the first example runs on two ranks (`tern run --nproc 2`), with a daemon of their own;
#   - a node of aarch64 and one of x86-64 give the bits of two nodes of x86-64.
#
#   try_wheel_aarch64.sh BIN    BIN: a folder with ternd and ternctl of this machine's own processor, as
#                               tools/python_tests.sh takes it
#
# A kernel runs no program of another processor by itself: where the package would start the daemon,
# ternctl or an interpreter, it finds a script of that name that starts them under qemu-user.
set -eu
cd "$(dirname "$0")/.."
programs=$1
wheel=$(ls build/wheels-aarch64/tern-*.whl)
root=$(tools/aarch64_root.sh)
environment=$(tools/python_env.sh)
# The platforms that pip takes wheels for on Debian 12, whose glibc is 2.36.
platforms=$(seq --format='--platform=manylinux_2_%g_aarch64' 36 -1 17)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
# shellcheck disable=SC2086 # one word each
"$environment/bin/pip" install --quiet --disable-pip-version-check --target "$folder/packages" \
  --only-binary :all: $platforms --python-version 3.11 "$wheel"

mkdir "$folder/bin"
# script NAME PROGRAM: what starts PROGRAM under qemu-user by NAME. -0: an interpreter starts others by
# the name that it was started by.
script() {
  printf '#!/bin/sh\nexec qemu-aarch64 -L %s -0 %s %s "$@"\n' "$root" "$folder/bin/$1" "$2" >"$folder/bin/$1"
  chmod +x "$folder/bin/$1"
}
script python3 "$root/usr/bin/python3.11"
script ternd "$folder/packages/tern/_bundled/ternd"
script ternctl "$folder/packages/tern/_bundled/ternctl"

example() {
  env -u TERN_SOCKET -u TERN_LIBRARY -u XDG_RUNTIME_DIR PYTHONHOME="$root/usr" PYTHONPATH="$folder/packages" \
    PYTHONDONTWRITEBYTECODE=1 TERN_PROGRAMS="$folder/bin" TERN_IDLE_SECONDS=1 \
    "$folder/bin/python3" -m tern run --nproc 2 examples/python/all_reduce.py
}
echo "an aarch64 Python on $("$folder/bin/python3" -c 'import platform; print(platform.machine())'):"
example

TERN_AARCH64_TERND="$folder/bin/ternd" tools/python_tests.sh "$programs" \
  tests/test_other_daemons.py -k aarch64
