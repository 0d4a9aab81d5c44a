"""EvictionOrder: the order in which chunks leave host memory."""
import itertools
import random

import pytest
from conftest import in_threads

import kvcast

CONFIGS = [("lru", "v0.32"), ("lru", "v0.33"), ("arc", "v0.32"), ("arc", "v0.33")]
INVALID = kvcast.InvalidArgumentError


def key(i, group=0):
    return i.to_bytes(32, "big") + group.to_bytes(4, "big")


def order(capacity=8, policy="lru", rules="v0.33"):
    return kvcast.EvictionOrder(capacity, policy=policy, rules=rules)


def idle(made, *numbers, **more):
    for i in numbers:
        made.insert(key(i), **more)
        made.set_idle(key(i), True)


def evict_all(made, count):
    """Evict `count` chunks, and return their numbers. No other chunk may be idle."""
    assert made.evict(count + 1) is None
    return [int.from_bytes(one[:32], "big") for one in made.evict(count)]


class Lru:
    """A plain model. The lowest rank leaves first. Of equal ranks, the longest prefix leaves first."""

    def __init__(self, by_access):
        self.by_access, self.places, self.readers, self.last = by_access, {}, {}, 0

    def new_rank(self):
        self.last += 1
        return self.last

    def insert(self, name, rank, end):
        self.places[name], self.readers[name] = (self.new_rank() if rank is None else rank, -end), -1

    def remove(self, name):
        del self.places[name], self.readers[name]

    def access(self, name, rank, end):
        if self.by_access and name in self.places:
            self.places[name] = max(self.places[name], (rank, -end))

    def store_misses(self, names):
        pass

    def charge(self, name, use):
        if name in self.places:
            self.places[name] = (self.new_rank(), 0)

    def evict(self, count, kept):
        candidates = sorted((place, name) for name, place in self.places.items()
                            if self.readers[name] == 0 and name not in kept)
        if len(candidates) < count:
            return None
        for _, name in candidates[:count]:
            self.remove(name)
        return [name for _, name in candidates[:count]]

    def clear(self):
        self.places, self.readers = {}, {}


class Arc:
    """A plain model of adaptive replacement. Lists from the oldest chunk to the newest."""

    def __init__(self, capacity):
        self.capacity, self.last = capacity, 0
        self.clear()

    def clear(self):
        self.t1, self.t2, self.b1, self.b2, self.target, self.readers = [], [], [], [], 0.0, {}

    new_rank = Lru.new_rank

    def insert(self, name, rank, end):
        for ghosts in (self.b1, self.b2):
            if name in ghosts:
                ghosts.remove(name)
        self.t1.append(name)
        self.readers[name] = -1

    def remove(self, name):
        (self.t1 if name in self.t1 else self.t2).remove(name)
        del self.readers[name]

    def access(self, name, rank, end):
        pass

    def store_misses(self, names):
        for name in names:
            for own, other, sign in ((self.b1, self.b2, 1), (self.b2, self.b1, -1)):
                if name in own:
                    step = max(1.0, len(other) / len(own))
                    self.target = min(max(self.target + sign * step, 0.0), self.capacity)
                    own.append(own.pop(own.index(name)))
                    break

    def charge(self, name, use):
        if use != "offer" and name in self.readers:
            chunks = self.t2 if use == "reuse" or name in self.t2 else self.t1
            (self.t1 if name in self.t1 else self.t2).remove(name)
            chunks.append(name)

    def evict(self, count, kept):
        left = [[name for name in chunks if self.readers[name] == 0 and name not in kept]
                for chunks in (self.t1, self.t2)]
        in_t1, victims = len(self.t1), []
        while len(victims) < count:
            source = 0 if in_t1 >= int(self.target) else 1
            source = source if left[source] else 1 - source
            if not left[source]:
                return None
            victims.append(left[source].pop(0))
            in_t1 -= source == 0
        for name in victims:
            (self.b1 if name in self.t1 else self.b2).append(name)
            self.remove(name)
        for ghosts in (self.b1, self.b2):
            del ghosts[:max(0, len(ghosts) - self.capacity)]
        return victims


def model_of(policy, rules, capacity):
    return Arc(capacity) if policy == "arc" else Lru(rules == "v0.33")


def random_calls(policy, rules, seed, calls):
    """Make calls on the object and on the model. Return how often each kind of call had an effect."""
    choose, capacity = random.Random(seed), 6
    made, model = order(capacity, policy, rules), model_of(policy, rules, capacity)
    names = [(i, group) for i in range(14) for group in range(2)]
    ranks, ends, seen = {}, itertools.count(1), dict.fromkeys(("evict", "none", "ghost", "access", "clear"), 0)
    for _ in range(calls):
        name, draw = choose.choice(names), choose.random()
        one, reader = key(*name), model.readers.get(name)
        request = choose.randrange(4)
        if request not in ranks or choose.random() < 0.1:
            ranks[request] = made.new_rank(), model.new_rank()
        if draw < 0.2 and reader is None:
            rank = choose.choice((None, ranks[request]))
            end = next(ends)  # no two chunks have the same place
            seen["ghost"] += policy == "arc" and name in model.b1 + model.b2
            made.insert(one, *((None, end) if rank is None else (rank[0], end)))
            model.insert(name, rank and rank[1], end)
        elif draw < 0.4 and reader is not None:
            made.set_idle(one, reader != 0)
            model.readers[name] = 0 if reader != 0 else 1
        elif draw < 0.43 and reader is not None:
            made.remove(one)
            model.remove(name)
        elif draw < 0.55:
            end, before = next(ends), reader is not None and policy == "lru" and model.places[name]
            made.access(one, ranks[request][0], end)
            model.access(name, ranks[request][1], end)
            seen["access"] += before and model.places[name] != before
        elif draw < 0.65:
            missed = choose.sample(names, 3)
            made.store_misses([key(*other) for other in missed])
            model.store_misses(missed)
        elif draw < 0.8:
            use = choose.choice(("offer", "store", "reuse"))
            getattr(made, "charge_" + use)(one)
            model.charge(name, use)
        elif draw < 0.995:
            count, kept = choose.randrange(4), choose.sample(names, choose.randrange(6))
            expected = model.evict(count, kept)
            assert made.evict(count, [key(*other) for other in kept]) == (expected and [key(*one) for one in expected])
            seen["evict"] += bool(expected)
            seen["none"] += expected is None
        else:
            made.clear()
            model.clear()
            seen["clear"] += 1
    idle_names = [name for name in model.readers if model.readers[name] == 0]
    assert made.evict(len(idle_names) + 1) is None
    assert made.evict(len(idle_names)) == [key(*name) for name in model.evict(len(idle_names), [])]
    return seen


@pytest.mark.parametrize("policy, rules", CONFIGS)
def test_random_calls_give_the_results_of_the_model(policy, rules):
    seen = [random_calls(policy, rules, seed, 1500) for seed in range(20)]
    total = {name: sum(one[name] for one in seen) for name in seen[0]}
    assert total["evict"] > 500 and total["none"] > 500 and total["clear"] > 20
    assert (total["ghost"] > 100) == (policy == "arc")
    assert (total["access"] > 100) == ((policy, rules) == ("lru", "v0.33"))


def test_ranks_grow():
    made = order()
    ranks = [made.new_rank() for _ in range(3)]
    made.insert(key(1))
    made.charge_store(key(1))
    ranks.append(made.new_rank())
    made.clear()
    ranks.append(made.new_rank())
    assert ranks == sorted(set(ranks)) and ranks[0] > 0 and ranks[3] > ranks[2] + 2


def test_the_smallest_rank_leaves_first_and_of_equal_ranks_the_longest_prefix():
    made = order()
    for i, rank, end in [(1, 5, 16), (2, 5, 48), (3, 5, 32), (4, 2**64 - 1, 2**63 - 1), (5, 0, 0), (6, 5, 0)]:
        idle(made, i, rank=rank, end=end)
    assert evict_all(made, 6) == [5, 2, 3, 1, 6, 4]


def test_of_equal_places_the_lower_group_leaves_first():
    made = order()
    for group in (2, 0, 1):
        made.insert(key(7, group), 3, 16)
        made.set_idle(key(7, group), True)
    assert made.evict(3) == [key(7, 0), key(7, 1), key(7, 2)]


@pytest.mark.parametrize("policy, rules", CONFIGS)
def test_the_states_of_a_chunk(policy, rules):
    made = order(8, policy, rules)
    made.insert(key(1))
    assert made.evict(0) == [] and made.evict(1) is None  # the store is in progress
    made.set_idle(key(1), True)
    made.set_idle(key(1), False)
    assert made.evict(1) is None  # a load is in progress
    made.set_idle(key(1), True)
    assert made.evict(1, [key(1)]) is None and made.evict(1, {key(2): None}) == [key(1)]
    assert made.evict(1) is None
    made.insert(key(1))  # it is absent again
    made.remove(key(1))
    idle(made, 1)
    made.remove(key(1))
    assert made.evict(1) is None
    idle(made, 2)
    made.set_idle(key(2), False)
    made.remove(key(2))
    idle(made, 1, 2)
    made.clear()
    assert made.evict(1) is None
    idle(made, 1)
    assert made.evict(1, iter([])) == [key(1)]


@pytest.mark.parametrize("policy, rules", CONFIGS)
def test_a_failed_eviction_changes_nothing(policy, rules):
    made = order(8, policy, rules)
    idle(made, 1, 2, 3)
    assert made.evict(4) is None and made.evict(3, [key(2)]) is None
    assert made.evict(3) == [key(1), key(2), key(3)]


@pytest.mark.parametrize("rules", ["v0.32", "v0.33"])
def test_the_first_use_of_a_running_request(rules):
    """From v0.33 on, `access` can raise the rank of a chunk, and never lowers the rank."""
    made = order(8, "lru", rules)
    idle(made, 1, 2, 3, rank=5, end=16)
    made.access(key(1), 9, 32)
    made.access(key(1), 9, 16)
    made.access(key(1), 9, 32)
    made.access(key(2), 4, 0)
    made.access(key(2), 5, 17)
    made.access(key(3), 9, 31)
    made.access(key(4), 9, 31)  # absent
    assert evict_all(made, 3) == ([2, 3, 1] if rules == "v0.33" else [1, 2, 3])


@pytest.mark.parametrize("charge", ["charge_offer", "charge_store", "charge_reuse"])
def test_a_charged_chunk_is_the_newest_of_lru(charge):
    for rules in ("v0.32", "v0.33"):
        made = order(8, "lru", rules)
        idle(made, 1, 2, 3)
        getattr(made, charge)(key(1))
        getattr(made, charge)(key(9))  # absent
        made.set_idle(key(2), False)
        getattr(made, charge)(key(2))
        made.set_idle(key(2), True)
        assert evict_all(made, 3) == [3, 1, 2]


@pytest.mark.parametrize("rules", ["v0.32", "v0.33"])
def test_arc_evicts_a_reused_chunk_last(rules):
    made = order(4, "arc", rules)
    idle(made, 1, 2, 3, 4)
    made.charge_reuse(key(1))  # to T2
    made.charge_store(key(2))  # the newest of T1
    made.charge_offer(key(3))  # no effect
    made.access(key(3), 10**6, 0)  # no effect
    assert evict_all(made, 4) == [3, 4, 2, 1]


def test_misses_of_ghosts_change_the_target_of_arc():
    made = order(4, "arc")
    idle(made, 1, 2, 3, 4)
    made.charge_reuse(key(1))
    made.charge_reuse(key(2))
    assert made.evict(2) == [key(3), key(4)]  # T1 is empty, its ghosts are 3 and 4
    idle(made, 5, 6)
    made.store_misses([key(3), key(9), key(5), key(3)])  # T1 was too small: the target of T1 becomes 2
    idle(made, 3)
    assert made.evict(1) == [key(5)]  # T1 has three chunks, more than the target
    made.store_misses([key(4)])  # the target is 3
    assert made.evict(1) == [key(1)]  # T1 has two chunks, fewer than the target
    made.store_misses([key(1)])  # T2 was too small
    assert made.evict(1) == [key(6)]


def test_arc_forgets_ghosts_beyond_the_capacity():
    made = order(2, "arc")
    idle(made, 1, 2, 3)
    made.charge_reuse(key(3))
    assert made.evict(2) == [key(1), key(2)]
    idle(made, 4, 5)
    assert made.evict(1) == [key(4)]  # the ghosts are 2 and 4
    made.store_misses([key(1)] * 9)
    assert made.evict(1) == [key(5)]
    idle(made, 6)
    made.store_misses([key(4)] * 9)  # the target is the capacity
    assert made.evict(1) == [key(3)]
    made = order(0, "arc")
    idle(made, 1)
    assert made.evict(1) == [key(1)]
    made.store_misses([key(1)])


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_many_chunks(policy):
    """More chunks than the capacity are allowed. Evicted keys leave no traces."""
    made = order(100, policy)
    idle(made, *range(5000))
    for start in range(0, 5000, 1000):
        assert made.evict(1000) == [key(i) for i in range(start, start + 1000)]
    assert made.evict(1) is None


def test_keys_of_every_length():
    made = order()
    keys = [bytes([i + 1] * length) + group.to_bytes(4, "big") for i, (length, group) in
            enumerate([(1, 0), (1, 2**32 - 1), (8, 1), (31, 0), (32, 0), (32, 7)])]
    keys += [b"\0" + bytes(4), b"\0\0" + bytes(4)]
    for one in keys:
        made.insert(one)
        made.set_idle(one, True)
    assert made.evict(len(keys)) == keys


def bad_calls(made):
    return [
        (lambda: kvcast.EvictionOrder(-1), INVALID), (lambda: kvcast.EvictionOrder(2**63), TypeError),
        (lambda: kvcast.EvictionOrder(-2**63 - 1), TypeError), (lambda: kvcast.EvictionOrder(1.5), TypeError),
        (lambda: kvcast.EvictionOrder(), TypeError), (lambda: kvcast.EvictionOrder(1, "lru"), TypeError),
        (lambda: order(1, "LRU"), INVALID), (lambda: order(1, ""), INVALID), (lambda: order(1, None), TypeError),
        (lambda: order(1, "lru", "v0.21"), INVALID), (lambda: order(1, "arc", "2026-08"), INVALID),
        (lambda: order(1, "lru", "v0.34"), INVALID), (lambda: order(1, "lru", None), TypeError),
        (lambda: made.insert(key(1)), INVALID), (lambda: made.insert(key(2)), INVALID),
        (lambda: made.insert("x"), TypeError), (lambda: made.insert(None), TypeError),
        (lambda: made.insert(bytearray(key(3))), TypeError), (lambda: made.insert(b""), INVALID),
        (lambda: made.insert(bytes(4)), INVALID), (lambda: made.insert(bytes(37)), INVALID),
        (lambda: made.insert(key(3), -1), TypeError), (lambda: made.insert(key(3), 2**64), TypeError),
        (lambda: made.insert(key(3), 1.5), TypeError), (lambda: made.insert(key(3), 1, 2**63), TypeError),
        (lambda: made.insert(key(3), 1, None), TypeError), (lambda: made.insert(key(3), 1, "1"), TypeError),
        (lambda: made.remove(key(3)), INVALID), (lambda: made.remove(5), TypeError),
        (lambda: made.remove(b"x"), INVALID), (lambda: made.set_idle(key(3), True), INVALID),
        (lambda: made.set_idle(key(3), False), INVALID), (lambda: made.set_idle(key(1), True), INVALID),
        (lambda: made.set_idle(key(2), False), INVALID), (lambda: made.set_idle(key(1), "no"), TypeError),
        (lambda: made.set_idle(key(1)), TypeError), (lambda: made.set_idle(5, True), TypeError),
        (lambda: made.access(key(1), -1, 0), TypeError), (lambda: made.access(key(1), 2**64, 0), TypeError),
        (lambda: made.access(key(1), None, 0), TypeError), (lambda: made.access(key(1), 1, 2**63), TypeError),
        (lambda: made.access(5, 1, 1), TypeError), (lambda: made.access(b"x", 1, 1), INVALID),
        (lambda: made.store_misses(5), TypeError), (lambda: made.store_misses([5]), TypeError),
        (lambda: made.store_misses([b"x"]), INVALID), (lambda: made.store_misses(key(1)), TypeError),
        (lambda: made.charge_offer(5), TypeError), (lambda: made.charge_store(b"x"), INVALID),
        (lambda: made.charge_reuse(None), TypeError), (lambda: made.evict(2**63), TypeError),
        (lambda: made.evict("1"), TypeError), (lambda: made.evict(None), TypeError),
        (lambda: made.evict(1, 5), TypeError), (lambda: made.evict(1, [5]), TypeError),
        (lambda: made.evict(1, [b"x"]), INVALID), (lambda: made.evict(1, None), TypeError),
        (lambda: made.new_rank(1), TypeError), (lambda: made.clear(1), TypeError),
    ]


@pytest.mark.parametrize("policy, rules", CONFIGS)
def test_bad_calls_raise_and_change_nothing(policy, rules):
    made = order(8, policy, rules)
    idle(made, 1)
    made.insert(key(2))  # the store is in progress
    idle(made, 4)
    for bad, error in bad_calls(made):
        with pytest.raises(error):
            bad()
    made.set_idle(key(2), True)
    assert evict_all(made, 3) == [1, 2, 4]


@pytest.mark.parametrize("call", [lambda made: made.insert(key(3), 1, -1), lambda made: made.insert(key(3), 1, -2**63),
                                  lambda made: made.access(key(1), 1, -1), lambda made: made.evict(-1)])
def test_negative_values_raise(call):
    made = order()
    idle(made, 1)
    with pytest.raises(INVALID):
        call(made)


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_keys_that_use_the_object_while_it_reads_them(policy):
    made = order(8, policy)
    idle(made, 1, 2, 3)

    def keys():
        made.set_idle(key(1), False)
        made.remove(key(2))
        yield key(9)
        made.set_idle(key(1), True)
        idle(made, 4)

    assert made.evict(3, keys()) == [key(1), key(3), key(4)]
    with pytest.raises(ZeroDivisionError):
        made.store_misses(1 // 0 for _ in range(1))


@pytest.mark.parametrize("policy, rules", CONFIGS)
def test_threads_share_an_object(policy, rules):
    """Every chunk leaves exactly once. Each thread inserts chunks of its own, and any thread evicts them."""
    made, per_thread = order(64, policy, rules), 400

    def work(i):
        evicted, rank = [], made.new_rank()
        for n in range(per_thread):
            one = key(i * per_thread + n)
            made.insert(one, rank if n % 2 else None, n)
            made.store_misses([one, key(10**6 + n)])
            made.access(one, rank, n)
            made.set_idle(one, True)
            for charge in (made.charge_offer, made.charge_store, made.charge_reuse):
                charge(key(i * per_thread + n // 2))
            if n % 3 == 0:
                evicted += made.evict(2, [one]) or []
        return evicted

    all_evicted = list(itertools.chain(*in_threads(work)))
    remaining = 8 * per_thread - len(all_evicted)
    assert made.evict(remaining + 1) is None
    all_evicted += made.evict(remaining)
    assert sorted(all_evicted) == [key(i) for i in range(8 * per_thread)]


def test_threads_get_different_ranks():
    made = order()
    ranks = in_threads(lambda i: [made.new_rank() for _ in range(1000)])
    assert all(one == sorted(one) for one in ranks) and len(set(itertools.chain(*ranks))) == 8000
