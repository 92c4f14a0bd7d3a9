#!/usr/bin/python3
"""The arithmetic of tools/bench_pair.py."""

import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import bench_pair  # noqa: E402

SEED = 1


class Pairs(unittest.TestCase):
    def test_a_start_has_the_blocks_that_were_asked_for(self):
        self.assertEqual(bench_pair.quantiles_of_blocks([1.0] * 15, 8, 0.5), [1.0] * 8)
        self.assertEqual(bench_pair.quantiles_of_blocks([1.0, 3.0, 5.0, 7.0], 2, 0.5), [2.0, 6.0])
        self.assertEqual(len(bench_pair.quantiles_of_blocks([1.0] * 3, 8, 0.5)), 3)

    def test_starts_that_differ_widen_the_interval_as_they_must(self):
        """Of 95 % intervals about 95 % hold the truth, however alike the blocks of one start are."""
        generator = random.Random(SEED)
        held, tries = 0, 400
        for _ in range(tries):
            starts = []
            for _ in range(8):
                shift = generator.gauss(0, 0.03)
                blocks = [2.718281828 ** (shift + generator.gauss(0, 0.01)) for _ in range(8)]
                starts.append(bench_pair.geometric_mean(blocks))
            _, low, high = bench_pair.interval(starts)
            held += low <= 1 <= high
        self.assertGreater(held, 0.92 * tries, f"seed {SEED}")
        self.assertLess(held, 0.98 * tries, f"seed {SEED}")

    def test_starts_until_the_interval_is_narrow(self):
        """However many starts that takes, of 95 % intervals more than 90 % hold the truth."""
        generator = random.Random(SEED)
        held, tries = 0, 300
        for _ in range(tries):
            starts = []
            while not bench_pair.is_narrow(starts, 1.0):
                starts.append(2.718281828 ** generator.gauss(0, 0.02))
            mean, low, high = bench_pair.interval(starts)
            self.assertGreaterEqual(len(starts), bench_pair.LEAST_STARTS)
            self.assertLessEqual(high, 1.01 * mean)
            self.assertGreaterEqual(low, 0.99 * mean)
            held += low <= 1 <= high
        self.assertGreater(held, 0.90 * tries, f"seed {SEED}")


if __name__ == "__main__":
    unittest.main()
