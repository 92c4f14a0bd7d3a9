#!/bin/sh
# Makes a root of Debian's arm64 packages, outside of the tree, and prints its folder: the libraries that
# Tern needs to be compiled for aarch64, what runs the result under qemu-user, and a Python. It is unpacked
# and not installed, needs no right of root, and leaves this system's own packages alone. A root of these
# packages that is there already is left as it is.
#
#   aarch64_root.sh [FOLDER]    default: $TERN_AARCH64_ROOT, else ~/.cache/tern/aarch64-root
set -eu
folder=${1:-${TERN_AARCH64_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/tern/aarch64-root}}
wanted='libc6-dev libstdc++-12-dev
  libhwy-dev libboost1.81-dev libexpected-dev libfmt-dev libspdlog-dev libtomlplusplus-dev
  libcli11-dev nlohmann-json3-dev libssl-dev libeigen3-dev libgtest-dev libgmock-dev libisal-dev
  libsystemd-dev prometheus-cpp-dev zlib1g-dev libzstd-dev libdeflate-dev liblz4-dev python3'

case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
if [ "$(cat "$folder/wanted" 2>/dev/null)" = "$wanted" ]; then
  echo "$folder"
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "This is not a Debian system: make a root of these packages for arm64 yourself, write their names" >&2
  echo "to $folder/wanted, and set TERN_AARCH64_ROOT=$folder:" "$wanted" >&2
  exit 1
fi

# What apt keeps of packages is kept apart: this system has none of arm64.
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
: >"$state/status"
apt() {
  apt-get -q -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
    -o "Dir::State=$state" -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache" \
    -o Debug::NoLocking=1 "$@" >&2
}
apt update
# shellcheck disable=SC2086 # one word each
apt install --no-install-recommends --download-only $wanted

# Only what this script has made is replaced, and what it has begun.
if [ -e "$folder" ] && [ ! -e "$folder/wanted" ] && [ -n "$(ls -A "$folder")" ]; then
  echo "$folder is not a root that this script has made: name an empty folder or a new one" >&2
  exit 1
fi
rm -rf "$folder"
mkdir -p "$folder"
echo 'not all of it yet' >"$folder/wanted"
# The folders of today's Debian, which the packages of libc still name as they were.
for name in bin lib sbin; do
  mkdir -p "$folder/usr/$name"
  ln -s "usr/$name" "$folder/$name"
done
for package in "$state"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" |
    tar --extract --directory="$folder" --keep-directory-symlink --no-same-owner
done
# Links of absolute paths would lead out of the root.
find "$folder" -type l -lname '/*' | while read -r link; do
  ln -sfn "$folder$(readlink "$link")" "$link"
done
echo "$wanted" >"$folder/wanted"
echo "$folder"
