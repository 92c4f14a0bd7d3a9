#!/bin/sh
# Tries the wheel on another Debian, by the Python of that: an empty system in a folder of its own, the
# wheel from pip, and the tests of the package against the library and daemon that the wheel brings.
#
#   try_wheel.sh SUITE [WHEEL]    SUITE: as debootstrap has it, such as trixie (Python 3.13) or sid;
#                                 WHEEL: default: the one in build/wheels
#
# Needs root, debootstrap and 1 GB below /var/tmp, which it gives back. What pip would download is
# fetched here: nothing in the new system reaches beyond Debian's packages.
set -eu
cd "$(dirname "$0")/.."
suite=$1
wheel=${2:-$(ls build/wheels/tern-*.whl)}
environment=$(tools/python_env.sh)

folder=$(mktemp -d /var/tmp/tern-debian-XXXXXX)
trap 'rm -rf --one-file-system "$folder"' EXIT
trap 'exit 130' INT TERM
root=$folder/root
debootstrap --variant=minbase \
  --include=python3,python3-venv,gcc,libc6-dev,procps,iproute2,shellcheck,ca-certificates \
  "$suite" "$root" http://deb.debian.org/debian >"$folder/log" || {
  cat "$folder/log" >&2
  exit 1
}
version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
mkdir "$root/wheels" "$root/src"
"$environment/bin/pip" download --quiet --disable-pip-version-check --dest "$root/wheels" \
  --only-binary :all: --python-version "$version" "$wheel" pytest ml_dtypes kubernetes-validate==1.37.0
# With the tests, but without the package's source, which they would find first.
git archive HEAD | tar -x -C "$root/src"
rm -r "$root/src/python/tern"

# The mounts end with the namespace.
# shellcheck disable=SC2016 # the inner shell expands
unshare --mount sh -eu -c '
  mount --rbind /dev "$1/dev"
  mount -t proc proc "$1/proc"
  mount -t sysfs sysfs "$1/sys"
  mount -t tmpfs tmpfs "$1/tmp"
  exec chroot "$1" env -i HOME=/root LANG=C.UTF-8 PATH=/env/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 TERN_OWN_BUILD=1 sh -eu -c "
      python3 -m venv /env
      pip install --quiet --disable-pip-version-check --no-index --find-links /wheels \
        tern pytest ml_dtypes kubernetes-validate
      cd /src/python
      python --version
      pytest -p no:cacheprovider -q tests --ignore tests/torch"
' sh "$root"
