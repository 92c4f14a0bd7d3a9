#!/usr/bin/python3
"""What tools/cycles.py reads from a run, and its table."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import cycles  # noqa: E402


class Table(unittest.TestCase):
    def test_a_run_says_how_much_memory_there_was(self):
        said = ("[ RUN ]\nmemory before and after 100000 cycles: 1024 and 2048 KiB\n"
                "memory before and after 100000 cycles: 2048 and 2100 KiB\n[ OK ]\n")
        self.assertEqual(cycles.parse(said), {"cycles": 100000, "few": 2048, "many": 2100})
        self.assertIsNone(cycles.parse("it died"))

    def test_a_row_has_the_growth_and_the_verdict(self):
        row = {"kind": "Peer", "held": True, "seconds": 61.4, "cycles": 101000, "few": 2048, "many": 2100}
        self.assertEqual(cycles.cells(row), ["`Peer`", "101,000", "2,048 KiB", "2,100 KiB", "52 KiB", "61", "yes"])

    def test_a_kind_that_died_has_no_memory(self):
        row = {"kind": "Peer", "held": False, "seconds": 3.0}
        self.assertEqual(cycles.cells(row), ["`Peer`", "", "", "", "", "3", "**no**"])

    def test_all_lines_have_as_many_cells(self):
        rows = [{"kind": "Peer", "held": False, "seconds": 3.0}]
        self.assertEqual({line.count("|") for line in cycles.table(rows).splitlines()}, {8})


if __name__ == "__main__":
    unittest.main()
