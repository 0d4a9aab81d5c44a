#!/usr/bin/python3
"""tests/mutations/mutate runs each check without a bug first, and with --resume does not
repeat a run that caught its bug, if the bug and the files have not changed.

usage: mutate_test.py MUTATE
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("mutate", sys.argv.pop(1))
mutate = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
loader.exec_module(mutate)

BUGS = [("one bug", "a.txt", "right", "wrong", "good_test"),
        ("another bug", "a.txt", "left", "gone", "good_test"),
        ("a bug of a check that always fails", "a.txt", "right", "wrong", "failing_test")]


class Check:
    """Fails if `passes` is false for the text of a.txt."""
    def __init__(self, source, runs, name, passes):
        self.source, self.runs, self.name, self.passes = source, runs, name, passes

    def run(self):
        text = self.source.read_text(encoding="utf-8")
        self.runs.append((self.name, text))
        return None if self.passes(text) else "fails"


class Mutate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        mutate.ROOT = self.root
        mutate.WORK = self.root / "build" / "mutate"
        mutate.CAUGHT = mutate.WORK / "caught.jsonl"
        self.git("init", "-q")
        (self.root / ".gitignore").write_text("build\n", encoding="utf-8")
        (self.root / "a.txt").write_text("left right\n", encoding="utf-8")
        self.git("add", ".")
        self.git("config", "user.name", "test")
        self.git("config", "user.email", "test@localhost")
        self.git("commit", "-q", "-m", "test")
        self.runs = []
        source = mutate.WORK / "src" / "a.txt"
        passes = {"good_test": lambda text: text == "left right\n", "failing_test": lambda text: False,
                  "simulation": lambda text: True}
        mutate.MUTATIONS = BUGS
        mutate.build = lambda check, jobs: types.SimpleNamespace(returncode=0, stdout="")
        mutate.check_named = lambda name: Check(source, self.runs, name, passes[name])
        mutate.files_read = lambda check: ["a.txt", "data.txt"]
        mutate.Simulation = lambda seeds, jobs: mutate.check_named("simulation")

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True)

    def run_mutate(self, *arguments):
        sys.argv = ["mutate", *arguments]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = mutate.main()
        return code, printed.getvalue()

    def test_each_check_runs_once_without_a_bug(self):
        self.assertEqual(self.run_mutate("one bug", "another bug")[0], 0)
        self.assertEqual([text for _, text in self.runs].count("left right\n"), 1)
        self.assertEqual(len(self.runs), 3)

    def test_a_check_that_always_fails_catches_nothing(self):
        code, text = self.run_mutate("a bug of a check that always fails")
        self.assertEqual(code, 1)
        self.assertIn("its check fails without a bug", text)
        self.assertIn("0 of 1 caught", text)
        code, text = self.run_mutate()
        self.assertEqual(code, 1)
        self.assertIn("2 of 3 caught", text)
        self.assertIn(("simulation", "left right\n"), self.runs)

    def test_a_program_runs_once_without_a_bug(self):
        names = ["a_test --gtest_filter=X.*", "b_test --gtest_filter=Y.*", "a_test --gtest_filter=Z.*", "b_test", "c"]
        self.assertEqual(mutate.joined(names), {"a_test --gtest_filter=X.*:Z.*": [names[0], names[2]],
                                                "b_test": [names[1], names[3]], "c": ["c"]})

    def test_resume_skips_bugs_that_were_caught_with_the_same_files(self):
        def runs():
            self.runs.clear()
            self.assertEqual(self.run_mutate("--resume", "one bug")[0], 0)
            return len(self.runs)

        self.run_mutate("one bug")
        self.assertEqual(runs(), 0)
        (self.root / "unread.txt").write_text("", encoding="utf-8")
        self.assertEqual(runs(), 0, "the check does not read this file")
        (self.root / "data.txt").write_text("new", encoding="utf-8")
        self.assertEqual(runs(), 2, "the check reads this file: one run without the bug, one with it")
        self.assertEqual(runs(), 0)
        (self.root / "data.txt").write_text("other", encoding="utf-8")
        self.assertEqual(runs(), 2)
        mutate.MUTATIONS = [(*BUGS[0][:3], "another change", "good_test")]
        self.assertEqual(runs(), 2, "the bug has changed")
        self.assertEqual(runs(), 0)

    def test_a_program_reads_other_files_only_by_source_dir(self):
        for name in ("docs/page.md", "tests/data/x.jsonl", "tests/fuzz/make", "tests/mutations/mutate"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text("", encoding="utf-8")
        every = {"docs/page.md", "tests/data/x.jsonl", "tests/fuzz/make", "a.txt", ".gitignore"}
        program, source_dir = mutate.TestProgram("good_test"), {"tests/support/source_dir.h"}
        self.assertEqual(mutate.others_read(program, {"tests/good_test.cc"}), set())
        self.assertEqual(mutate.others_read(program, source_dir), every)
        self.assertEqual(mutate.others_read(mutate.CTest("ctest good_test"), set()), every)
        self.assertEqual(mutate.others_read(mutate.FuzzTarget("good_fuzz"), set()), every)

    def test_resume_runs_bugs_that_were_not_caught(self):
        mutate.MUTATIONS = [("harmless", "a.txt", "right", "right", "good_test")]
        self.assertEqual(self.run_mutate("harmless")[0], 1)
        code, text = self.run_mutate("--resume", "harmless")
        self.assertEqual(code, 1)
        self.assertIn("0 of 1 caught, 0 of them in earlier runs", text)

    def test_each_bug_is_in_one_part(self):
        for n in (1, 2, 3, 5):
            texts = [self.run_mutate("--part", f"{k}/{n}")[1] for k in range(1, n + 1)]
            for name, *_ in BUGS:
                self.assertEqual(sum(text.count(f"\n{name} ") for text in texts), 1, f"{name}, {n} parts")


if __name__ == "__main__":
    unittest.main()
