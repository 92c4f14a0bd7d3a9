#!/usr/bin/python3
"""What the tuner's measurements on real links come to, on made-up times."""

import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import bench_tuner  # noqa: E402
import bench_tuner_report as report  # noqa: E402

MIB = 1 << 20


def times(median, rounds=40):
    """Around the median by a few per mille, the same for everybody."""
    return [median * (1 + 0.001 * (number % 5 - 2)) for number in range(rounds)]


def run(seed=1, auto=1.0, best=1.0, raw=1.0, **changes):
    return {"setting": "two", "level": "balanced", "link": "10gbit", "bytes": 4 * MIB, "seed": seed,
            "choice": "3lc:s=1", "reason": "fastest", "switches": 1, "ops": 100,
            "seconds": {"auto": times(1e-3 * auto), "raw": times(1e-3 * raw), "3lc:s=1": times(1e-3 * best)}} | changes


class Judge(unittest.TestCase):
    def judge(self, **medians):
        return report.judge({name: times(median) for name, median in medians.items()}, random.Random(1))

    def test_compares_with_the_fastest_other(self):
        result = self.judge(auto=1.0, raw=2.0, lossless=1.1, bf16=0.5)
        self.assertEqual(result["best"], "bf16")
        self.assertAlmostEqual(result["vs_best"]["median"], 2.0)
        self.assertAlmostEqual(result["vs_raw"]["median"], 0.5)

    def test_a_bound_is_kept_by_the_median(self):
        kept, missed = self.judge(auto=1.02, raw=1.0), self.judge(auto=1.04, raw=1.0)
        self.assertTrue(kept["vs_raw"]["passes"] and kept["vs_raw"]["certain"])
        self.assertFalse(missed["vs_raw"]["passes"])
        self.assertTrue(missed["vs_best"]["passes"])

    def test_a_bound_within_the_interval_is_uncertain(self):
        generator = random.Random(2)
        auto = [1.03 + generator.uniform(-0.3, 0.3) for _ in range(20)]
        self.assertFalse(report.compare(auto, [1.0] * 20, 1.03, generator)["certain"])


class Pool(unittest.TestCase):
    def test_takes_the_pairs_of_all_seeds_together(self):
        result = report.pool([run(1, auto=1.0), run(2, auto=1.2), run(3, auto=1.2)], 1)
        self.assertEqual(result["pairs"], 120)
        self.assertAlmostEqual(result["vs_raw"]["median"], 1.2, places=2)
        self.assertFalse(report.passes(result))

    def test_names_each_choice_once(self):
        result = report.pool([run(1), run(2, choice="raw"), run(3)], 1)
        self.assertEqual(result["choices"], ["3lc:s=1", "raw"])

    def test_a_fault_of_one_seed_fails_the_case(self):
        for changes, words in (({"link": "1gbit", "choice": "raw"}, "sends raw on a slow link"),
                               ({"reason": "nothing is known yet"}, "nothing is known"),
                               ({"choice": None, "reason": "no daemon"}, "is not known: no daemon"),
                               ({"switches": 6}, "has changed 6 times in 100 operations")):
            result = report.pool([run(1), run(2, **changes)], 1)
            self.assertIn(words, result["faults"][0])
            self.assertTrue(result["faults"][0].startswith("seed 2: "))
            self.assertFalse(report.passes(result))


class Course(unittest.TestCase):
    def test_first_rounds_after_a_change_are_apart(self):
        spans = [("1gbit", {"auto": [9.0] * 3 + [1.0] * 5, "raw": [4.0] * 8, "3lc:s=1": [1.0] * 8})]
        results, first = report.judge_course([spans, spans], 1)
        self.assertEqual(results[0]["pairs"], 10)
        self.assertAlmostEqual(results[0]["vs_best"]["median"], 1.0)
        self.assertAlmostEqual(first["auto"], 9e6)
        self.assertAlmostEqual(first["raw"], 4e6)

    def test_a_link_without_settled_rounds_is_said(self):
        spans = [("100mbit", {"auto": [1.0] * 3, "raw": [1.0] * 3})]
        with self.assertRaisesRegex(ValueError, "100mbit: no more than 3 rounds"):
            report.judge_course([spans], 1)

    def test_a_round_across_a_change_belongs_to_no_link(self):
        rows = [{"contestant": name, "at": [0.0, 1.0, 2.0, 3.0], "seconds": [0.5, 0.5, 1.5, 0.5]}
                for name in ("tern auto", "tern raw")]
        spans = report.spans_of_course(rows, [(0.0, "1gbit"), (2.5, "10gbit"), (9.0, None)])
        self.assertEqual([(name, len(times["auto"])) for name, times in spans], [("1gbit", 2), ("10gbit", 1)])


class Plan(unittest.TestCase):
    def test_a_level_has_the_recipes_of_those_before_it(self):
        self.assertEqual(bench_tuner.static_recipes("lossless"), ["raw", "lossless"])
        self.assertEqual(bench_tuner.static_recipes("aggressive")[-1], "3lc:s=1.75")

    def test_every_link_of_a_setting_is_one_that_can_be_shaped(self):
        for setting in bench_tuner.SETTINGS.values():
            self.assertLessEqual(set(setting.sizes), set(bench_tuner.LINKS))
        self.assertLessEqual(set(bench_tuner.COURSE), set(bench_tuner.LINKS))


class Text(unittest.TestCase):
    def test_claims_say_what_missed_and_what_is_too_noisy(self):
        results = [report.pool([run(1)], 1), report.pool([run(1, auto=1.2)], 1)]
        self.assertIn("1 of 2 cases keep both bounds", report.claims(results)[0])
        self.assertIn("In 1 the lower end of auto / raw is above 1.03", report.claims(results)[0])

    def test_claims_tell_a_fault_from_a_missed_bound(self):
        text = "\n".join(report.claims([report.pool([run(1, reason="nothing is known yet")], 1)]))
        self.assertIn("1 of 1 cases keep both bounds", text)
        self.assertIn("In 1 something is wrong with the choice itself:\n\n- two, `balanced`, 10gbit, 4 MiB, seed 1:", text)

    def test_a_section_marks_what_missed_and_leaves_out_settings_that_did_not_run(self):
        text = report.links_section([report.pool([run(1, auto=1.2)], 1)], "Made.",
                                    {"two": "Two nodes", "eight": "Eight nodes"})
        self.assertIn("1.20 (1.20 to 1.20), **misses**", text)
        self.assertIn("**Two nodes**", text)
        self.assertNotIn("Eight nodes", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
