#!/usr/bin/python3
"""Runs `kvcast bench growth` at small size. The test covers the table, the JSON object, the chart, the memory bound,
and wrong flags.

usage: growth_test.py KVCAST
The test sets no bound for a measured time.
SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

KVCAST = sys.argv.pop(1)
FIGURES = ["grow_ns", "apply_ns", "query_p50_us", "query_p99_us", "bytes", "grown_bytes", "batch_ms", "batch_cpu_ms",
           "page_ms", "reclaim_wait_ms", "reclaim_s"]
SMALL = ["--workers", "4", "--queries", "100"]
# A worker holds 16 system prompts of 64 blocks. For each worker, a wave has one project. Two workers hold the project's
# text of 256 blocks. The project has four conversations, each with five turns of 61 blocks.
SYSTEM = 4 * 16 * 64
WAVE = 4 * (2 * 256 + 4 * 5 * 61)


def growth(*flags):
    return subprocess.run([KVCAST, "bench", "growth", *flags], capture_output=True, text=True, timeout=300)


class Growth(unittest.TestCase):
    def run_json(self, *flags):
        done = growth(*SMALL, "--json", *flags)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        *lines, last = done.stdout.splitlines()
        return lines, json.loads(last)

    def test_points_have_the_counts_of_the_index_and_all_figures(self):
        lines, report = self.run_json("--residencies", "160000")
        self.assertEqual(report["name"], "growth")
        points = report["points"]
        self.assertEqual(len(points), 4)  # 20,000 and three doublings
        for point, size in zip(points, (20e3, 40e3, 80e3, 160e3)):
            self.assertEqual(set(point), {"residencies", "held", "batch_faults", "others_pct", *FIGURES})
            # `residencies` comes from the counters of the index, `held` from the definition of the content.
            self.assertEqual(point["residencies"], point["held"])
            self.assertEqual((point["residencies"] - SYSTEM) % WAVE, 0)
            self.assertLessEqual(abs(point["residencies"] - size), WAVE / 2)
            for figure in FIGURES:
                self.assertGreater(point[figure], 0, figure)
            self.assertLessEqual(point["query_p50_us"], point["query_p99_us"])
        (wrong,) = report["targets"]
        self.assertEqual((wrong["name"], wrong["figure"]), ("growth.wrong_answers", 0))

        head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["residencies", "held"])
        rows = [line.split() for line in lines[head + 1:head + 5]]
        self.assertEqual([int(row[0]) for row in rows], [point["residencies"] for point in points])

    def test_the_exponents_are_printed_and_in_the_object(self):
        lines, report = self.run_json("--residencies", "80000")
        figures = {figure["name"]: figure["figure"] for figure in report["figures"]}
        for name, words in (("query_p50", "query p50"), ("query_p99", "query p99"), ("apply", "apply"),
                            ("batch", "the longest batch")):
            exponent = figures[f"growth.{name}_exponent"]
            self.assertTrue(any(line.startswith(f"# {words} grows as n^{exponent:.2f} ") for line in lines), words)
        self.assertEqual(figures["growth.stopped_by_memory"], 0)
        self.assertIn("machine", report)
        self.assertTrue(any(line.startswith("# other processes used ") for line in lines))

    def test_the_index_stops_before_the_memory_is_exceeded(self):
        _, small = self.run_json("--residencies", "80000")
        lines, report = self.run_json("--residencies", "1e8", "--memory-gb", "0.1")
        figures = {figure["name"]: figure["figure"] for figure in report["figures"]}
        self.assertEqual(figures["growth.stopped_by_memory"], 1)
        last = report["points"][-1]
        self.assertEqual(last["residencies"], last["held"])
        self.assertGreater(last["residencies"], small["points"][-1]["residencies"])
        self.assertLess(last["residencies"] * last["grown_bytes"], 0.1e9)
        self.assertIn(f"# stopped at {last['residencies']:.0f} residencies: more would exceed --memory-gb 0.1", lines)

    def test_the_chart_has_a_panel_per_kind_of_figure(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "growth.svg"
            self.run_json("--residencies", "40000", "--svg", str(path))
            svg = path.read_text(encoding="utf-8")
        for text in ("query, us", "apply, ns a block", "longest pause, ms", "bytes a residency"):
            self.assertIn(text, svg)
        self.assertEqual(svg.count("<polyline"), 8)

    def test_wrong_flags_are_refused_in_one_line(self):
        for flags in (["--residencies", "999"], ["--residencies", "2e10"], ["--residencies", "many"],
                      ["--memory-gb", "0"], ["--memory-gb", "-1"], ["--workers", "1"], ["--workers", "1e6"],
                      ["--queries", "10"], ["--max", "1e5"], ["--svg"]):
            done = growth(*flags)
            self.assertEqual(done.returncode, 2, flags)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(flags[0], done.stderr)

    def test_an_impossible_run_fails_with_one_line(self):
        for flags, text in ((["--memory-gb", "0.001"], "--memory-gb"),
                            (["--residencies", "20000", "--svg", "/nonexistent/x.svg"], "/nonexistent/x.svg")):
            done = growth(*SMALL, *flags)
            self.assertEqual(done.returncode, 1, flags)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()
