#!/usr/bin/python3
"""Reports the loads of a vLLM engine to `kvcast router`. A vLLM engine counts its loads on its metrics page. From these
counters the router computes the cost of a block in host memory or on storage (docs/load-rates.md). Uses only the
standard library.

usage: report_loads.py METRICS_URL ROUTER_URL WORKER [--engine N] [--loads-tier TIER] [--every SECONDS]
  METRICS_URL  metrics page of the engine: http://HOST:8000/metrics
  ROUTER_URL   http://HOST:8080
  WORKER       name of the source in the router
  --engine     label of the engine, if the page has several engines (data parallelism)
  --loads-tier CPU (default), or STORAGE if the offloading spec loads directly from storage to the GPU
  --every      send one report every SECONDS; without this flag, send one report and end

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import re
import sys
import time
import urllib.error
import urllib.request

# Lists of (bytes counter, seconds counter, labels), the newer names first. The counters are sums over tensor-parallel
# ranks and over concurrent copies. The quotient of two counters is therefore the rate of one copy.
COUNTERS = {
    "loads": [("vllm:kv_offload_load_bytes_total", "vllm:kv_offload_load_time_total", {}),
              ("vllm:kv_offload_total_bytes_total", "vllm:kv_offload_total_time_total", {"transfer_type": "CPU_to_GPU"})],
    "reads": [("vllm:kv_offload_tiering_read_bytes_total", "vllm:kv_offload_tiering_read_time_total", {})],
}
SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


def samples(page):
    """Yields (name, labels, value) of each sample."""
    for line in page.splitlines():
        match = SAMPLE.match(line)
        if match:
            yield match[1], dict(LABEL.findall(match[2] or "")), float(match[3])


def total(page, name, labels):
    """Returns the sum of the samples that have these labels. None: no sample has these labels."""
    values = [value for sample_name, sample_labels, value in samples(page)
              if sample_name == name and labels.items() <= sample_labels.items()]
    return sum(values) if values else None


def loads(page, engine, loads_tier):
    """Returns the `loads` of a report. A tier that the engine does not count is left out."""
    report = []
    for kind, names in COUNTERS.items():
        tier = loads_tier if kind == "loads" else "STORAGE"
        if kind == "reads" and loads_tier == "STORAGE":
            continue
        for bytes_name, seconds_name, labels in names:
            if engine is not None:
                labels = {**labels, "engine": engine}
            counted = total(page, bytes_name, labels), total(page, seconds_name, labels)
            if None not in counted:
                report.append({"tier": tier, "bytes_total": counted[0], "seconds_total": counted[1]})
                break
    return report


def report_once(args):
    with urllib.request.urlopen(args.metrics_url, timeout=10) as reply:
        counted = loads(reply.read().decode(), args.engine, args.loads_tier)
    if not counted:
        raise ValueError(f"{args.metrics_url}: the page has no counters of loads")
    body = json.dumps({"worker": args.worker, "loads": counted}).encode()
    request = urllib.request.Request(args.router_url.rstrip("/") + "/v1/load_rates", body)
    with urllib.request.urlopen(request, timeout=10) as reply:
        return reply.read().decode().strip()


def main():
    parser = argparse.ArgumentParser(description="Reports loads of a vLLM engine to kvcast router.")
    parser.add_argument("metrics_url")
    parser.add_argument("router_url")
    parser.add_argument("worker")
    parser.add_argument("--engine")
    parser.add_argument("--loads-tier", choices=["CPU", "STORAGE"], default="CPU")
    parser.add_argument("--every", type=float)
    args = parser.parse_args()
    while True:
        try:
            print(report_once(args), flush=True)
        except urllib.error.HTTPError as error:
            print(f"{error.url}: {error.code} {error.read().decode()[:500].strip()}", file=sys.stderr)
            failed = True
        except (OSError, ValueError) as error:
            print(error, file=sys.stderr)
            failed = True
        else:
            failed = False
        if args.every is None:
            return failed
        time.sleep(args.every)


if __name__ == "__main__":
    sys.exit(main())
