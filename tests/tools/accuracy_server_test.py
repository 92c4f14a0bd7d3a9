#!/usr/bin/python3
"""What `make accuracy` computes of a server's runs, on made-up ones. The training itself is
e2e_training_test's."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import accuracy_server  # noqa: E402


def run(seed, accuracy=0.98, ratio=40.0):
    return {"seed": seed, "accuracy": accuracy, "step_ms": 9.0, "ratio": ratio, "bits": 32 / ratio}


def result(**changes):
    raw = {form: [run(1, 0.981, 1.0), run(2, 0.983, 1.0), run(3, 0.982, 1.0)]
           for form in accuracy_server.FORMS}
    rows = {"1.00": {"server": [run(1, 0.980), run(2, 0.984), run(3, 0.982)],
                     "all_reduce": [run(1, 0.979, 44.0), {"seed": 2, "diverged": 7}, run(3, 0.981, 46.0)]},
            "1.60": {"server": [{"seed": 1, "diverged": 9}], "all_reduce": [run(1)]}}
    return {"commit": "abc1234", "processor": "a processor", "cores": 2, "day": "2026-11-25",
            "workers": 10, "steps": 1500, "seeds": [1, 2, 3], "batch": 32, "rate": None,
            "data": "all of MNIST", "raw": raw, "rows": rows} | changes


class Interval(unittest.TestCase):
    def test_is_students_of_the_mean(self):
        # Standard deviation 1, three values: 4.303 / sqrt(3).
        self.assertAlmostEqual(accuracy_server.interval([1.0, 2.0, 3.0]), 2.4843, places=4)

    def test_of_one_value_there_is_none(self):
        self.assertIsNone(accuracy_server.interval([1.0]))


class Table(unittest.TestCase):
    def rows(self):
        lines = list(accuracy_server.table(result()))
        return [line.strip("| ").split(" | ") for line in lines if line.startswith("| 1.")]

    def test_a_row_has_both_forms_and_the_papers_figures(self):
        row = self.rows()[0]
        self.assertEqual(row[:5], ["1.00", "40.0", "0.800", "98.20 ± 0.50", "+0.00 ± 0.25"])
        self.assertEqual(row[-3:], ["39.4", "0.812", "-0.05"])

    def test_runs_that_diverge_are_said_and_left_out_of_the_means(self):
        rows = self.rows()
        self.assertEqual(rows[0][5:7], ["45.0", "0.711"])
        self.assertIn("(1 of 3 diverged)", rows[0][7])
        # Seeds 1 and 3, each to raw of its own seed: -0.2 and -0.1.
        self.assertTrue(rows[0][8].startswith("-0.15 ± "), rows[0][8])
        self.assertEqual(rows[1][1:5], ["-", "-", "diverges", "-"])

    def test_what_the_paper_does_not_have_is_left_open(self):
        self.assertEqual(self.rows()[1][-3:], ["-", "-", "-"])

    def test_the_other_workload_is_said(self):
        text = next(accuracy_server.table(result(data="the images that come with the example")))
        self.assertIn("**another workload**", text)
        self.assertIn("ResNet-110 on CIFAR-10", text)
        self.assertIn("the images that come with the example", text)
        self.assertIn("10 nodes of one worker", text)
        self.assertIn("Commit abc1234, 2026-11-25, a processor with 2 cores", text)


if __name__ == "__main__":
    unittest.main()
