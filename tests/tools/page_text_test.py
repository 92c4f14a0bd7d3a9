#!/usr/bin/python3
"""What tools write into pages: prose at 100 columns, tables as they are, and the mark of speed-ups that
a full token bucket made."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import bench_report  # noqa: E402
import page_section  # noqa: E402


class Wrap(unittest.TestCase):
    def lines(self, text):
        return page_section.wrap(text).split("\n")

    def test_prose_is_cut_at_100_columns_and_keeps_its_words(self):
        text = "word " * 60 + "end"
        lines = self.lines(text)
        self.assertLessEqual(max(map(len, lines)), page_section.LINE_COLUMNS)
        self.assertEqual(" ".join(lines), text)

    def test_a_list_item_is_indented_below_its_first_word(self):
        lines = self.lines("* " + "word " * 30 + "end")
        self.assertTrue(lines[1].startswith("  word"))

    def test_tables_headings_and_fenced_blocks_stay(self):
        long = "x " * 80
        text = f"| {long} |\n# {long}\n```\n{long}\n```"
        self.assertEqual(page_section.wrap(text), text)

    def test_code_spans_and_links_are_not_cut(self):
        span = "`a b c`"
        for words in range(80, 100):
            lines = self.lines("y" * words + f" {span} [a link](to.md#there) " + "z " * 20)
            self.assertTrue(any(span in line for line in lines))
            self.assertTrue(any("[a link](to.md#there)" in line for line in lines))

    def test_a_code_span_longer_than_a_line_is_cut(self):
        words = [f"--option{number}" for number in range(12)]
        lines = self.lines(f"Written by `{' '.join(words)}`, today.")
        self.assertTrue(all(len(line) <= 100 for line in lines))
        self.assertEqual(" ".join(lines), f"Written by `{' '.join(words)}`, today.")

    def test_no_line_begins_like_a_list_or_with_a_percent_sign(self):
        for words in range(85, 100):
            for sign in ("-", "+", "%", "12."):
                lines = self.lines("y" * words + f" 5 {sign} " + "z " * 20)
                self.assertFalse([line for line in lines if line.split()[0] == sign], sign)

    def test_a_section_replaces_only_what_is_between_its_marks(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text("before\n<!-- part:begin -->\nold\n<!-- part:end -->\nafter\n",
                            encoding="utf-8")
            page_section.replace_section(page, "part", "new")
            self.assertEqual(page.read_text(encoding="utf-8"),
                             "before\n<!-- part:begin -->\nnew\n<!-- part:end -->\nafter\n")
            with self.assertRaises(ValueError):
                page_section.replace_section(page, "missing", "new")


class SpeedText(unittest.TestCase):
    def text(self, speed, ratio):
        return bench_report.speed_text({"vs_gloo": speed, "ratio": ratio})

    def test_a_speed_up_above_the_compression_ratio_is_marked(self):
        self.assertEqual(self.text(28.94, 28.73), f"28.94 {bench_report.BURST}")

    def test_a_speed_up_within_the_ratio_is_not(self):
        self.assertEqual(self.text(18.86, 28.63), "18.86")

    def test_what_is_not_compressed_is_never_marked(self):
        self.assertEqual(self.text(2.68, 1.0), "2.68")
        self.assertEqual(self.text(2.68, None), "2.68")

    def test_a_row_that_was_not_measured_is_a_dash(self):
        self.assertEqual(bench_report.speed_text(None), "-")
        self.assertEqual(self.text(None, 2.0), "-")


def row(contestant, median_us, size=64 << 20, **more):
    return {"bytes": size, "contestant": contestant, "nodes": 2, "rounds": 5, "median_us": median_us,
            "p99_us": 2 * median_us, "target": "avx2", **more}


class Seeds(unittest.TestCase):
    def test_a_row_has_the_medians_of_the_seeds_and_the_rounds_of_all(self):
        runs = [[row("gloo", us), row("tern raw", 2 * us, ratio=us)] for us in (90.0, 130.0, 100.0)]
        gloo, raw = bench_report.median_rows(runs)
        self.assertEqual((gloo["median_us"], gloo["p99_us"], gloo["rounds"]), (100.0, 200.0, 15))
        self.assertAlmostEqual(gloo["spread"], 0.2)
        self.assertEqual((raw["median_us"], raw["ratio"], raw["bytes"], raw["target"]),
                         (200.0, 100.0, 64 << 20, "avx2"))

    def test_the_readmes_table_marks_what_cannot_be_sustained(self):
        def section(link):
            rows = [row("gloo", 560e3, vs_gloo=1.0), row("tern raw", 565e3, vs_gloo=0.991, ratio=1.0),
                    row("tern 3lc:s=1", 20e3, vs_gloo=28.0, ratio=20.0 if link == "1gbit" else 30.0)]
            return {"link": link, "nodes": 2, "rows": rows}
        text = bench_report.short_figures({
            "sections": [section(link) for link in ("1gbit", "10gbit", "unshaped")], "date": "2026-11-30T01:02",
            "commit": "c0ffee", "processor": "p", "cores": 2, "kernel": "6", "real_time": True, "input": "gaussian",
            "seeds": [1, 2, 3], "command": "tools/bench.py --record"})
        lines = text.splitlines()
        self.assertEqual(lines[2], "| 1 Gbit/s | 560 ms | 0.99 times as fast | 28.0 times as fast † |")
        self.assertEqual(lines[3], "| 10 Gbit/s | 560 ms | 0.99 times as fast | 28.0 times as fast |")
        self.assertIn("2026-11-30, commit c0ffee, p, 2 cores, Linux 6, real-time class, inputs gaussian, "
                      "seeds 1, 2, 3, `tools/bench.py --record`.", text)
        self.assertIn(bench_report.BURST_NOTE, text)


if __name__ == "__main__":
    unittest.main()
