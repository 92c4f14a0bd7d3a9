#!/usr/bin/python3
"""What tools/bench_collectives.py makes of the rows of its ranks."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import bench_collectives  # noqa: E402


def row(contestant, median_us, seed=1, kind="all_reduce"):
    return {"nodes": 2, "link": "1gbit", "kind": kind, "bytes": 4096, "contestant": contestant,
            "rounds": 7, "median_us": median_us, "p99_us": 2 * median_us, "seed": seed}


class Compared(unittest.TestCase):
    def test_a_case_has_the_median_of_its_seeds_and_what_lies_between_them(self):
        rows = [row("tern", us, seed) for seed, us in enumerate([90.0, 100.0, 130.0])]
        case, = bench_collectives.compared(rows + [row("gloo", 150.0)])
        self.assertEqual(case["tern_us"], 100.0)
        self.assertAlmostEqual(case["spread"]["tern"], 0.4)
        self.assertEqual(case["rounds"], 21)

    def test_the_speed_is_beside_the_faster_of_the_others(self):
        rows = [row("tern", 100.0), row("gloo", 150.0), row("openmpi", 80.0)]
        case, = bench_collectives.compared(rows)
        self.assertAlmostEqual(case["speed"], 0.8)

    def test_what_one_of_them_cannot_do_is_left_open(self):
        case, = bench_collectives.compared([row("tern", 100.0), row("openmpi", 50.0)])
        self.assertIsNone(case["gloo_us"])
        line = {"commit": "c", "date": "d", "processor": "p", "cores": 2, "real_time": True,
                "seeds": [1], "command": "x", "minutes_taken": 1.0, "parts": 3, "mpi_stops": 2,
                "rows": [case]}
        text = bench_collectives.table(line)
        self.assertEqual(text.splitlines()[-1],
                         "| 2 | 1gbit | `all_reduce` | 4 KiB | 100 | - | 50 | 0.50 | - / - | - / - |")
        self.assertIn("did not begin, 2 times in 3 parts", text)
        self.assertNotIn("±", text)

    def test_how_far_seeds_lie_apart_is_said_of_several(self):
        rows = [row("tern", us, seed) for seed, us in enumerate([90.0, 100.0, 110.0])]
        line = {"commit": "c", "date": "d", "processor": "p", "cores": 2, "real_time": True,
                "seeds": [0, 1, 2], "command": "x", "minutes_taken": 1.0, "parts": 3, "mpi_stops": 0,
                "rows": list(bench_collectives.compared(rows))}
        self.assertIn("| 100 ±10 % | - | - | - |", bench_collectives.table(line))

    def test_gloos_time_is_that_of_its_fastest_algorithm(self):
        rows = [row("tern", 100.0) | {"segments": 200, "sent_again": 1},
                row("gloo", 150.0) | {"segments": 100, "sent_again": 50},
                row("gloo_bcube", 120.0) | {"segments": 100, "sent_again": 2},
                row("gloo_halving_doubling", 130.0)]
        case, = bench_collectives.compared(rows)
        self.assertEqual((case["gloo_us"], case["gloo_algorithm"]), (120.0, "bcube"))
        self.assertAlmostEqual(case["speed"], 1.2)
        self.assertEqual(case["sent_again"], {"tern": 0.005, "gloo": 0.02})


    def test_processor_time_is_by_node_and_byte(self):
        rows = [row("tern", 100.0) | {"processor_us": us} for us in (8.0, 16.0, 24.0)]
        case, = bench_collectives.compared(rows + [row("gloo", 150.0) | {"processor_us": 32.768}])
        self.assertAlmostEqual(case["processor_ns_a_byte"]["tern"], 1e3 * 16.0 / 2 / 4096)
        self.assertAlmostEqual(case["processor_ns_a_byte"]["gloo"], 4.0)


class Stops(unittest.TestCase):
    def test_only_where_every_rank_waits_in_open_mpi_it_is_measured_again(self):
        mpi = "rank 7: another rank did not come (openmpi: gather of 16 elements, round 0)"
        tern = "rank 3: another rank has given up (tern: gather of 16 elements, round 0)"
        self.assertTrue(bench_collectives.is_stop_of_mpi(f"x: {mpi}\n x: {mpi}"))
        self.assertFalse(bench_collectives.is_stop_of_mpi(f"x: {mpi}\n x: {tern}"))
        self.assertFalse(bench_collectives.is_stop_of_mpi("ternd0: it died"))


if __name__ == "__main__":
    unittest.main()
