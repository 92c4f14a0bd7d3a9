#!/usr/bin/python3
"""What tools/attacks.py calls broken, and how it says so."""

import argparse
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import attacks  # noqa: E402

ATTACK = {"name": "knocks", "promise": "nobody hears it"}
GOOD = {"blows": 9, "ops": 50, "lost": 0, "wrong": 0, "joins_failed": 0, "versions_failed": 0, "join_p50_ms": 2.0,
        "join_max_ms": 9.0, "version_max_ms": 3.0, "small_p99_ms": 4.0, "large_p99_ms": 60.0}
TURNS = {"conductor": {"ms": 3.0, "step": "joins", "over": 0}, "lane": {"ms": 12.0, "step": "links", "over": 0}}


def rounds(*beside, turns=None):
    return [{"attack": GOOD | one, "hog": GOOD, "turns": TURNS | (turns or {})} for one in beside]


def broken(*beside):
    return attacks.row_of(ATTACK, rounds(*beside))["broken"]


class Verdict(unittest.TestCase):
    def test_a_job_like_beside_a_hog_has_met_nothing(self):
        self.assertEqual(broken({}, {}, {}), [])

    def test_one_lost_operation_of_all_rounds_counts(self):
        self.assertEqual(broken({}, {"lost": 1}, {}), ["operations"])

    def test_the_slowest_join_and_answer_of_all_rounds_count(self):
        self.assertEqual(broken({}, {}, {"join_max_ms": 1001.0, "version_max_ms": 101.0}), ["join", "version"])

    def test_a_p99_may_be_twice_that_beside_a_hog_and_5_ms_in_most_rounds(self):
        self.assertEqual(broken({"small_p99_ms": 13.0}, {"small_p99_ms": 13.0}, {}), [])
        self.assertEqual(broken({"small_p99_ms": 13.1}, {"small_p99_ms": 13.1}, {}), ["64 KiB p99"])
        self.assertEqual(broken({"large_p99_ms": 500.0}, {}, {}), [])

    def test_a_turn_over_its_budget_counts_and_says_where(self):
        of_lane = {"lane": {"ms": 31.0, "step": "commands", "over": 2}}
        row = attacks.row_of(ATTACK, rounds({}, turns=of_lane))
        self.assertEqual(row["broken"], ["lane turn"])
        self.assertIn("3.0, 31.0 (commands)", attacks.cells(row))
        self.assertIn("2 turns of lanes", attacks.longest_turns([row]))

    def test_a_job_that_died_has_a_row(self):
        row = attacks.row_of(ATTACK, [{"attack": None, "hog": GOOD}])
        self.assertEqual(len(attacks.cells(row)), len(attacks.HEAD))
        self.assertIn("the job died", attacks.cells(row)[-1])


class Table(unittest.TestCase):
    def test_every_line_has_a_cell_for_each_column(self):
        lines = attacks.table([attacks.row_of(ATTACK, rounds({}))]).split("\n")
        self.assertEqual({line.count("|") for line in lines}, {len(attacks.HEAD) + 1})


class Time(unittest.TestCase):
    def test_measurements_are_as_long_as_there_is_time(self):
        options = argparse.Namespace(minutes=10, rounds=1, seconds=None)
        self.assertAlmostEqual(attacks.Measurements(options, 100).seconds(), (6 - attacks.OVERHEAD_S) / 2, delta=0.1)
        self.assertEqual(attacks.Measurements(options, 10_000).seconds(), attacks.LEAST_S)
        options.seconds = 3.0
        self.assertEqual(attacks.Measurements(options, 100).seconds(), 3.0)


if __name__ == "__main__":
    unittest.main()
