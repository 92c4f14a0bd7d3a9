#!/usr/bin/python3
"""What tools/record_switched.py reads from a run."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import record_switched  # noqa: E402


def said(names):
    return "".join(f"[ RUN      ] SwitchedSchedule.{name}\n| nodes |\n|---:|\n| 4 |\nsome line\n"
                   f"[       OK ] SwitchedSchedule.{name} (3 ms)\n" for name in names)


class Tables(unittest.TestCase):
    def test_each_test_has_a_title_and_its_rows(self):
        text = record_switched.section(said(record_switched.TITLES))
        self.assertEqual(text.count("| 4 |"), len(record_switched.TITLES))
        self.assertNotIn("some line", text)
        for title in record_switched.TITLES.values():
            self.assertIn(f"**{title}.**", text)

    def test_a_test_without_rows_is_an_error(self):
        names = list(record_switched.TITLES)
        with self.assertRaises(ValueError):
            record_switched.section(said(names[1:]))
        with self.assertRaises(ValueError):
            record_switched.section(said(names).replace("| 4 |\n", "", 1))


if __name__ == "__main__":
    unittest.main()
