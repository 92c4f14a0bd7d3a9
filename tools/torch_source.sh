#!/bin/sh
# Makes the tests of PyTorch's repository, outside of the tree, and prints the folder test/distributed.
# What is there already is left as it is.
#
#   torch_source.sh [FOLDER]    default: ~/.cache/tern/torch-source-VERSION
#
# PYTORCH_SOURCE, if set, is a checkout of PyTorch's repository, which is taken as it is. Else the sources
# come from Debian's archive, which has few versions of them at a time: PYTORCH_SOURCE_VERSION and its
# SHA-256, PYTORCH_SOURCE_SHA256, choose another.
set -eu
version=${PYTORCH_SOURCE_VERSION:-2.12.1}
sha256=${PYTORCH_SOURCE_SHA256:-95b6f85e1da2776f0cb0e5a635c4430b4e3f05b6ccb9e00237f3cecd15572875}
if [ -n "${PYTORCH_SOURCE:-}" ]; then
  echo "$PYTORCH_SOURCE/test/distributed"
  exit
fi
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/tern/torch-source-$version}
tests=$folder/pytorch-v$version/test/distributed
if [ ! -d "$tests" ]; then
  # The mirror that apt uses.
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null |
    grep '/debian/\{0,1\}$' | head -n 1)
  archive=$(mktemp)
  trap 'rm -f "$archive"' EXIT
  curl --fail --silent --show-error --location --output "$archive" \
    "${mirror:-http://deb.debian.org/debian}/pool/main/p/pytorch/pytorch_$version+dfsg.orig.tar.xz" || {
    echo "The sources of PyTorch $version cannot be fetched, as curl says. Debian's archive has few versions" \
      "at a time: check out PyTorch's repository at a tag, and set PYTORCH_SOURCE to its folder." >&2
    exit 1
  }
  echo "$sha256  $archive" | sha256sum --check --quiet >&2 || {
    echo "What was fetched is not what PYTORCH_SOURCE_SHA256 says: try again, or set it for another version." >&2
    exit 1
  }
  mkdir -p "$folder"
  # In place when it is whole.
  part=$(mktemp -d "$folder/part-XXXXXX")
  tar --extract --xz --file "$archive" --directory "$part" "pytorch-v$version/test/distributed"
  mv "$part/pytorch-v$version" "$folder"
  rmdir "$part"
fi
echo "$tests"
