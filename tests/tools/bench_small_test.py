#!/usr/bin/python3
"""What tools/bench_small.py makes of the rows of its ranks."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import bench_small  # noqa: E402


def rows(form, times, seed=1):
    return [{"nodes": 2, "link": "1gbit", "bytes": 16384, "seed": seed, "form": form,
             "contestant": name if name == "gloo" else f"tern {name}", "median_us": us}
            for name, us in times.items()]


class Table(unittest.TestCase):
    def test_a_case_is_the_median_of_its_seeds(self):
        all_rows = [row for seed, us in enumerate([90.0, 100.0, 160.0])
                    for row in rows(2, {"raw": us}, seed)]
        self.assertEqual(bench_small.medians(all_rows), {(2, "1gbit", 16384): {(2, "raw"): 100.0}})

    def test_a_recipe_is_beside_raw_of_its_own_form(self):
        recipes = dict.fromkeys(bench_small.RECIPES, 50.0)
        times = (rows(1, recipes | {"raw": 60.0, "gloo": 90.0})
                 + rows(2, recipes | {"raw": 200.0, "gloo": 80.0}))
        line = {"commit": "c", "date": "d", "processor": "p", "cores": 2, "real_time": True,
                "seeds": [1], "command": "x",
                "rows": [{"nodes": 2, "link": "1gbit", "bytes": 16384,
                          "times": [[form, name, us] for (form, name), us in
                                    bench_small.medians(times)[(2, "1gbit", 16384)].items()]}]}
        cells = " | ".join(["4.00 (1.20)"] * (len(bench_small.RECIPES) - 1))
        self.assertEqual(bench_small.table(line).splitlines()[-1],
                         f"| 2 | 1gbit | 16 KiB | 80 us | 200 us | {cells} |")


if __name__ == "__main__":
    unittest.main()
