#!/usr/bin/python3
"""Runs bench/several_routers.py at small size: two router processes in front of three engine processes.

usage: several_routers_test.py KVCAST SOURCE_DIR
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import pathlib
import sys
import unittest

KVCAST, SOURCE_DIR = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE_DIR / "bench"))
from several_routers import Run  # noqa: E402

OPTIONS = argparse.Namespace(kvcast=KVCAST, workload="shared", engines=3, requests=40, model="hybrid",
                             prefill_rate=200000)


class SeveralRouters(unittest.TestCase):
    def run_with(self, gauges, kill):
        run = Run(OPTIONS, 2, gauges, kill)
        result = run.result()
        self.assertEqual(result["requests"], OPTIONS.requests)
        self.assertEqual(run.finished, set(range(OPTIONS.requests)))
        self.assertGreater(result["reused"], 0)
        return run, result

    def test_each_decision_counts_the_other_router(self):
        run, result = self.run_with(gauges=True, kill=False)
        self.assertEqual({peers for _, peers in run.views}, {1})
        self.assertEqual(result["routed_again"], 0)

    def test_without_the_exchange_no_decision_counts_the_other_router(self):
        run, _ = self.run_with(gauges=False, kill=False)
        self.assertEqual({peers for _, peers in run.views}, {0})

    def test_a_killed_router_does_not_count_and_no_request_is_lost(self):
        run, _ = self.run_with(gauges=True, kill=True)  # the run ends when the other router counts no peer
        self.assertEqual(run.views[0][1], 1)
        self.assertEqual(len(run.views), OPTIONS.requests)


if __name__ == "__main__":
    unittest.main()
