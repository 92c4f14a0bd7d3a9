#!/usr/bin/python3
"""What `make demo` computes and promises, on made-up reports: the keys and figures of result.json, and
that each promise can be missed. The training itself is e2e_training_test's."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import demo  # noqa: E402
import training  # noqa: E402

RANKS = 4


def reports(step_ms, wire_bytes, accuracy, **changes):
    """Of four ranks on two nodes; the second node sends a fifth more."""
    made = []
    for rank in range(RANKS):
        made.append({"steps": 800, "step_ms": step_ms, "test_accuracy": accuracy, "weights_agree": True,
                     "wire_bytes_per_step": wire_bytes * (1.0 if rank < 2 else 1.2),
                     "weights_checksum": "0123abcd",
                     "accuracy": [{"seconds": 1.5, "test_accuracy": accuracy}]})
    made[-1] |= changes
    return made


def rows(compressed=(5.0, 20_000, 0.966), raw_accuracy=0.967, **changes):
    made = [training.summarize("raw", reports(100.0, 1_000_000, raw_accuracy), 800 * 2_400_000),
            training.summarize("3lc:s=1", reports(*compressed, **changes), None)]
    training.compare(made)
    return made


class DemoPromises(unittest.TestCase):
    def test_a_row_has_what_result_json_promises(self):
        raw, compressed = rows()
        for row in (raw, compressed):
            self.assertLessEqual({"recipe", "steps", "step_ms", "wire_bytes_per_step", "ratio", "test_accuracy",
                                  "speedup_vs_raw", "accuracy", "weights_agree"}, set(row))
        self.assertEqual((raw["recipe"], raw["steps"], raw["ratio"], raw["speedup_vs_raw"]), ("raw", 800, 1, 1))
        self.assertAlmostEqual(raw["wire_bytes_per_step"], 1_100_000)  # the mean of both nodes
        self.assertAlmostEqual(raw["link_bytes_per_step"], 1_200_000)
        self.assertNotIn("link_bytes_per_step", compressed)
        self.assertAlmostEqual(compressed["ratio"], 50)
        self.assertAlmostEqual(compressed["speedup_vs_raw"], 20)

    def test_good_runs_miss_nothing(self):
        self.assertEqual(list(demo.missed_promises(rows(), shaped=True)), [])

    def missed(self, shaped=True, **made):
        found = list(demo.missed_promises(rows(**made), shaped))
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_every_promise_can_be_missed(self):
        self.assertIn("raw reached 94.99 %", self.missed(raw_accuracy=0.9499, compressed=(5, 20_000, 0.9499)))
        self.assertIn("points below raw", self.missed(compressed=(5, 20_000, 0.9615)))
        self.assertIn("4.8 times faster", self.missed(compressed=(21, 20_000, 0.967)))
        self.assertIn("weights differ", self.missed(weights_checksum="0123abce"))
        self.assertIn("weights differ", self.missed(weights_agree=False))

    def test_half_a_point_is_kept_and_an_unshaped_link_promises_no_speed(self):
        self.assertEqual(list(demo.missed_promises(rows((5, 20_000, 0.962)), shaped=True)), [])
        self.assertEqual(list(demo.missed_promises(rows((90, 20_000, 0.967)), shaped=False)), [])


if __name__ == "__main__":
    unittest.main()
