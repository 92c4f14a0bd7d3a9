#!/usr/bin/python3
"""What tools/build_times.py reads out of ninja's log, clang's traces and ctest's report."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import build_times  # noqa: E402

LOG = """# ninja log v5
0\t9000\t1\ta/CMakeFiles/old.dir/x.cc.o\taa
0\t1500\t2\ta/CMakeFiles/old.dir/x.cc.o\tab
1500\t4000\t3\tbin/ternd\tac
1500\t4000\t3\tbin/ternd.sym\tac
"""


class BuildTimes(unittest.TestCase):
    def test_only_the_last_run_of_a_command_counts_and_once(self):
        self.assertEqual(build_times.commands(LOG), [(2.5, "bin/ternd"), (1.5, "a/CMakeFiles/old.dir/x.cc.o")])

    def test_an_object_is_named_by_its_target(self):
        self.assertEqual(build_times.readable("daemon/CMakeFiles/tern_lane.dir/Unity/unity_0_cxx.cxx.o"),
                         "daemon tern_lane, part 0")
        self.assertEqual(build_times.readable("bin/ternd"), "bin/ternd")

    def test_a_header_adds_up_over_files(self):
        trace = '{"traceEvents": [{"name": "Source", "dur": 500000, "args": {"detail": "json.hpp"}}, {"name": "Total"}]}'
        self.assertEqual(build_times.headers([trace, trace]), [(1.0, "json.hpp")])

    def test_a_summary_is_a_row_of_a_table(self):
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder) / "release"
            build.mkdir()
            (build / ".ninja_log").write_text(LOG, encoding="utf-8")
            (build / "junit.xml").write_text('<testsuite><testcase name="a_test" time="2.6"/></testsuite>',
                                             encoding="utf-8")
            self.assertEqual(build_times.summary_of(build, 2), "| release | 1 | 2 | old 2 | 1 | 3 | a_test 3 |")

    def test_tests_of_a_pattern_are_added_up_over_builds(self):
        with tempfile.TemporaryDirectory() as folder:
            builds = [pathlib.Path(folder) / name for name in ("release", "asan", "empty")]
            for build, seconds in zip(builds, (2.0, 5.0)):
                build.mkdir()
                (build / "junit.xml").write_text(
                    f'<testsuite><testcase name="every_kind_test" time="{seconds}"/>'
                    '<testcase name="other_test" time="100"/></testsuite>', encoding="utf-8")
            lines = list(build_times.matching(builds, "every_.*_test"))
        self.assertEqual(lines[0], "test programs with every_.*_test: 2, together 7 s")
        self.assertEqual(lines[4:6], ["| 5.0 | asan, every_kind_test |", "| 2.0 | release, every_kind_test |"])

    def test_the_slowest_test_comes_first(self):
        report = '<testsuite><testcase name="a" time="1"/><testcase name="b" time="2.5"/></testsuite>'
        self.assertEqual(build_times.tests(report), [(2.5, "b"), (1.0, "a")])


if __name__ == "__main__":
    unittest.main()
