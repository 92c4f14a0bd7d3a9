#!/usr/bin/python3
"""What tools/torch_repository.py makes of the results of files."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import torch_repository  # noqa: E402


def entry(area, files, commits):
    return {"tests_of": "2.12.1", "torch": "2.15.0", "area": area, "files": files, "of_files": 3,
            "commits": commits, "dates": dict.fromkeys(commits, "2026-11-27")}


class Table(unittest.TestCase):
    def test_a_row_says_how_many_files_and_of_which_commits(self):
        table = torch_repository.table([entry(
            "DTensor", {"a.py": {"A.one": "passed", "A.two": "failed"}, "b.py": {"B.one": "passed"}},
            {"a.py": "111", "b.py": "222"})])
        self.assertIn("| DTensor | 2 of 3 | 3 | 2 | 111, 222 | 2026-11-27 |", table)
        self.assertTrue(table.endswith("- `a.py: A.two`"))

    def test_a_commit_is_named_once(self):
        table = torch_repository.table([entry("FSDP2", {"a.py": {}, "b.py": None},
                                              {"a.py": "111", "b.py": "111"})])
        self.assertIn("| FSDP2 | 2 of 3 | 0 | 0 | 111 |", table)


class Compare(unittest.TestCase):
    def setUp(self):
        self.before = torch_repository.compare_file
        self.addCleanup(setattr, torch_repository, "compare_file", self.before)

    def compare(self, minutes):
        torch_repository.compare_file = lambda file: {"A.one": "passed"}
        kept = []
        tests = pathlib.Path("/tests")
        options = type("Options", (), {"minutes": minutes})
        found = torch_repository.compare(tests, {"DTensor": [tests / "a.py", tests / "b.py"]}, options,
                                         lambda *words: kept.append(words))
        return found, kept

    def test_each_file_is_kept_when_it_has_ended(self):
        found, kept = self.compare(1)
        self.assertEqual([(area, file) for area, file, _ in kept],
                         [("DTensor", "a.py"), ("DTensor", "b.py")])
        self.assertEqual(found["DTensor"]["b.py"], {"A.one": "passed"})

    def test_no_file_begins_after_its_time(self):
        found, kept = self.compare(-1)
        self.assertEqual((found, kept), ({}, []))


if __name__ == "__main__":
    unittest.main()
