#!/usr/bin/env python3
"""Measures what Python adds to the cost of C++: a query of 625 hashes, and the hashes of 10,000 tokens.

usage: python_bench.py [--json]
Each figure is the median of alternating rounds in one process. Exits with 1 if a ratio is above its target.
SPDX-License-Identifier: Apache-2.0
"""
import json
import statistics
import sys
import timeit

import numpy as np

import kvcast

ROUNDS = 41


def compare(python, cpp, repeats):
    """The medians of both costs, and the median of the ratios of adjacent rounds."""
    python(100)
    pairs = [(python(repeats), cpp(repeats)) for _ in range(ROUNDS)]
    return (statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs),
            statistics.median(pair[0] / pair[1] for pair in pairs))


def main():
    tokens = np.arange(10000)
    hashes = np.asarray(kvcast.compute_block_hashes(tokens, 16))
    indexer = kvcast.KvIndexer()
    stored = kvcast.BlockStored(hashes, tokens, 16, group_idx=0, kv_cache_spec_kind="full_attention")
    indexer.apply("engine", kvcast.encode_batch(kvcast.EventBatch([stored])), 0)
    assert indexer.find_matches(hashes).scores == {("engine", 0): 625}
    rows = [
        ("find_matches of 625 hashes", 1.5, 500, "find(hashes)",
         lambda n: indexer._time_of_find(hashes, None, n)),
        ("find_matches of 10,000 tokens", None, 200, "find(token_ids=tokens)",
         lambda n: indexer._time_of_find(None, tokens, n)),
        ("hashes of 10,000 tokens", 1.1, 20, "compute(tokens, 16)",
         lambda n: kvcast._kvcast._time_of_hashes(tokens, 16, n)),
    ]
    results = []
    names = {"find": indexer.find_matches, "compute": kvcast.compute_block_hashes, "hashes": hashes, "tokens": tokens}
    for name, target, repeats, call, cpp in rows:
        timer = timeit.Timer(call, globals=names)
        python_ns, cpp_ns, ratio = compare(lambda n, timer=timer: timer.timeit(n) / n * 1e9, cpp, repeats)
        results.append({"name": name, "python_us": round(python_ns / 1e3, 2), "cpp_us": round(cpp_ns / 1e3, 2),
                        "figure": round(ratio, 3), "target": target, "met": target is None or ratio <= target})
    if "--json" in sys.argv[1:]:
        print(json.dumps({"name": "python", "targets": results}))
    else:
        for row in results:
            print(f"{row['name']}: {row['python_us']} us in Python, {row['cpp_us']} us in C++, ratio {row['figure']}"
                  + (f", target {row['target']}" if row["target"] else ""))
    return 0 if all(row["met"] for row in results) else 1


if __name__ == "__main__":
    sys.exit(main())
