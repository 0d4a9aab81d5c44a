"""The figures of one run: the predicted tokens, the reused tokens, and the answers with `exact`.
SPDX-License-Identifier: Apache-2.0
"""
import collections
import re

_COUNTS = ("asked", "equal", "over", "under", "lag", "hits", "keyed_hits", "over_tokens",
           "under_tokens", "exact", "exact_wrong")


class Report:
    """Counts the answers of a run. `lag` counts the differences while the engine had unpublished events: the
    router has not received these events. Such a difference is not counted as over or under."""

    def __init__(self):
        self.sequential = dict.fromkeys(_COUNTS, 0)
        self.at_lookup = dict.fromkeys(_COUNTS, 0)
        self.not_exact = collections.Counter()
        self.more_failures = []

    def note(self, counts: dict, keyed: bool, answer: dict, reused: int, lag: bool = False) -> int:
        """Counts one answer. Returns the predicted tokens minus the reused tokens."""
        excess = answer["reusable_tokens"] - reused
        counts["asked"] += 1
        counts["hits"] += reused > 0
        counts["keyed_hits"] += reused > 0 and keyed
        counts["exact"] += answer["exact"]
        if not answer["exact"]:
            self.not_exact[re.sub(r"\d+", "N", answer["reason"])] += 1
        if excess != 0 and lag:
            counts["lag"] += 1
            return excess
        counts["equal" if excess == 0 else "over" if excess > 0 else "under"] += 1
        counts["over_tokens"] += max(excess, 0)
        counts["under_tokens"] += max(-excess, 0)
        counts["exact_wrong"] += answer["exact"] and excess != 0
        return excess

    def failures(self, judge: str, keyed: bool) -> list[str]:
        """Returns the failures. `judge` all: no answer may differ. `judge` exact: no exact answer may differ.
        A run must also reuse tokens; if `keyed`, also tokens with a salt or an adapter."""
        failures = list(self.more_failures)
        for name, counts in (("one at a time", self.sequential), ("at the lookup", self.at_lookup)):
            if counts["asked"] == 0:
                continue
            wrong = counts["exact_wrong"] if judge == "exact" else counts["over"] + counts["under"]
            if wrong:
                failures.append(f"{name}: {wrong} of {counts['asked']} answers differ")
            if counts["hits"] == 0 or (keyed and counts["keyed_hits"] == 0):
                failures.append(f"{name}: no token was reused, so the run shows nothing")
        return failures

    def result(self) -> dict:
        return {"sequential": self.sequential, "at_lookup": self.at_lookup,
                "not_exact": dict(self.not_exact)}
