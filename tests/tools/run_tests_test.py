#!/usr/bin/python3
"""What tools/run_tests.py counts, which skips it allows, and what a run that goes on need not repeat."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import machine_probes  # noqa: E402
import passed_tests  # noqa: E402
import record_full_run  # noqa: E402
import run_tests  # noqa: E402

REPORT = """<testsuite>
<testcase name="sums_test" status="run"><system-out>[       OK ] Sum.OfTwo (0 ms)
[       OK ] Sum.OfThree (1 ms)
</system-out></testcase>
<testcase name="disk_test" status="run"><system-out>[       OK ] Disk.Reads (0 ms)
[  SKIPPED ] Disk.Fills (0 ms)
</system-out></testcase>
<testcase name="guest_test" status="notrun"><skipped message="77"/></testcase>
<testcase name="bad_test" status="fail"><system-out>[  FAILED  ] Bad.Luck (0 ms)
</system-out></testcase>
<testcase name="renamed_test" status="run"><system-out>[==========] Running 0 tests from 0 test suites.
</system-out></testcase>
<testcase name="script_test" status="run"><system-out>fine</system-out></testcase>
</testsuite>"""


class Skips(unittest.TestCase):
    allowed = [("guest_*", "guests"), ("Disk.*", "root")]

    def refusals(self, skipped, **missing):
        probes = {name: lambda name=name: missing.get(name) for name in ("guests", "root")}
        return machine_probes.refusals(skipped, self.allowed, probes)

    def test_what_the_machine_lacks_may_skip(self):
        self.assertEqual(self.refusals(["guest_rdma"], guests="not found: qemu-system-x86_64"), [])

    def test_what_the_machine_could_have_run_may_not(self):
        [refusal] = self.refusals(["guest_rdma"], root="this user is not root")
        self.assertIn("guest_rdma skips itself although this machine can run it", refusal)

    def test_what_is_not_listed_may_not(self):
        [refusal] = self.refusals(["Sum.OfTwo"], guests="no", root="no")
        self.assertIn("not in tests/allowed_skips.txt", refusal)

    def test_a_probe_is_not_asked_where_nothing_skips(self):
        def never():
            raise AssertionError("asked")
        self.assertEqual(machine_probes.refusals([], self.allowed, {"guests": never, "root": never}), [])

    def test_the_list_names_a_probe_for_each_pattern(self):
        with self.assertRaises(ValueError):
            machine_probes.read_allowed_skips("vm_* # no emulator\n")
        with self.assertRaises(ValueError):
            machine_probes.read_allowed_skips("vm_* astrology # no emulator\n")

    def test_the_list_of_the_project_is_read(self):
        text = (ROOT / "tests/allowed_skips.txt").read_text(encoding="utf-8")
        self.assertIn(("guest_*", "guests"), machine_probes.read_allowed_skips(text))


class Report(unittest.TestCase):
    def test_cases_are_counted_and_only_whole_programs_count_as_passed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "junit.xml"
            path.write_text(REPORT, encoding="utf-8")
            outcome = run_tests.read_junit(path)
        self.assertEqual(outcome.passed, 4)
        self.assertEqual(outcome.failures, ["bad_test: Bad.Luck", "renamed_test: its filter fits no test"])
        self.assertEqual(outcome.skipped, ["Disk.Fills", "guest_test"])
        self.assertEqual(outcome.passed_tests, {"sums_test": 2, "script_test": 1})


class GoingOn(unittest.TestCase):
    def setUp(self):
        # pylint: disable=consider-using-with
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.path = pathlib.Path(self._folder.name) / "build/passed_tests.json"

    def record(self, tree, full):
        record = passed_tests.PassedTests(self.path, tree, full)
        record.read()
        return record

    def known(self, tree, full):
        return self.record(tree, full).of_stage("release")

    def test_what_has_passed_is_known_to_the_next_run_on_the_same_tree(self):
        first = passed_tests.PassedTests(self.path, "tree", True)
        first.add("release", {"sums_test": 2})
        self.assertTrue(first.confirm())
        self.assertEqual(self.known("tree", True), {"sums_test": 2})

    def test_what_passes_on_a_tree_that_changes_meanwhile_is_not_recorded(self):
        trees = ["tree", "tree", "another"]
        first = passed_tests.PassedTests(self.path, "tree", True, tree_now=lambda: trees.pop(0))
        first.ASKED_EVERY_S = 0.0
        first.add("release", {"sums_test": 2})
        first.add("release", {"cuts_test": 3})
        first.add("release", {"late_test": 1})
        self.assertEqual(self.known("tree", True), {"sums_test": 2, "cuts_test": 3})
        trees = ["another"]
        self.assertFalse(first.confirm())

    def test_another_tree_or_a_short_run_says_nothing(self):
        short = passed_tests.PassedTests(self.path, "tree", False)
        short.add("release", {"sums_test": 2})
        short.confirm()
        self.assertEqual(self.known("another tree", False), {})
        self.assertEqual(self.known("tree", True), {})

    def test_a_stage_that_ended_has_the_time_of_all_its_pieces(self):
        first = passed_tests.PassedTests(self.path, "tree", True)
        first.spend("asan", 60)
        first.spend("tsan", 7)
        second = self.record("tree", True)
        second.spend("asan", 30.4)
        second.end("asan", 12)
        self.assertEqual(self.record("tree", True).ended(),
                         {"asan": {"cases": 12, "failed_before": [], "seconds": 90}})
        third = self.record("tree", True)
        third.end("asan", None)
        self.assertEqual(self.record("tree", True).ended(), {})
        self.assertEqual(self.record("another", True).ended(), {})

    def test_what_a_piece_said_of_targets_is_known_to_the_next(self):
        first = passed_tests.PassedTests(self.path, "tree", True)
        first.cover("release", {"codecs tested on: AVX2"})
        second = self.record("tree", True)
        second.cover("release", {"codecs tested on: AVX2"})
        second.cover("release", set())
        self.assertEqual(self.record("tree", True).covered("release"), {"codecs tested on: AVX2"})
        self.assertEqual(self.record("tree", True).covered("asan"), set())
        self.assertEqual(self.record("another", True).covered("release"), set())

    def test_what_had_to_be_run_again_is_not_forgotten(self):
        first = passed_tests.PassedTests(self.path, "tree", True)
        first.fail("asan", ["join_test: Join.Late"])
        first.fail("asan", ["join_test: Join.Late"])
        second = self.record("tree", True)
        second.fail("asan", [])
        second.end("asan", 12)
        self.assertEqual(second.ended()["asan"]["failed_before"], ["join_test: Join.Late"])

    def test_the_table_has_every_stage(self):
        run = {"commit": "abc", "date": "2030-01-02", "machine": "M", "cases": 1200, "seconds": 90}
        runs = {"asan": run, "fuzz": run | {"failed_before": ["a", "b"]}, "lint": run | {"failed_before": []}}
        begin = "abc | 2030-01-02 | M | 1,200 | 2"
        self.assertEqual(record_full_run.table(["asan", "fuzz", "lint", "tsan"], runs).split("\n")[2:],
                         [f"| asan | {begin} | not kept |", f"| fuzz | {begin} | a, b |",
                          f"| lint | {begin} | nothing |", "| tsan | not run | | | | | |"])

    def test_the_digest_changes_with_a_file_that_git_does_not_know_yet(self):
        root = pathlib.Path(self._folder.name)
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        before = passed_tests.digest_of_tree(root)
        (root / "new.cc").write_text("int main() {}\n", encoding="utf-8")
        after = passed_tests.digest_of_tree(root)
        self.assertNotEqual(before, after)
        self.assertEqual(after, passed_tests.digest_of_tree(root))

    def test_a_run_that_must_end_in_time_takes_a_few_tests_at_once(self):
        names = [f"test_{number}" for number in range(5 * run_tests.CORES)]
        endless = run_tests.Stage("release", {}, True, None, {}, None)
        self.assertEqual(run_tests.pieces_of(endless, names), [names])
        self.assertEqual(run_tests.pieces_of(endless, []), [])
        timed = run_tests.Stage("release", {}, True, None, {}, 0.0)
        self.assertEqual([len(piece) for piece in run_tests.pieces_of(timed, names)],
                         [2 * run_tests.CORES, 2 * run_tests.CORES, run_tests.CORES])

    def test_what_runs_at_once_is_recorded_one_by_one_and_ends_in_time(self):
        record = self.record("tree", True)
        stage = run_tests.Stage("lint", {}, True, record, {"a.cc": 1}, None)
        seen = []

        def run_one(name):
            seen.append(name)
            if name == "b.cc":
                return run_tests.Outcome(failures=[name])
            return run_tests.Outcome(passed=1, passed_tests={name: 1})

        outcome = run_tests.each_at_once(stage, ["a.cc", "b.cc", "c.cc"], run_one)
        self.assertEqual(sorted(seen), ["b.cc", "c.cc"])
        self.assertEqual((outcome.passed, outcome.failures), (2, ["b.cc"]))
        record.confirm()
        self.assertEqual(self.record("tree", True).of_stage("lint"), {"c.cc": 1})
        stage.deadline = run_tests.time.monotonic()
        self.assertTrue(run_tests.each_at_once(stage, ["d.cc"], run_one).is_unfinished)
        self.assertNotIn("d.cc", seen)

    def test_a_stage_runs_only_what_is_outstanding_and_ends_in_time(self):
        stage = run_tests.Stage("release", {}, True, None, {"sums_test": 2}, run_tests.time.monotonic())
        self.assertEqual(stage.outstanding(["sums_test", "disk_test"]), ["disk_test"])
        self.assertTrue(stage.is_over())
        self.assertFalse(run_tests.Stage("release", {}, True, None, {}, None).is_over())


if __name__ == "__main__":
    unittest.main()
