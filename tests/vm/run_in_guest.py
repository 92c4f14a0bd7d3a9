#!/usr/bin/python3
"""Boots Debian's kernel under emulation and runs a command in it, as root.

    run_in_guest.py [options] -- COMMAND [ARGUMENT ...]

The guest's root is this machine's, read-only: what was built here runs there. Writable in the guest are
/tmp, /run, /var/tmp, /dev/shm and the folders given by --writable. The exit status is the command's; 77
says that there is no emulator or no kernel to be had (ctest counts it as a skip), 124 that the time was
up, 125 that the guest died. README.md beside this file says more.
"""

import argparse
import contextlib
import ctypes
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from guest_kernel import KernelMissing, find_kernel

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
SKIPPED, TIMED_OUT, DIED = 77, 124, 125
# What mounting the root needs; everything else is loaded from the mounted root.
BOOT_MODULES = ("virtio_pci", "9p", "9pnet_virtio", "overlay")
# rxe refuses to start without crc32_generic.
MODULES = ("virtio_net", "veth", "dummy", "tun", "sch_netem", "sch_tbf", "sch_prio", "cls_u32", "act_gact", "act_police",
           "crc32_generic", "rdma_rxe", "rdma_ucm")


COUNTED = ("-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off")


def programs_missing():
    return [name for name in ("qemu-system-x86_64", "busybox", "modprobe", "depmod") if not program(name)]


def program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")


def module_files(kernel, names):
    """The files behind modules and what they depend on, in the order of loading."""
    files = []
    for name in names:
        shown = subprocess.run(
            [program("modprobe"), "--dirname", kernel.root, "--set-version", kernel.version, "--show-depends", name],
            capture_output=True, text=True, check=True).stdout
        for line in shown.split("\n"):
            words = line.split()
            if words[:1] == ["insmod"] and words[1] not in files:
                files.append(words[1])
    return files


def make_initramfs(kernel, folder):
    tree = folder / "initramfs"
    for name in ("bin", "modules", "dev", "proc", "sys", "newroot"):
        (tree / name).mkdir(parents=True)
    shutil.copy(program("busybox"), tree / "bin/busybox")
    shutil.copy(HERE / "guest_init.sh", tree / "init")
    for number, file in enumerate(module_files(kernel, BOOT_MODULES)):
        shutil.copy(file, tree / "modules" / f"{number:02}.ko")
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*"))) + "\n"
    image = folder / "initramfs.cpio"
    with image.open("wb") as out:
        subprocess.run([program("busybox"), "cpio", "-o", "-H", "newc"], cwd=tree, input=names.encode(), stdout=out,
                       stderr=subprocess.DEVNULL, check=True)
    return image


def write_exchange(options, kernel, folder):
    """What guest_init.sh reads, and where it leaves the exit status."""
    exchange = folder / "exchange"
    exchange.mkdir()
    environment = [f"export {each}\n" for each in map(shlex.quote, options.environment)]
    (exchange / "command").write_text(
        f"#!/bin/bash\n{''.join(environment)}cd {shlex.quote(os.getcwd())}\nexec {shlex.join(options.command)}\n",
        encoding="utf-8")
    (exchange / "modules").write_text("\n".join(module_files(kernel, MODULES)) + "\n", encoding="utf-8")
    # The guest has its own of these folders; a tree that lies in one is to be seen all the same.
    hidden = [path for path in {PROJECT, pathlib.Path.cwd()} if path.is_relative_to("/tmp")
              or path.is_relative_to("/var/tmp") or path.is_relative_to("/run")]
    (exchange / "shown").write_text("".join(f"{path}\n" for path in sorted(hidden)), encoding="utf-8")
    (exchange / "writable").write_text("".join(f"{path}\n" for path in options.writable), encoding="utf-8")
    (exchange / "settings").write_text(
        f"mode={'systemd' if options.systemd else 'plain'}\nkernel_modules={kernel.root / 'lib/modules' / kernel.version}\n",
        encoding="utf-8")
    return exchange


def share(tag, path, extra=""):
    return ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap{extra}"]


def qemu_command(options, kernel, folder):
    exchange = write_exchange(options, kernel, folder)
    command = [
        # `rep movsb`, the fastest copy of a processor that has erms, is emulated byte by byte.
        program("qemu-system-x86_64"), *(COUNTED if options.icount else ("-accel", "tcg,thread=multi")),
        "-cpu", "max,-erms,-fsrm", "-smp", str(1 if options.icount else options.cpus),
        "-m", options.memory, "-nodefaults", "-display", "none", "-no-reboot",
        "-kernel", kernel.image, "-initrd", make_initramfs(kernel, folder),
        "-append", "console=ttyS0 quiet panic=-1 net.ifnames=0 tsc=reliable clocksource=tsc",
        "-serial", f"file:{folder / 'console'}",  # the kernel's words
        "-chardev", "stdio,id=output,signal=off", "-serial", "chardev:output",  # the command's
        *share("host", "/", ",readonly=on"), *share("exchange", exchange)]
    for number, path in enumerate(options.writable):
        command += share(f"writable{number}", path)
    if options.cable:
        command += ["-netdev", f"socket,id=cable,{options.cable}",
                    "-device", f"virtio-net-pci,netdev=cable,mac=52:54:00:00:00:{options.number:02x}"]
    return [str(word) for word in command]


def die_with_parent():
    """Runs in a child before exec: nobody waits for a guest whose caller was killed."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def run_guest(options, kernel, folder):
    try:
        subprocess.run(qemu_command(options, kernel, folder), stdin=subprocess.DEVNULL, timeout=options.timeout,
                       preexec_fn=die_with_parent, check=False)
    except subprocess.TimeoutExpired:
        print(f"\nrun_in_guest.py: not done after {options.timeout} s", file=sys.stderr)
        show_console(folder)
        return TIMED_OUT
    with contextlib.suppress(OSError, ValueError):
        return int((folder / "exchange/status").read_text(encoding="utf-8"))
    print("\nrun_in_guest.py: the guest ended without an exit status", file=sys.stderr)
    show_console(folder)
    return DIED


def show_console(folder):
    with contextlib.suppress(OSError):
        lines = (folder / "console").read_text(encoding="utf-8", errors="replace").split("\n")
        print("its console's last lines:\n" + "\n".join(lines[-40:]), file=sys.stderr)


def parse_options():
    parser = argparse.ArgumentParser(description="Run a command in a guest under emulation.")
    parser.add_argument("--systemd", action="store_true", help="boot systemd first; the root can be written, in memory")
    parser.add_argument("--writable", action="append", default=[], metavar="FOLDER",
                        help="a folder of this machine that the guest may write; it lies at the same path there")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--memory", default="2G")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--icount", action="store_true",
                        help="one processor whose clock counts its instructions, 1 ns each, whatever the host does")
    parser.add_argument("--cable", metavar="listen=HOST:PORT|connect=HOST:PORT",
                        help="joins the eth0 of two guests; start the one that listens first")
    parser.add_argument("--number", type=int, default=1, help="tells apart guests on one cable")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    options.writable = [str(pathlib.Path(path).resolve()) for path in options.writable]
    return options


def main():
    options = parse_options()
    missing = programs_missing()
    if missing:
        print(f"SKIPPED: not found: {', '.join(missing)}; tools/install_dependencies.sh test installs them")
        return SKIPPED
    try:
        kernel = find_kernel()
    except KernelMissing as error:
        print(f"SKIPPED: {error}")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="tern-guest-") as folder:
        return run_guest(options, kernel, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
