"""What the other tests in guests rely on: output and exit status come back, from either kind of guest."""

import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77


def guest(*words):
    return subprocess.run([sys.executable, HERE / "run_in_guest.py", *words], capture_output=True, text=True, check=False)


def check(done, status, *words):
    if done.returncode == SKIPPED:
        print(done.stdout)
        sys.exit(SKIPPED)
    missing = [word for word in words if word not in done.stdout]
    if done.returncode != status or missing:
        sys.exit(f"status {done.returncode} for {status}, missing {missing}\n{done.stdout}\n{done.stderr}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        note = pathlib.Path(folder) / "note"
        check(guest("--writable", folder, "--environment", "WORD=a b", "--", "bash", "-c",
                    f"echo said $WORD; cat /proc/1/comm; touch /usr/x; echo written >{note}; exit 3"),
              3, "said a b", "Read-only file system")
        assert note.read_text(encoding="utf-8") == "written\n"
    check(guest("--systemd", "--", "bash", "-c", "cat /proc/1/comm; echo >/etc/written && echo wrote; exit 4"),
          4, "systemd", "wrote")
    check(guest("--timeout", "20", "--", "sleep", "1000"), 124)
    check(guest("--", "bash", "-c", "echo b >/proc/sysrq-trigger; sleep 60"), 125)


if __name__ == "__main__":
    main()
