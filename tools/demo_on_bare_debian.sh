#!/bin/sh
# Runs `make demo` as a new user of a bare Debian 12 does, and says how long its steps take: packages,
# compilation, demonstration. Makes a root of Debian's base system in FOLDER, clones the last commit
# of this tree into it, and runs there, without ccache. Needs root, debootstrap and the network.
#
#   demo_on_bare_debian.sh FOLDER
set -eu
folder=${1:?usage: demo_on_bare_debian.sh FOLDER}
tree=$(cd "$(dirname "$0")/.." && pwd)
if [ -e "$folder" ]; then
  echo "$folder is there already: name a folder that is not" >&2
  exit 1
fi
debootstrap --variant=minbase --include=make,ca-certificates bookworm "$folder" >/dev/null
git clone -q --no-hardlinks "$tree" "$folder/srv/tern"
cp /etc/resolv.conf "$folder/etc/"

cat >"$folder/srv/demo.sh" <<'END'
cd /srv/tern
mkdir -p build
{ make demo 2>&1; echo "$?" >build/demo.status; } | while IFS= read -r line; do
  printf '%s %s\n' "$(date +%s)" "$line"
done >build/demo.log
END
begin=$(date +%s)
# The root is a mount of its own: the demonstration makes network namespaces.
# shellcheck disable=SC2016 # $0 and $name are the inner shell's
unshare --mount sh -eu -c '
  mount --bind "$0" "$0"
  for name in proc sys dev; do mount --rbind "/$name" "$0/$name"; done
  exec chroot "$0" env -i HOME=/srv PATH=/usr/sbin:/usr/bin:/sbin:/bin sh /srv/demo.sh' "$folder"
end=$(date +%s)

log=$folder/srv/tern/build/demo.log
at() { awk -v what="$1" 'index($0, what) { print $1; exit }' "$log"; }
configured=$(at 'cmake --preset release')
compiled=$(at 'tools/demo.py')
if [ -z "$configured" ] || [ -z "$compiled" ] || [ "$(cat "${log%.log}.status")" != 0 ]; then
  tail -n 40 "$log" >&2
  echo "make demo has failed; all that it said is in $log" >&2
  exit 1
fi
cut -d' ' -f2- "$log" | tail -n 6
echo "make demo on a bare Debian, commit $(git -C "$tree" rev-parse --short=8 HEAD), $(nproc) cores of" \
  "$(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo):" \
  "$((end - begin)) s; packages $((configured - begin)) s," \
  "compilation $((compiled - configured)) s, demonstration $((end - compiled)) s"
