#!/usr/bin/python3
"""bench/targets judges only runs on a quiet machine, compares figures with the history, and runs two programs in pairs.

usage: targets_test.py BENCH_TARGETS
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest

loader = importlib.machinery.SourceFileLoader("targets", sys.argv.pop(1))
targets = importlib.util.module_from_spec(importlib.util.spec_from_loader("targets", loader))
sys.dont_write_bytecode = True
loader.exec_module(targets)


def target(figure, bound=10, at_least=False):
    return {"name": "t", "figure": figure, "target": bound, "unit": "ns",
            "at_least": at_least, "met": figure >= bound if at_least else figure <= bound}


def options(runs):
    return argparse.Namespace(runs=runs, arguments="")


class Targets(unittest.TestCase):
    def test_share_of_others(self):
        # Of 200 ticks, 120 were used; this process used 110 of these.
        self.assertAlmostEqual(targets.cpu_share.foreign_share((500, 1000, 100), (620, 1200, 210)), 0.05)
        self.assertEqual(targets.cpu_share.foreign_share((500, 1000, 100), (600, 1200, 210)), 0)

    def test_busy_runs_are_repeated(self):
        shares = iter([0.5, 0.01, 0.06, 0.05])
        counted, tries = targets.counted_runs(["a"], "x", options(2), lambda *_: ([target(1)], next(shares)))
        self.assertEqual((len(counted), tries), (2, 4))

    def test_a_busy_machine_ends_the_tries(self):
        counted, tries = targets.counted_runs(["a"], "x", options(2), lambda *_: ([target(1)], 0.5))
        self.assertEqual((len(counted), tries), (0, 6))

    def test_two_programs_run_in_turns(self):
        order = []

        def run(program, *_):
            order.append(program)
            return [target({"a": 1, "b": 2}[program])], 0
        counted, _ = targets.counted_runs(["a", "b"], "x", options(2), run)
        self.assertEqual(order, ["a", "b", "b", "a"])
        self.assertEqual([[program[0]["figure"] for program in pair] for pair in counted], [[1, 2], [1, 2]])

    def test_interval(self):
        self.assertIsNone(targets.expected_interval([1, 2]))
        low, high = targets.expected_interval([9, 10, 11])
        self.assertAlmostEqual(high - 10, 4.303 * (4 / 3) ** 0.5)
        self.assertAlmostEqual(10 - low, high - 10)
        # Only the last ten figures count.
        self.assertEqual(targets.expected_interval([100] + [10] * 10), (10, 10))

    def judge(self, figures, past, at_least=False):
        with tempfile.TemporaryDirectory() as folder:
            history = targets.History(pathlib.Path(folder) / "new" / "history.jsonl", "this machine")
            history.entries = [{"machine": "this machine", "target": "x: t", "figure": figure} for figure in past]
            history.entries.append({"machine": "another", "target": "x: t", "figure": 1000})
            known = len(history.entries)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                missed = targets.judge("x", [[[target(figure, at_least=at_least)]] for figure in figures], history)
            history.write(len(history.entries) - known)
            lines = history.path.read_text(encoding="utf-8").splitlines()
            self.assertEqual(len(lines), 1)
            return missed, printed.getvalue(), json.loads(lines[0])

    def test_history(self):
        past = [5, 5.1, 4.9, 5]
        for figure, word in ((5.05, "like"), (6, "worse than"), (4, "better than")):
            missed, text, entry = self.judge([figure], past)
            self.assertEqual(missed, 0)
            self.assertIn(f"{word} the last 4", text)
            self.assertEqual(entry["figure"], figure)
        self.assertIn("better than", self.judge([12], [11, 11.1, 10.9], at_least=True)[1])
        self.assertIn("worse than", self.judge([10], [11, 11.1, 10.9], at_least=True)[1])
        self.assertIn("no history yet", self.judge([5], [5])[1])

    def test_a_miss_counts(self):
        missed, text, entry = self.judge([9, 11, 10], [])
        self.assertEqual(missed, 1)
        self.assertIn("MISSED", text)
        self.assertEqual(entry["figure"], 10)

    def test_targets_that_the_program_did_not_judge(self):
        history = targets.History(pathlib.Path("/nonexistent/history"), "m")
        for figure, missed in ((9, 0), (11, 1)):
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(targets.judge("x", [[[{**target(figure), "met": None}]]], history), missed)

    def test_paired_ratio(self):
        history = targets.History(pathlib.Path("/nonexistent/history"), "m")
        printed = io.StringIO()
        pairs = [[[target(2)], [target(4)]], [[target(3)], [target(4)]], [[target(2.4)], [target(4)]]]
        with contextlib.redirect_stdout(printed):
            targets.judge("x", pairs, history)
        self.assertIn("to base 0.600 (0.500 to 0.750)", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
