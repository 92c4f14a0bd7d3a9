#!/usr/bin/python3
"""What `make accuracy` computes of the runs of recipes, on made-up ones. The training itself is
e2e_training_test's."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import accuracy  # noqa: E402


def runs(*accuracies, wire=100.0):
    """One a seed; None for a run whose loss was no number any more."""
    return [{"seed": seed, "diverged": 7} if each is None
            else {"seed": seed, "accuracy": each, "wire_bytes_per_step": wire}
            for seed, each in enumerate(accuracies, start=1)]


RAW = {"0.1": runs(0.97, 0.98, 0.99, wire=400.0), "0.02": runs(0.96, 0.97, 0.98, wire=400.0)}


def result(**families):
    return {"commit": "abc1234", "date": "2026-11-30", "processor": "a processor", "cores": 2, "steps": 800,
            "seeds": [1, 2, 3], "raw": {"recipe": "raw", "rates": RAW},
            "families": {name: [{"recipe": "bf16", "rates": rates}] for name, rates in families.items()}}


class Cell(unittest.TestCase):
    def test_is_paired_by_seed(self):
        # +0.1, +0.1 and +0.1 points, however far the seeds are apart.
        self.assertEqual(accuracy.cell(runs(0.971, 0.981, 0.991), RAW["0.1"]), "98.10 (+0.10 ± 0.00)")

    def test_of_one_seed_has_no_interval(self):
        self.assertEqual(accuracy.cell(runs(0.971), RAW["0.1"][:1]), "97.10 (+0.10)")

    def test_is_bold_more_than_half_a_point_below_raw(self):
        self.assertEqual(accuracy.cell(runs(0.96, 0.97, 0.98), RAW["0.1"]), "**97.00 (-1.00 ± 0.00)**")
        self.assertFalse(accuracy.cell(runs(0.965, 0.975, 0.985), RAW["0.1"]).startswith("**"))

    def test_says_how_many_seeds_diverged(self):
        self.assertEqual(accuracy.cell(runs(0.97, None, 0.99), RAW["0.1"]), "diverges (1 of 3)")
        self.assertEqual(accuracy.cell(runs(None, None, None), RAW["0.1"]), "diverges")

    def test_one_seed_that_diverges_is_not_near_raw(self):
        self.assertFalse(accuracy.within(runs(0.99, None, 0.99), RAW["0.1"]))


class Ratio(unittest.TestCase):
    def test_is_that_of_the_first_rate_without_a_divergence(self):
        rates = {"0.1": runs(0.97, None, 0.97), "0.02": runs(0.96, 0.96, 0.96, wire=50.0)}
        self.assertEqual(accuracy.ratio_text(rates, RAW), "8.0")
        self.assertEqual(accuracy.ratio_text({rate: runs(None, None, None) for rate in RAW}, RAW), "-")


class Section(unittest.TestCase):
    def test_names_families_that_miss_raw_with_their_distance(self):
        near, far = RAW, {"0.1": runs(0.9, 0.9, 0.9), "0.02": runs(None, 0.9, 0.9)}
        lines = list(accuracy.distances(result(good=near, bad=far)))
        self.assertIn("- at the rate 0.1: bad (-8.00);", lines)
        self.assertIn("- at the rate 0.02: bad (all diverge);", lines)
        self.assertIn("- at any rate, compared with raw at its best rate (98.00): bad (-8.00).", lines)

    def test_a_family_is_as_near_as_its_best_recipe(self):
        rates = {"0.1": RAW["0.1"], "0.02": runs(0.9, 0.9, 0.9)}, {"0.1": runs(None, 0.9, 0.9), "0.02": RAW["0.02"]}
        families = {"families": {"near": [{"recipe": "bf16", "rates": each} for each in rates]}}
        self.assertEqual(accuracy.families_beyond(families, "0.1", 98.0), "none")
        self.assertEqual(accuracy.families_beyond(families, "0.02", 97.0), "none")

    def test_says_where_the_figures_are_from(self):
        text = next(accuracy.section(result(good=RAW)))
        self.assertIn("commit abc1234, 2026-11-30, on a processor with 2 cores", text)
        self.assertIn("seeds 1, 2, 3", text)

    def test_a_supposed_cause_stands_only_where_something_is_lost(self):
        lines = list(accuracy.section(result(good=RAW)))
        self.assertEqual(lines[-1], "| good | `bf16` | 1.0 | 98.00 (+0.00 ± 0.00) | 97.00 (+0.00 ± 0.00) |  |")


if __name__ == "__main__":
    unittest.main(verbosity=2)
