#!/usr/bin/python3
"""The Debian packages under a real systemd: run by root in a guest, with build/deb filled by `make deb`.

    service_test.py FOLDER_WITH_DEBS

Installs, uses, hurts, upgrades, removes and purges the service, and prints each step.
"""

import contextlib
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys

from service import (CONFIG, check, compile_program, eventually, exposure, find_packages, install_packages, logged,
                     main_pid, run, shown, step, ternctl)

HERE = pathlib.Path(__file__).resolve().parent
STATE = pathlib.Path("/var/lib/tern")


def await_other_than(before):
    # The new process has a number before it listens.
    eventually(lambda: main_pid() not in (0, before) and shown("ActiveState") == "active", "a new daemon")


def status(*options):
    return ternctl(*options, "status")


def user_exists():
    with contextlib.suppress(KeyError):
        return bool(pwd.getpwnam("tern"))
    return False


# ---- Steps, in their order


def install(debs):
    install_packages(debs)
    check(shown("ActiveState") == "active", "the service is not active after the installation")
    check(shown("SubState", "ternd.socket") == "running", "the socket unit has not handed over its socket")
    check(pwd.getpwuid(os.stat(f"/proc/{main_pid()}").st_uid).pw_name == "tern", "the daemon is not of the user tern")
    check(status()["pid"] == main_pid(), "ternctl does not see the daemon")
    check("listens on 127.0.0.1:7700 (plaintext, this machine only)" in shown("StatusText"), shown("StatusText"))
    eventually(lambda: logged("ternd 0", "SYSLOG_IDENTIFIER=ternd"), "the journal has a line of the daemon")
    # Handed over before the daemon ran, and not replaced by it.
    check(os.stat("/run/tern/ternd.sock").st_mode & 0o777 == 0o666, "mode of the clients' socket")
    check(os.stat("/run/tern/control.sock").st_mode & 0o777 == 0o666, "mode of the control socket")
    check(os.stat("/run/tern/control.counters").st_mode & 0o777 == 0o640, "mode of the counters file")
    # Who is not in the group tern sees what is his, and members see all.
    check("what is this user's" in run("runuser", "-u", "nobody", "--", "ternctl", "status"), "a stranger's status")
    run("runuser", "-u", "nobody", "--", "ternctl", "counters", status=4)
    check("clients_accepted" in run("runuser", "-u", "nobody", "-g", "tern", "--", "ternctl", "counters"), "a member's counters")
    run("runuser", "-u", "nobody", "--", "ternctl", "counters", "--file", "/run/tern/control.counters", status=4)
    check("clients_accepted" in run("ternctl", "counters", "--file", "/run/tern/control.counters"), "the counters file")
    check(run("ternctl", "health").startswith("OK: "), "the daemon's health")
    check("memory lock: enough may be locked" in run("ternctl", "doctor"), "the limit of locked memory")


def sandbox():
    check(exposure("ternd.service") < 2.0, "the sandbox is too open")
    # There is no such device here: that systemd takes the drop-in, and that the service lives with it.
    drop_ins = pathlib.Path("/etc/systemd/system/ternd.service.d")
    drop_ins.mkdir()
    shutil.copy("/usr/share/tern/drop-ins/cuda.conf", drop_ins)
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", "ternd")
    check("char-nvidia rw" in shown("DeviceAllow") and shown("ProcSubset") == "all", shown("DeviceAllow"))
    check(shown("ActiveState") == "active", "the service with the drop-in for CUDA")
    shutil.rmtree(drop_ins)
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", "ternd")


def documents():
    for page in ("ternd", "ternctl", "tern-bench", "ternd.toml", "tern"):
        check("SYNOPSIS" in run("man", page) or page == "ternd.toml", f"man {page}")
    check("status" in run("bash", "-c", "source /usr/share/bash-completion/completions/ternctl; COMP_WORDS=(ternctl sta);"
                          "COMP_CWORD=1; _ternctl; echo ${COMPREPLY[@]}"), "the completion of ternctl")


def start_client(program):
    """As another user, because that is whose programs connect. Not by runuser, which stays between the two:
    to kill it would leave the program."""
    client = subprocess.Popen([program], user="nobody", group="nogroup", extra_groups=[], stdout=subprocess.PIPE,
                              text=True, env={**os.environ, "TERN_JOB": "resnet"})
    for line in ("reduced 1 2 3\n", "waits\n"):
        said = client.stdout.readline()
        check(said == line, f"the client says {said!r}")
    return client


def kill_under_client(program):
    client = start_client(program)
    rows = ternctl("clients")
    check([row["uid"] for row in rows] == [pwd.getpwnam("nobody").pw_uid], f"the daemon sees the users {rows}")
    eventually(lambda: logged("connected: pid", "TERN_JOB=resnet"), "the journal knows the job")
    before, entries = main_pid(), sorted(os.listdir("/run/tern"))
    os.kill(before, signal.SIGKILL)
    check(client.stdout.read() == "daemon lost\nreduced 1 2 3\ndone\n", "the client after the kill")
    check(client.wait() == 0, "the client's status")
    check(main_pid() not in (0, before), "no new daemon")
    check(sorted(os.listdir("/run/tern")) == entries, f"left in /run/tern: {os.listdir('/run/tern')}")
    users = {pwd.getpwnam(name).pw_uid for name in ("tern", "nobody")}
    left = [path for path in pathlib.Path("/dev/shm").iterdir() if path.lstat().st_uid in users]
    check(not left, f"left in /dev/shm: {left}")
    eventually(lambda: status()["clients"] == 0, "the client is forgotten")


def reload():
    CONFIG.write_text('[ops]\nop_timeout = "7s"\n[lanes]\nlanes = 2\n', encoding="utf-8")
    before = main_pid()
    run("systemctl", "reload", "ternd")
    eventually(lambda: logged("op_timeout: 7s, was 10min"), "the reload")
    eventually(lambda: shown("ActiveState") == "active", "the end of the reload")
    check(main_pid() == before, "a reload is no restart")
    check(status()["waiting_settings"] == ["lanes"], "the settings that wait for a restart")
    check("without effect: lanes" in shown("StatusText"), shown("StatusText"))
    CONFIG.write_text("[ops]\nop_timeout = 7\n", encoding="utf-8")
    run("systemctl", "reload", "ternd")
    eventually(lambda: logged("the configuration stays as it was"), "the refusal of a mistake")
    check(main_pid() == before, "a mistake ends nothing")
    run("systemctl", "stop", "ternd.socket", "ternd.service")
    run("systemctl", "start", "ternd", status=1)
    check(shown("ExecMainStatus") == "2" and shown("NRestarts") == "0", "a mistake is not tried again and again")
    CONFIG.write_text("[lanes]\nlanes = 2\n", encoding="utf-8")
    run("systemctl", "reset-failed", "ternd")
    run("systemctl", "start", "ternd")
    check(status()["lanes"] == 2, "the setting after a restart")


def hang_lane():
    fed = shown("WatchdogTimestampMonotonic")
    eventually(lambda: shown("WatchdogTimestampMonotonic") != fed, "the watchdog is fed while all is well")
    before, restarts = main_pid(), int(shown("NRestarts"))
    with subprocess.Popen([sys.executable, str(HERE / "hold_thread.py"), str(before), "tern-lane1"],
                          stdout=subprocess.PIPE, text=True) as holder:
        check(holder.stdout.readline() == "held\n", "the thread of lane 1 is not held")
        # The conductor still works, and says whom it misses.
        eventually(lambda: status()["silent_lanes"] == [1] or main_pid() != before, "the silent lane is named")
        eventually(lambda: logged("lane 1 does not answer"), "the journal names the lane")
        eventually(lambda: int(shown("NRestarts")) == restarts + 1, "the watchdog restarts the service")
    check(logged("Watchdog timeout", "_PID=1"), "it was the watchdog that restarted the service")
    await_other_than(before)
    check(status()["silent_lanes"] == [], "all lanes answer")


def instance():
    (CONFIG.parent / "ib0.toml").write_text('[network]\nlisten = "127.0.0.1:7701"\n', encoding="utf-8")
    run("systemctl", "enable", "--now", "ternd@ib0")
    check(status("--socket", "/run/tern-ib0/control.sock")["listen"] == "127.0.0.1:7701", "the instance")
    # Root changes the owner of both, so that they lie in directories of root.
    for path in ("/run/tern-ib0", "/var/lib/tern-ib0"):
        check(os.stat(path).st_uid == os.stat("/run/tern").st_uid != 0, f"the owner of {path}")
        check(os.stat(pathlib.Path(path).parent).st_uid == 0, f"the owner of what {path} lies in")
    check(shown("ActiveState", "ternd@ib0.socket") == "active", "the socket of the instance")
    # It stays, for the upgrade and the removal, and so does one that an administrator has moved.
    (CONFIG.parent / "ib1.toml").write_text('[network]\nlisten = "127.0.0.1:7702"\n', encoding="utf-8")
    moved = pathlib.Path("/run/systemd/system/ternd@ib1.service.d/elsewhere.conf")
    moved.parent.mkdir(parents=True)
    moved.write_text("[Service]\nExecStart=\nExecStart=/usr/sbin/ternd --config /etc/tern/ib1.toml "
                     "--socket /run/tern-ib1/ternd.sock --control-socket /run/tern-ib1/elsewhere.sock\n",
                     encoding="utf-8")
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "ternd@ib1")


def newer_package(debs, folder, version):
    tree = folder / version
    run("dpkg-deb", "--raw-extract", next(deb for deb in debs if deb.name.startswith("ternd_")), tree)
    control = tree / "DEBIAN/control"
    text = control.read_text(encoding="utf-8")
    control.write_text(re.sub(r"(?m)^Version: (.*)$", rf"Version: \1+{version}", text), encoding="utf-8")
    run("dpkg-deb", "--build", "-Znone", tree, folder / f"{version}.deb")
    return folder / f"{version}.deb"


def upgrade(debs, folder):
    record = STATE / "flight-of-before.json"
    record.write_text("{}", encoding="utf-8")
    config = CONFIG.read_text(encoding="utf-8")
    before, before_of_instance, before_elsewhere = main_pid(), main_pid("ternd@ib0"), main_pid("ternd@ib1")
    said = run("dpkg", "--install", newer_package(debs, folder, "newer"))
    check(main_pid() not in (0, before), "an upgrade starts the new daemon")
    check(main_pid("ternd@ib0") not in (0, before_of_instance), "and that of an instance")
    check(main_pid("ternd@ib1") == before_elsewhere != 0, "but not one whose control socket lies elsewhere")
    check("ternd@ib1.service still runs the program of before" in said, f"of which the upgrade says nothing: {said}")
    run("systemctl", "stop", "ternd@ib1.service", "ternd@ib1.socket")
    check(CONFIG.read_text(encoding="utf-8") == config and record.exists(), "an upgrade keeps configuration and state")


def upgrade_under_client(debs, folder, program):
    client = start_client(program)
    before = main_pid()
    said = run("dpkg", "--install", newer_package(debs, folder, "newest"))
    check(main_pid() == before and client.poll() is None, "an upgrade leaves a daemon with jobs alone")
    check("ternctl --socket /run/tern/control.sock drain" in said, f"the upgrade does not say what to do: {said}")
    check(not status()["draining"], "the daemon takes new jobs")
    run("runuser", "-u", "nobody", "--", "ternctl", "drain", status=4)
    run("ternctl", "drain", "--no-wait")
    eventually(lambda: "will end: waits for 1 client (resnet: 1)" in shown("StatusText"), "what the daemon waits for")
    refused = subprocess.run(["runuser", "-u", "nobody", "--", str(program)], capture_output=True, text=True, check=False)
    check("takes no new jobs" in refused.stdout, f"a new job is told {refused.stdout!r}")
    check(main_pid() == before, "the job goes on")
    client.kill()
    client.wait()
    eventually(lambda: main_pid() == 0, "the end of the daemon when its job has gone")
    client = start_client(program)
    check(main_pid() not in (0, before), "the program that connects next starts the new daemon")
    client.kill()
    client.wait()
    eventually(lambda: status()["clients"] == 0, "the client is forgotten")


def remove_and_purge():
    key = CONFIG.parent / "cluster.key"
    run("ternctl", "pki", "new-key", key)
    shutil.chown(key, "tern", "tern")
    run("dpkg", "--remove", "ternd", "libtern-dev", "libtern-cuda-dev")
    check(not pathlib.Path("/usr/sbin/ternd").exists(), "the program after a removal")
    check(shown("LoadState") in ("not-found", "masked"), "the unit after a removal")
    check(CONFIG.exists() and STATE.exists(), "a removal keeps configuration and state")
    run("pgrep", "-x", "ternd", status=1)
    run("dpkg", "--purge", "ternd", "tern-tools", "libtern-cuda-dev", "libtern-cuda1", "libtern-dev",
        "libtern-blocks1", "libtern1")
    left = [path for path in (CONFIG.parent, STATE, pathlib.Path("/run/tern"), pathlib.Path("/run/tern-ib0"),
                              pathlib.Path("/var/lib/tern-ib0"), pathlib.Path("/usr/share/tern"),
                              pathlib.Path("/etc/systemd/system/multi-user.target.wants/ternd.service"),
                              pathlib.Path("/etc/systemd/system/sockets.target.wants/ternd.socket"),
                              *pathlib.Path("/etc/systemd/system").glob("*/ternd@*"))
            if path.exists() or path.is_symlink()]
    check(not left, f"left by the purge: {left}")
    check(not user_exists(), "the user is left by the purge")
    check(not re.search(r"\b(ternd|tern-tools|libtern\S*)\b", run("dpkg-query", "--show", "--showformat", "${Package} ")),
          "dpkg remembers the packages")


def main():
    folder = pathlib.Path("/tmp/service_test")
    folder.mkdir()
    folder.chmod(0o755)
    debs = find_packages(sys.argv[1])
    for text, action in (
            ("the packages install, the service starts, notifies and answers", lambda: install(debs)),
            ("the sandbox", sandbox),
            ("manual pages and completion", documents),
            ("SIGKILL leaves no trace, and clients connect again",
             lambda: kill_under_client(compile_program(HERE / "client.c", folder))),
            ("a reload applies what it can and names the rest", reload),
            ("a lane that hangs is caught by the watchdog", hang_lane),
            ("a second fabric has a daemon of its own", instance),
            ("an upgrade keeps configuration and state", lambda: upgrade(debs, folder)),
            ("an upgrade leaves jobs alone", lambda: upgrade_under_client(debs, folder, folder / "client")),
            ("removal and purge", remove_and_purge)):
        step(text)
        action()
    print("PASSED", flush=True)


if __name__ == "__main__":
    main()
