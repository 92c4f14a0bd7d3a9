#!/bin/sh
# Times the first minute of a new user without root: on each of two nodes an empty environment, the
# wheel in it, then the first example over both. A node is a set of namespaces (network, processes,
# mounts with a /tmp of its own) that root makes and in which nobody is root.
#
#   first_minute.sh [WHEEL]    default: the one in build/wheels
#
# What pip would download is fetched before and not timed. Prints seconds; exit status 1 if it took a
# minute or more, or left something running or lying about.
set -eu
cd "$(dirname "$0")/.."
wheel=${1:-$(ls build/wheels/tern-*.whl)}
python=${PYTHON:-/usr/bin/python3}
user=54321 # nobody's
port=7788
if [ "$(id -u)" != 0 ]; then
  echo "root has to make the namespaces, and then is nobody in them" >&2
  exit 2
fi

folder=$(mktemp -d /var/tmp/tern-minute-XXXXXX)
chmod 755 "$folder"
a=tern-minute-a-$$
b=tern-minute-b-$$
clean() {
  ip netns delete "$a" 2>/dev/null || true
  ip netns delete "$b" 2>/dev/null || true
  rm -rf "$folder"
}
trap clean EXIT
trap 'exit 130' INT TERM

"$python" -m pip download --quiet --disable-pip-version-check --dest "$folder/wheels" "$wheel" >&2
cp examples/python/all_reduce.py "$folder"
chmod -R a+rX "$folder"

ip netns add "$a"
ip netns add "$b"
ip link add tern0 netns "$a" type veth peer name tern0 netns "$b"
ip -n "$a" address add 10.77.0.1/24 dev tern0
ip -n "$b" address add 10.77.0.2/24 dev tern0
for node in "$a" "$b"; do
  ip -n "$node" link set tern0 up
  ip -n "$node" link set lo up
done

# The last step, on a node: what it has started is gone, or is said and fails the step.
cat >"$folder/run_example.sh" <<'EOF'
set -eu
tern run --nnodes 2 --rdzv "$1" --secret-file job.key "$2"
left=$(pgrep -a 'ternd|python' || true; find /tmp ! -path /tmp ! -path '/tmp/tern-*/lock' ! -type d)
if [ -n "$left" ]; then
  echo "the job has left: $left" >&2
  exit 1
fi
EOF

# on NODE COMMAND...: runs it there as the new user, in the home that only this node sees.
on() {
  node=$1
  shift
  mkdir -p "$folder/$node"
  chown "$user:$user" "$folder/$node"
  # shellcheck disable=SC2016 # the inner shell expands
  ip netns exec "$node" unshare --mount --pid --ipc --uts --fork --mount-proc --kill-child sh -eu -c '
    folder=$1 home=$2 user=$3
    shift 3
    mount -t tmpfs -o mode=1777 tmpfs /tmp
    # As small as in no container: arrays do not travel through it.
    mount -t tmpfs -o mode=1777,size=64k tmpfs /dev/shm
    cd "$home"
    exec setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs \
      env -i HOME="$home" PATH="$home/env/bin:/usr/bin:/bin" LANG=C.UTF-8 TERN_IDLE_SECONDS=1 "$@"
  ' sh "$folder" "$folder/$node" "$user" "$@"
}

now() { date +%s.%N; }
seconds() { awk -v from="$1" -v to="$2" 'BEGIN { printf "%.1f", to - from }'; }
# both COMMAND...: on both nodes at once, as two machines would.
both() {
  on "$a" "$@" &
  first=$!
  on "$b" "$@" || return 1
  wait "$first"
}

echo "$(nproc) cores, load $(cut -d ' ' -f 1 /proc/loadavg)"
began=$(now)
both "$python" -m venv env
made=$(now)
both pip install --quiet --disable-pip-version-check --no-index --find-links "$folder/wheels" tern
installed=$(now)
on "$a" ternctl pki new-key job.key >/dev/null
cp -p "$folder/$a/job.key" "$folder/$b/job.key" # by ssh
both sh "$folder/run_example.sh" "10.77.0.1:$port" "$folder/all_reduce.py"
ended=$(now)

echo "environment: $(seconds "$began" "$made") s"
echo "installation: $(seconds "$made" "$installed") s"
echo "example: $(seconds "$installed" "$ended") s"
echo "together: $(seconds "$began" "$ended") s besides the download"
[ "$(seconds "$began" "$ended" | cut -d . -f 1)" -lt 60 ]
