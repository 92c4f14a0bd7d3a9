#!/usr/bin/python3
"""What tools/time_to_accuracy.py computes of trainings, on made-up ones."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import time_to_accuracy as tool  # noqa: E402


def training(accuracies, step_ms=10.0):
    """Evaluated every 50 steps."""
    return {"step_ms": step_ms, "test_accuracy": accuracies[-1],
            "accuracy": [[(index + 1) * 50 * step_ms / 1e3, one] for index, one in enumerate(accuracies)]}


def entry(seconds, accuracy=0.97, step_ms=10.0, trained=True):
    return {"seconds": seconds, "test_accuracy": accuracy, "step_ms": step_ms, "trained": trained}


class Entries(unittest.TestCase):
    def test_a_static_one_is_the_steps_needed_by_the_time_of_a_step(self):
        learning = training([0.90, 0.96, 0.97], step_ms=1.0)
        found = tool.static_entry(learning, training([0.5, 0.6], step_ms=20.0), 0.955, 50)
        self.assertEqual(found["seconds"], 100 * 20.0 / 1e3)
        self.assertEqual(found["test_accuracy"], 0.97)

    def test_a_target_that_no_evaluation_reaches_has_no_seconds(self):
        self.assertIsNone(tool.static_entry(training([0.9]), training([0.5]), 0.95, 50)["seconds"])

    def test_either_run_may_diverge(self):
        whole, diverged = training([0.9]), {"diverged": 7}
        for learning, timed in ((diverged, whole), (whole, diverged)):
            self.assertEqual(tool.static_entry(learning, timed, 0.5, 50), {"diverged": 7})

    def test_auto_has_the_seconds_of_its_own_run(self):
        run = training([0.90, 0.96, 0.97], step_ms=20.0)
        self.assertEqual(tool.auto_entry(run, 0.955, True)["seconds"], 2.0)
        self.assertIsNone(tool.auto_entry(run, 0.955, False)["seconds"])


class Cell(unittest.TestCase):
    def test_has_the_median_and_the_ends(self):
        self.assertEqual(tool.cell([entry(3.0, 0.97), entry(1.0, 0.98), entry(2.0, 0.99)]),
                         "2.0 (1.0 to 3.0) s, 98.00 %, 10.0 ms a step")

    def test_says_what_did_not_get_there(self):
        self.assertEqual(tool.cell([entry(None), entry(1.0)]), "1.0 s, not reached by 1 of 2, 97.00 %, 10.0 ms a step")
        self.assertEqual(tool.cell([entry(1.0), {"diverged": 3}]), "diverges (1 of 2)")
        self.assertEqual(tool.cell([{"diverged": 3}]), "diverges")

    def test_a_training_that_was_cut_short_has_a_time_of_a_step_only(self):
        self.assertEqual(tool.cell([entry(None, trained=False)]), "10.0 ms a step")


class Loses(unittest.TestCase):
    def result(self, *entries):
        return {"targets": [0.97] * len(entries), "links": {"1gbit": {"auto balanced": list(entries)}}}

    def test_is_judged_by_the_mean_to_each_seeds_own_target(self):
        self.assertFalse(tool.loses(self.result(entry(1.0, 0.968), entry(1.0, 0.973))))
        self.assertTrue(tool.loses(self.result(entry(1.0, 0.968), entry(1.0, 0.971))))

    def test_to_diverge_is_to_lose(self):
        self.assertTrue(tool.loses(self.result(entry(1.0, 0.99), {"diverged": 5})))

    def test_what_was_cut_short_is_not_judged(self):
        self.assertFalse(tool.loses(self.result(entry(None, 0.5, trained=False))))


if __name__ == "__main__":
    unittest.main(verbosity=2)
