#!/bin/sh
# Builds the Debian packages of the files that git knows, with packaging/debian as debian/, and runs
# lintian on them. They end up in build/deb.
set -eu
cd "$(dirname "$0")/.."
source=$PWD
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' packaging/debian/changelog)
project=$(sed -n 's/^project(tern VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
if [ "$version" != "$project" ]; then
  echo "make_deb: packaging/debian/changelog has $version, CMakeLists.txt has $project" >&2
  exit 1
fi
tree=build/deb/tern-$version
digest=$(/usr/bin/python3 tools/passed_tests.py)
rm -rf build/deb
mkdir -p "$tree"
git ls-files -z | tar --create --null --files-from=- --file=build/deb/tree.tar
tar --extract --file=build/deb/tree.tar --directory="$tree"
rm build/deb/tree.tar
cp -r packaging/debian "$tree/debian"
if command -v ccache >/dev/null; then
  # debhelper gives the build a home of its own.
  CCACHE_DIR=${CCACHE_DIR:-$(ccache --get-config cache_dir)} CCACHE_BASEDIR=$source/$tree CCACHE_NOHASHDIR=1
  export CCACHE_DIR CCACHE_BASEDIR CCACHE_NOHASHDIR
fi
(cd "$tree" && DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-parallel=$(nproc)}" \
  dpkg-buildpackage --build=binary --no-sign)
lintian --fail-on error,warning build/deb/*.changes
echo "$digest" >build/deb/tree.digest
ls build/deb/*.deb
