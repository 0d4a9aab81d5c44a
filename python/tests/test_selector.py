"""Selector and Candidate."""
import pytest
from conftest import in_threads

import kvcast


def test_the_cost_is_the_documented_formula():
    selector = kvcast.Selector(work=2.0, later=3.0, partial=0.5, eviction=4.0)
    candidate = kvcast.Candidate("w", 10, queue_s=1.0, compute_s=2.0, load_s=0.25, partial_s=0.5, eviction_s=0.125)
    own = 1.0 + 0.25 + 2.0
    fleet = 2.0 * 2.0 + 3.0 * 0.1 * 2.0 * (2 * 1.0 + 2.0) - 0.5 * 0.5 + 4.0 * 0.125
    assert selector.cost(candidate, delay=0.1) == pytest.approx(own + fleet)
    assert selector.fleet_cost(candidate, 0.1) == pytest.approx(fleet)
    assert (candidate.worker, candidate.reusable_tokens, candidate.queue_s, candidate.compute_s) == ("w", 10, 1.0, 2.0)


def test_the_lowest_cost_wins_then_more_tokens_then_the_earlier_candidate():
    selector = kvcast.Selector()
    slow, fast = kvcast.Candidate(("a", 0), 5, compute_s=2.0), kvcast.Candidate(("b", 1), 0, compute_s=1.0)
    choice = selector.select([slow, fast])
    assert (choice.worker, choice.index, choice.reusable_tokens) == (("b", 1), 1, 0)
    assert choice.cost == pytest.approx(selector.cost(fast))
    assert selector.select([kvcast.Candidate("x", 1), kvcast.Candidate("y", 2)]).worker == "y"
    assert selector.select([kvcast.Candidate("x"), kvcast.Candidate("y")]).worker == "x"
    assert selector.select([]) is None and selector.select(iter([slow])).index == 0


def test_bad_values_raise():
    candidate, selector = kvcast.Candidate("w"), kvcast.Selector()
    for bad, error in [
        (lambda: kvcast.Candidate("w", -1), ValueError), (lambda: kvcast.Candidate("w", 2**63), TypeError),
        (lambda: kvcast.Candidate("w", queue_s=-1.0), ValueError), (lambda: kvcast.Candidate("w", load_s=float("nan")), ValueError),
        (lambda: kvcast.Candidate("w", compute_s=float("inf")), ValueError), (lambda: kvcast.Candidate("w", queue_s="x"), TypeError),
        (lambda: kvcast.Selector(work=-1.0), ValueError), (lambda: kvcast.Selector(later=float("nan")), ValueError),
        (lambda: selector.select([1]), TypeError), (lambda: selector.select(5), TypeError),
        (lambda: selector.select([candidate], delay=-1.0), ValueError), (lambda: selector.cost("x"), TypeError),
        (lambda: selector.fleet_cost(candidate, float("inf")), ValueError),
    ]:
        with pytest.raises(error):
            bad()


def test_threads_get_equal_choices():
    candidates = [kvcast.Candidate(i, i % 7, compute_s=(i * 37 % 101) / 10) for i in range(100)]
    selector = kvcast.Selector()
    expected = min(range(100), key=lambda i: (selector.cost(candidates[i]), -candidates[i].reusable_tokens, i))
    for choices in in_threads(lambda _: [selector.select(candidates).worker for _ in range(200)]):
        assert set(choices) == {expected}
