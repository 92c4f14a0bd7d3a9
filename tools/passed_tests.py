"""Which tests have passed on this very tree, so that a long run can be taken up again where it ended."""

import hashlib
import json
import pathlib
import subprocess
import time


def digest_of_tree(root):
    """Of every file that git knows or would add: names, modes and bytes."""
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             cwd=root, capture_output=True, check=True).stdout
    whole = hashlib.sha256()
    for name in sorted(set(listing.split(b"\0")) - {b""}):
        path = root / name.decode()
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        whole.update(b"%s %o %d\n" % (name, path.stat().st_mode, len(content)))
        whole.update(content)
    return whole.hexdigest()


class PassedTests:
    """A file in build/: {"tree": ..., "full": ..., "passed": {stage: {test: number of cases}},
    "failed": {stage: [what failed in any run]}, "targets": {stage: [what codec_test said of SIMD targets]},
    "seconds": {stage: so far}, "ended": {stage: cases}}.
    What it says of another tree, or of a short run where a full one is due, is forgotten.

    `tree_now`: says which tree there is now. What passes is written when that is the same as before, which is
    asked now and then, because it reads all files: so a test that passed on a changed tree is not recorded."""

    ASKED_EVERY_S = 20.0

    def __init__(self, path, tree, full, tree_now=None):
        self.tree = tree
        self._path = path
        self._tree_now = tree_now or (lambda: tree)
        self._asked = time.monotonic()
        self._unconfirmed = {}
        self._state = {"tree": tree, "full": full, "passed": {}, "failed": {}, "targets": {},
                       "seconds": {}, "ended": {}}

    def read(self):
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if all(known.get(key) == self._state[key] for key in ("tree", "full")):
            self._state |= known

    def of_stage(self, stage):
        return dict(self._state["passed"].get(stage, {}))

    def add(self, stage, cases_by_test):
        self._unconfirmed.setdefault(stage, {}).update(cases_by_test)
        if time.monotonic() >= self._asked + self.ASKED_EVERY_S:
            self.confirm()

    def confirm(self):
        """Whether the tree is the one of before. Otherwise what has passed since this was last so is forgotten."""
        passed, self._unconfirmed = self._unconfirmed, {}
        is_same = self._tree_now() == self.tree
        self._asked = time.monotonic()
        if is_same:
            for stage, cases_by_test in passed.items():
                self._state["passed"].setdefault(stage, {}).update(cases_by_test)
            self._write()
        return is_same

    def fail(self, stage, failures):
        """What passes when it is run again has failed all the same."""
        known = self._state["failed"].setdefault(stage, [])
        known += [failure for failure in failures if failure not in known]
        self._write()

    def cover(self, stage, lines):
        """A piece that has no codec_test left says nothing of targets, so what an earlier one said is kept."""
        known = self._state["targets"].setdefault(stage, [])
        known += sorted(line for line in lines if line not in known)
        self._write()

    def covered(self, stage):
        return set(self._state["targets"].get(stage, []))

    def spend(self, stage, seconds):
        self._state["seconds"][stage] = self._state["seconds"].get(stage, 0) + seconds
        self._write()

    def end(self, stage, cases):
        """All of it has passed, in this run and in those before it; None: something has failed."""
        self._state["ended"].pop(stage, None)
        if cases is not None:
            self._state["ended"][stage] = cases
        self._write()

    def ended(self):
        """{stage: {"cases": ..., "failed_before": what had to be run again, "seconds": ...}}"""
        return {stage: {"cases": cases, "failed_before": self._state["failed"].get(stage, []),
                        "seconds": round(self._state["seconds"].get(stage, 0))}
                for stage, cases in self._state["ended"].items()}

    def _write(self):
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self._state, indent=1) + "\n", encoding="utf-8")
        unfinished.rename(self._path)


if __name__ == "__main__":
    print(digest_of_tree(pathlib.Path(__file__).resolve().parent.parent))
