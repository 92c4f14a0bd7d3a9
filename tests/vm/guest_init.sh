#!/bin/busybox sh
# The guest's first process: mounts the host's root and runs the command, or hands over to systemd, which
# runs it. The words of the command go to the second serial port, the kernel's to the first.
bb=/bin/busybox
port=/dev/ttyS1

end() {
  $bb sync
  $bb poweroff -f
}
trap end EXIT

mount_9p() {  # tag, place, options
  $bb mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000$3" "$1" "$2"
}

$bb mount -t devtmpfs dev /dev
$bb mount -t proc proc /proc
$bb mount -t sysfs sys /sys
for module in /modules/*.ko; do $bb insmod $module; done
$bb stty -F $port raw

$bb mkdir -p /exchange /host /memory
mount_9p exchange /exchange ''
. /exchange/settings
mount_9p host /host ',cache=loose,ro'
if [ "$mode" = systemd ]; then
  $bb mount -t tmpfs memory /memory
  $bb mkdir /memory/upper /memory/work
  $bb mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work root /newroot
else
  $bb mount --bind /host /newroot
fi

# Loaded from here, so that the command finds everything there; rxe's device comes with with_rxe.sh.
while read -r file; do $bb insmod "/host$file" 2>/dev/null; done </exchange/modules

for place in /run /tmp /var/tmp; do
  $bb mount -t tmpfs -o mode=1777 memory /newroot$place
done
$bb chmod 755 /newroot/run
$bb mkdir /newroot/run/vm
$bb mount --move /exchange /newroot/run/vm
while read -r folder; do
  $bb mkdir -p "/newroot$folder"
  $bb mount --bind "/host$folder" "/newroot$folder"
done </newroot/run/vm/shown
number=0
while read -r folder; do
  $bb mkdir -p "/newroot$folder" 2>/dev/null
  mount_9p writable$number "/newroot$folder" ''
  number=$((number + 1))
done </newroot/run/vm/writable

$bb cat >/newroot/run/vm/run <<'END'
#!/bin/bash
exec </dev/null >/dev/ttyS1 2>&1
bash /run/vm/command
echo $? >/run/vm/status
sync
END

for place in dev proc sys; do $bb mount --move /$place /newroot/$place; done

if [ "$mode" = systemd ]; then
  version=${kernel_modules##*/}
  $bb mkdir -p /newroot/lib/modules
  [ -e /newroot/lib/modules/$version ] || $bb ln -s "$kernel_modules" /newroot/lib/modules/$version
  units=/newroot/run/systemd/system
  $bb mkdir -p $units/multi-user.target.wants
  # These three would set up the machine that this root belongs to.
  for unit in systemd-tmpfiles-setup systemd-tmpfiles-setup-dev systemd-networkd; do
    $bb ln -s /dev/null $units/$unit.service
  done
  $bb cat >$units/vm-command.service <<'END'
[Unit]
Description=The command that this guest was booted for
After=basic.target network.target dbus.service
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/bash /run/vm/run
ExecStopPost=/bin/systemctl poweroff --force --force
END
  $bb ln -s ../vm-command.service $units/multi-user.target.wants/
  trap - EXIT
  exec $bb switch_root /newroot /lib/systemd/systemd --unit=multi-user.target
fi

$bb mkdir -p /newroot/dev/pts /newroot/dev/shm
$bb mount -t devpts devpts /newroot/dev/pts
$bb mount -t tmpfs -o mode=1777 memory /newroot/dev/shm
$bb mount -t cgroup2 cgroup /newroot/sys/fs/cgroup 2>/dev/null
$bb ip link set lo up
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb \
  $bb chroot /newroot /bin/bash /run/vm/run
