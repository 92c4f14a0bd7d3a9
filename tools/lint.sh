#!/bin/sh
# The static checks. clang-tidy needs the compile commands of a configured build/tidy: the other builds
# compile several files as one, or have no fuzz targets.
#
#   lint.sh              clang-tidy on the files that differ from the main branch
#   lint.sh --all        clang-tidy on all files
#   lint.sh --no-tidy    all checks but clang-tidy
#   lint.sh --list       the files that --all has clang-tidy for, and no check
set -u
cd "$(dirname "$0")/.."
python=${PYTHON:-/usr/bin/python3}
build=build/tidy
# clang-tidy takes some seconds a file; a change of more files than this is checked in part here and
# as a whole by `make test-full`.
max_tidy_files=12
failed=0

step() {
  echo "-- $1"
  shift
  "$@" || failed=1
}

check_format() {
  git ls-files -z --cached --others --exclude-standard '*.cc' '*.h' '*.c' '*.hpp' | xargs -0 -r clang-format --dry-run --Werror
}

# The sources to check: new to git, or changed against where this branch left the main one. On the main branch
# itself, or in a shallow clone: the last commit's.
tidy_files() {
  if [ "${1:-}" = --all ]; then
    git ls-files '*.cc'
  else
    base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null)
    if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
      base=$(git rev-parse -q --verify HEAD~1 || git rev-parse HEAD)
    fi
    {
      git ls-files --others --exclude-standard '*.cc'
      git diff --name-only --diff-filter=d "$base" -- '*.cc'
    } | head -n "$max_tidy_files"
  fi
}

# Of file names those that the build compiles.
compiled() {
  while read -r file; do
    if grep -qsF "/$file\"" "$build/compile_commands.json"; then
      echo "$file"
    else
      echo "not checked, for no build here compiles it: $file" >&2
    fi
  done
}

check_tidy() {
  files=$(tidy_files "${1:-}" | compiled)
  if [ -z "$files" ]; then
    echo "no changed source"
    return 0
  fi
  echo "$files" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet -p "$build" 2>/dev/null
}

if [ "${1:-}" = --list ]; then
  tidy_files --all | compiled 2>/dev/null
  exit 0
fi
step 'layers' "$python" tools/check_layers.py
step 'shape' "$python" tools/check_shape.py
step 'tidy rules' "$python" tools/check_tidy.py
step 'documents' "$python" tools/check_docs.py
step 'clang-format' check_format
if [ "${1:-}" = --no-tidy ]; then
  exit $failed
fi
if [ -f "$build/compile_commands.json" ]; then
  step 'clang-tidy' check_tidy "${1:-}"
else
  echo "no $build/compile_commands.json: run cmake --preset tidy first" >&2
  failed=1
fi
exit $failed
