#!/usr/bin/python3
"""What is kept of a long measurement, and what is not."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from kept_runs import KeptRuns  # noqa: E402


def run(seed):
    return {"seed": seed, "accuracy": 0.98}


class KeptRunsTest(unittest.TestCase):
    def test_what_was_interrupted_finds_its_runs_and_no_others(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "runs.jsonl")
            KeptRuns(path).keep({"seed": 1, "commit": "a"}, run(1))
            kept = KeptRuns(path)
            self.assertEqual(kept.find({"seed": 1, "commit": "a"}), run(1))
            self.assertIsNone(kept.find({"seed": 2, "commit": "a"}))
            self.assertIsNone(kept.find({"seed": 1, "commit": "b"}))
            kept.keep({"seed": 2, "commit": "a-dirty"}, run(2))
            self.assertEqual(kept.find({"seed": 2, "commit": "a-dirty"}), run(2))
            with path.open("a", encoding="utf-8") as file:
                file.write('{"key": ')  # by who was killed
            kept = KeptRuns(path)
            kept.keep({"seed": 3, "commit": "a"}, run(3))
            self.assertEqual([r["key"]["seed"] for r in KeptRuns(path).runs], [1, 3])


if __name__ == "__main__":
    unittest.main()
