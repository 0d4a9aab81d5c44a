"""simulate: the simulator of `kvcast simulate`."""
import pathlib

import pytest
from conftest import in_threads

import kvcast

TRACE = str(pathlib.Path(__file__).parents[2] / "examples/traces/mooncake_conversation_1200.jsonl")
SMALL = dict(slices=1, slice_requests=60, engines=2, policy="kvcast,round_robin", index=["exact"])


def test_a_run_has_every_rule_and_no_wrong_answer():
    result = kvcast.simulate([TRACE], **SMALL)
    assert [(run["rule"], run["index"]) for run in result["runs"]] == [("kvcast", "exact"), ("round_robin", "exact")]
    for run in result["runs"]:
        assert run["prompt_tokens"] > 0 and run["exact_equal"] == run["exact_checked"]
    assert result["pairs"]


def test_bad_arguments_raise():
    for more, error in [
        ({"engines": 0}, ValueError), ({"slices": 0}, ValueError), ({"loss": 2.0}, ValueError), ({"loss": float("nan")}, ValueError),
        ({"policy": "unknown"}, ValueError), ({"index": "unknown"}, ValueError), ({"model": "unknown"}, ValueError),
        ({"policy": [1]}, TypeError), ({"seed": -1}, TypeError), ({"delay_ms": -1.0}, ValueError), ({"jobs": 2**63}, TypeError),
        ({"cpu_blocks": -1}, ValueError), ({"retention": "x"}, ValueError),
    ]:
        with pytest.raises(error):
            kvcast.simulate([TRACE], **{**SMALL, **more})
    for traces, error in [([], ValueError), (["/missing"], kvcast.KvcastError), (5, TypeError)]:
        with pytest.raises(error):
            kvcast.simulate(traces, **SMALL)


def test_threads_get_equal_results():
    def without_times(result):
        return [{name: value for name, value in run.items() if name != "seconds"} for run in result["runs"]]

    results = in_threads(lambda _: without_times(kvcast.simulate([TRACE], **SMALL)), 2)
    assert results[0] == results[1]
