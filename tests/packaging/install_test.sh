#!/bin/sh
# Installs into a folder that the build does not know, looks at what a service needs and what the library
# needs and shows, moves the folder, and builds the first program against it by pkg-config and by CMake's
# find_package, and README's, as somebody else's project would. Without a daemon they must say so.
#
#   install_test.sh CMAKE SOURCE_DIR BUILD_DIR CC
set -eu
cmake=$1 source=$2 build=$3 compiler=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

fail() {
  echo "install_test: $1" >&2
  exit 1
}

says_daemon_absent() {
  rm -f "$work/id"
  if TERN_SOCKET=$work/no-daemon.sock LD_LIBRARY_PATH=$libraries "$1" "$work/id" 0 1 2>"$work/said"; then
    fail "$1 found a daemon that is not there"
  fi
  grep -q 'no ternd listens' "$work/said" || fail "$1 says: $(cat "$work/said")"
}

"$cmake" --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || fail "$(cat "$work/log")"

# The units run the program that was installed, with the configuration that was installed.
units=$work/first/lib/systemd/system
for unit in ternd.service ternd@.service ternd.socket ternd@.socket; do
  [ -f "$units/$unit" ] || fail "$unit is not installed"
  ! grep -n '@TERN' "$units/$unit" || fail "$unit has a place without a value"
done
grep -q "^ExecStart=$work/first/sbin/ternd --config $work/first/etc/tern/ternd.toml\$" "$units/ternd.service" ||
  fail "ternd.service starts another program"
[ -f "$work/first/lib/sysusers.d/tern.conf" ] && [ -f "$work/first/lib/tmpfiles.d/tern.conf" ] ||
  fail 'no user or no folder for the service'
"$work/first/sbin/ternd" --config "$work/first/etc/tern/ternd.toml" --help >/dev/null ||
  fail 'the sample configuration is refused'
for page in man1/ternctl.1 man1/tern-bench.1 man3/tern.3 man5/ternd.toml.5 man8/ternd.8; do
  [ -s "$work/first/share/man/$page" ] || fail "$page is not installed"
done
"$work/first/bin/ternctl" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p' >"$work/verbs"
[ -s "$work/verbs" ] || fail 'ternctl --help lists no verb'
while read -r verb; do
  grep -Eq "^\.BR? $verb\b" "$work/first/share/man/man1/ternctl.1" || fail "ternctl.1 does not know $verb"
done <"$work/verbs"
grep -oh 'TERN_API [^;]*' "$source/client_lib/include/tern/"*.h | sed -n 's/.*\(tern_[a-z_]*\)(.*/\1/p' |
  while read -r name; do
    grep -q "$name(" "$work/first/share/man/man3/tern.3" || fail "tern.3 does not know $name"
  done
# A second installation leaves an operator's configuration alone.
echo '# mine' >"$work/first/etc/tern/ternd.toml"
"$cmake" --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
[ "$(cat "$work/first/etc/tern/ternd.toml")" = '# mine' ] || fail 'the configuration was replaced'

mv "$work/first" "$work/prefix"
pc=$(find "$work/prefix" -name tern.pc)
[ -n "$pc" ] || fail 'tern.pc is not installed'
libraries=$(dirname "$(find "$work/prefix" -name libtern.so)")
for program in sbin/ternd bin/ternctl; do
  LD_LIBRARY_PATH=$libraries "$work/prefix/$program" --version >/dev/null ||
    fail "$program does not run"
done

# The library needs nothing but the C and C++ runtime, and shows nothing but versioned functions of its ABI.
library=$libraries/libtern.so.1
readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$work/needed"
grep -q '^libc\.so' "$work/needed" || fail "readelf says nothing of $library"
! grep -Ev '^(libc|libm|libstdc\+\+|libgcc_s|ld-linux[a-z0-9_-]*)\.so' "$work/needed" >"$work/strange" ||
  fail "libtern needs $(tr '\n' ' ' <"$work/strange")"
# The version itself is listed as an absolute symbol.
nm -D --defined-only "$library" | sed -n 's/^[0-9a-f]* [^A] //p' >"$work/shown"
! grep -Ev '^tern_[a-z_]+@@TERN_1$' "$work/shown" >"$work/strange" ||
  fail "libtern shows $(tr '\n' ' ' <"$work/strange")"
grep -oh 'TERN_API [^;]*' "$source/client_lib/include/tern/"*.h | sed -n 's/.*\(tern_[a-z_]*\)(.*/\1/p' |
  while read -r name; do
    grep -q "^$name@@TERN_1\$" "$work/shown" || fail "libtern does not show $name"
  done
# Programs that were built with the library of commit 97f982e link these.
while read -r name; do
  grep -q "^$name@@TERN_1\$" "$work/shown" || fail "libtern does not show $name any more"
done <"$source/tests/packaging/functions_of_old_programs.txt"

# The library for GPUs needs no CUDA, and shows its own functions alone.
library=$libraries/libtern_cuda.so.1
readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$work/needed"
grep -q '^libtern\.so\.1$' "$work/needed" || fail 'libtern_cuda does not need libtern'
! grep -E 'cuda|nvidia' "$work/needed" >"$work/strange" || fail "libtern_cuda needs $(tr '\n' ' ' <"$work/strange")"
nm -D --defined-only "$library" | sed -n 's/^[0-9a-f]* [^A] //p' | sort >"$work/shown"
grep -oh 'TERN_API [^;]*' "$source/cuda/include/tern/cuda.h" | sed -n 's/.*\(tern_cuda_[a-z_]*\)(.*/\1@@TERN_CUDA_1/p' |
  sort >"$work/declared"
cmp -s "$work/shown" "$work/declared" || fail "libtern_cuda shows $(tr '\n' ' ' <"$work/shown")"
cat >"$work/gpu.c" <<EOF
#include <tern/cuda.h>
int main(void) { return tern_cuda_open(0, 0, 0) == TERN_ERR_INVALID_ARGUMENT ? 0 : 1; }
EOF
# Split into words on purpose, as below.
cuda_flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs tern-cuda)
"$compiler" -Wall -Wextra -Werror "$work/gpu.c" $cuda_flags -o "$work/gpu"
LD_LIBRARY_PATH=$libraries "$work/gpu" || fail 'libtern_cuda cannot be called'

# Split into words on purpose: these are flags.
flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs tern)
"$compiler" "$source/examples/first_program/first_program.c" $flags -o "$work/by_pkg_config"
says_daemon_absent "$work/by_pkg_config"
# README's program, which is another text.
sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '/^```/d' >"$work/of_readme.c"
grep -q 'tern_all_reduce' "$work/of_readme.c" || fail 'README has no program in C'
"$compiler" -Wall -Wextra -Werror "$work/of_readme.c" $flags -o "$work/of_readme"
says_daemon_absent "$work/of_readme"

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.16)
project(outside C)
find_package(tern 0.1 REQUIRED)
add_executable(by_cmake "$source/examples/first_program/first_program.c")
target_link_libraries(by_cmake PRIVATE tern::tern)
EOF
"$cmake" -S "$work/project" -B "$work/project/build" -DCMAKE_C_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
"$cmake" --build "$work/project/build" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
says_daemon_absent "$work/project/build/by_cmake"
