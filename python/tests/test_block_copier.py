"""BlockCopier: copies between tensors and its host memory."""
import ctypes
import gc
import mmap
import random
import subprocess
import sys
import threading
import time
import weakref

import pytest
from conftest import in_threads

import kvcast

np = pytest.importorskip("numpy")

SLOT = 24


def tensor(rows=8, width=SLOT, seed=0):
    """Rows of random bytes."""
    return np.random.default_rng(seed).integers(0, 256, (rows, width), dtype=np.uint8)


def create(groups, slots=8, slot_bytes=SLOT, **more):
    return kvcast.BlockCopier(groups, slots, slot_bytes, **more)


def run(copier, job, *arguments):
    """Make a job, and return its result: None or the text of an error."""
    copier.submit(job, *arguments)
    copier.wait([job])
    ((ended, error),) = copier.poll()
    assert ended == job and copier.poll() == []
    return error


class Memory:
    """A model of BlockCopier: the expected bytes of the host memory and of the tensors.

    groups: by group, tuples (array, first column, width, bytes of a row that are copied). A tensor consists
    of `width` columns of the array, from `first column` on. No other byte of the array may change. The
    BlockCopier has one extra group with blocks of one slot. Loads of this group return the bytes of the
    slots."""

    def __init__(self, groups, slots, slot_bytes, per_chunk):
        whole = -(-slots // per_chunk) * per_chunk
        self.groups, self.slot_bytes, self.per_chunk, self.job = groups, slot_bytes, per_chunk, 0
        self.shown = tensor(whole + 1, slot_bytes, 5)
        items = [[(array[:, first:first + width], used) for array, first, width, used in group] for group in groups]
        self.copier = create([*items, [self.shown]], whole, slot_bytes, blocks_per_chunk=per_chunk)
        self.expected = [[array.copy() for array, *_ in group] for group in groups]
        self.host = self.shown[1:].copy()
        self.move_slots(store=True)

    def run(self, store, blocks, sizes, firsts, slots):
        self.job += 1
        assert run(self.copier, self.job, store, blocks, sizes, firsts, slots) is None

    def move_slots(self, store):
        """Store or load the bytes of all slots."""
        none, count = [0] * len(self.groups), len(self.host)
        self.run(store, np.arange(1, count + 1), [*none, count], [*none, 0], np.arange(count))

    def slots_of(self, group):
        return -(-self.copier.block_bytes[group] * self.per_chunk // self.slot_bytes)

    def chunks_of(self, first, size):
        return -(-(first % self.per_chunk + size) // self.per_chunk) if size else 0

    def do(self, store, blocks, firsts, slots):
        """Run the job on the BlockCopier and on the model, and compare every byte. The lists are by group."""
        self.run(store, sum(blocks, []), [len(ids) for ids in blocks] + [0], [*firsts, 0], sum(slots, []))
        for group in range(len(self.groups)):
            for i, block in enumerate(blocks[group]):
                place = firsts[group] % self.per_chunk + i
                if block != 0:
                    self.move(store, group, block, place % self.per_chunk,
                              np.array(slots[group][place // self.per_chunk * self.slots_of(group):]))
        self.move_slots(store=False)
        assert (self.shown[1:] == self.host).all()
        for group, arrays in zip(self.groups, self.expected):
            assert all((array == expected).all() for (array, *_), expected in zip(group, arrays))

    def move(self, store, group, block, place, chunk):
        offset = place * self.copier.block_bytes[group]
        for (_, first, _, used), array in zip(self.groups[group], self.expected[group]):
            positions = offset + np.arange(used)
            bytes_of_host = chunk[positions // self.slot_bytes], positions % self.slot_bytes
            if store:
                self.host[bytes_of_host] = array[block, first:first + used]
            else:
                array[block, first:first + used] = self.host[bytes_of_host]
            offset += used


@pytest.mark.parametrize("per_chunk, slot_bytes", [(1, 33), (1, 4099), (3, 99), (3, 64), (3, 20000)])
def test_random_jobs_move_exactly_the_right_bytes(per_chunk, slot_bytes):
    """Tensors with unused bytes, with gaps between rows, and with long rows. Chunks of one slot and of many."""
    groups = [[(tensor(9, 16, 1), 0, 16, 16), (tensor(9, 20, 2), 0, 20, 7), (tensor(9, 40, 3), 3, 12, 10)],
              [(tensor(6, 6000, 4), 5, 5000, 4099)]]
    choose = random.Random(per_chunk * slot_bytes)
    memory = Memory(groups, 4 * 3 * -(-4099 * per_chunk // slot_bytes), slot_bytes, per_chunk)
    assert memory.copier.block_bytes == [33, 4099, slot_bytes]
    for _ in range(25):
        free = list(range(len(memory.host)))
        choose.shuffle(free)
        blocks, firsts, slots = [], [], []
        for group, items in enumerate(groups):
            names = list(range(1, len(items[0][0])))
            choose.shuffle(names)
            blocks.append([0 if choose.random() < 0.2 else name for name in names[:choose.randrange(len(names))]])
            firsts.append(choose.randrange(20))
            count = memory.chunks_of(firsts[-1], len(blocks[-1])) * memory.slots_of(group)
            slots.append([free.pop() for _ in range(count)])
        memory.do(choose.random() < 0.5, blocks, firsts, slots)


def test_a_block_keeps_its_place_in_a_chunk():
    """Blocks 4 to 7 of a request: the last two of the three blocks of a chunk, and two of the next chunk."""
    source = tensor(10)
    copier = create([[source]], 6, 3 * SLOT, blocks_per_chunk=3)
    expected = source.copy()
    assert run(copier, 1, True, [1, 2, 3, 4], [4], [4], [5, 0]) is None
    source[:] = 0
    assert run(copier, 2, False, [7, 8], [2], [7], [0]) is None  # block 7 of the request is the second of its chunk
    assert run(copier, 3, False, [9], [1], [1], [5]) is None
    assert (source[7] == expected[4]).all() and (source[9] == expected[1]).all()
    assert (source[:7] == 0).all()


def test_a_group_without_tensors_takes_slots_only():
    array = tensor()
    before = array.copy()
    copier = create([[], [array], []], slot_bytes=2 * SLOT, blocks_per_chunk=2)
    # Blocks 1 and 2 are in two chunks of group 0, blocks 3 and 4 in one of group 1, and block 5 in one of group 2.
    assert run(copier, 1, True, [1, 2, 3, 4, 5], [2, 2, 1], [1, 0, 0], [5, 6, 7, 3]) is None
    array[:] = 0
    assert run(copier, 2, False, [6, 7], [0, 2, 0], [0, 0, 0], [7]) is None
    assert (array[6:] == before[3:5]).all() and not array[:6].any()
    assert run(copier, 3, True, [1], [1, 0, 0], [0, 0, 0], [2]) is None
    with pytest.raises(kvcast.InvalidArgumentError, match="no group has tensors"):
        create([[], []])


def test_the_null_block_is_not_copied():
    source = tensor()
    copier = create([[source]])
    expected = source.copy()
    assert run(copier, 1, True, [1, 2, 3], [3], [0], [0, 1, 2]) is None
    assert run(copier, 2, True, [4, 0, 0], [3], [0], [0, 1, 1]) == "invalid_argument: slot 1: is a destination twice"
    assert run(copier, 3, True, [4, 0, 5], [3], [0], [0, 1, 2]) is None  # slot 1 keeps block 2
    source[:] = 0
    assert run(copier, 4, False, [0, 7, 0], [3], [0], [0, 1, 2]) is None
    assert (source[7] == expected[2]).all() and not source[:7].any()
    assert run(copier, 5, False, [0, 0], [2], [0], [0, 0]) is None
    assert not source[:7].any()


def test_a_job_without_blocks_ends():
    copier = create([[tensor()], [tensor()]])
    assert run(copier, 1, True, [], [0, 0], [0, 5], []) is None
    assert run(copier, 2, False, [1], [0, 1], [9, 0], [3]) is None


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda ids: np.array(ids, np.int32),
                                  lambda ids: np.array(ids, np.uint64), lambda ids: np.repeat(ids, 2)[::2]])
def test_lists_of_every_kind(kind):
    source = tensor()
    copier, expected = create([[source]]), source.copy()
    assert run(copier, 1, True, kind([1, 2]), kind([2]), kind([0]), kind([3, 4])) is None
    source[:] = 0
    assert run(copier, 2, False, kind([5, 6]), kind([2]), kind([0]), kind([4, 3])) is None
    assert (source[5] == expected[2]).all() and (source[6] == expected[1]).all()


@pytest.mark.parametrize("kind", ["int8", "bool", "S1", "memoryview", "ctypes"])
def test_elements_of_one_byte(kind):
    data = tensor()
    if kind == "memoryview":
        source = memoryview(bytearray(data)).cast("B", (8, SLOT))
    elif kind == "ctypes":  # its buffer has no strides
        source = (ctypes.c_uint8 * SLOT * 8).from_buffer_copy(data)
    else:
        source = data.copy().view(kind)
    copier = create([[source]])
    assert run(copier, 1, True, [1, 2], [2], [0], [0, 1]) is None
    assert run(copier, 2, False, [3, 4], [2], [0], [1, 0]) is None
    result = np.frombuffer(source, np.uint8).reshape(8, SLOT)
    assert (result[3] == data[2]).all() and (result[4] == data[1]).all() and (result[:3] == data[:3]).all()


def test_stats_and_results():
    copier = create([[tensor()], [(tensor(), 10)]])
    zero = {"jobs": 0, "failed_jobs": 0, "blocks": 0, "bytes": 0, "busy_seconds": 0.0}
    assert copier.block_bytes == [SLOT, 10] and copier.poll() == []
    assert copier.stats() == {"loads": zero, "stores": zero}
    for job in (7, 2**64 - 1, 0):
        copier.submit(job, True, [1, 2, 0, 3], [3, 1], [0, 0], [0, 1, 2, 3])
        copier.wait([job, job])
    copier.submit(4, False, [4], [0, 1], [0, 0], [3])
    copier.wait([4])
    copier.submit(5, False, [99], [1, 0], [0, 0], [3])
    copier.wait([123, 5])
    assert copier.poll() == [(7, None), (2**64 - 1, None), (0, None), (4, None),
                           (5, "invalid_argument: block 99: is not in the pool")]
    stats = copier.stats()
    assert stats["stores"].pop("busy_seconds") > 0 and stats["loads"].pop("busy_seconds") > 0
    assert stats["stores"] == {"jobs": 3, "failed_jobs": 0, "blocks": 9, "bytes": 3 * (2 * SLOT + 10)}
    assert stats["loads"] == {"jobs": 2, "failed_jobs": 1, "blocks": 1, "bytes": 10}
    copier.wait([])
    copier.wait((7, 8))


FAILED = {
    "block beyond the pool": ((True, [1, 8], [2], [0], [0, 1]), "block 8: is not in the pool"),
    "largest block id": ((True, [2**31 - 1], [1], [0], [0]), "block 2147483647: is not in the pool"),
    "load beyond the pool": ((False, [1, 8], [2], [0], [0, 1]), "block 8: is not in the pool"),
    "slot beyond the memory": ((True, [1, 2], [2], [0], [0, 8]), "block 2: its slot is not in host memory"),
    "largest slot": ((False, [1], [1], [0], [2**31 - 1]), "block 1: its slot is not in host memory"),
    "slot written twice": ((True, [1, 2], [2], [0], [3, 3]), "slot 3: is a destination twice"),
    "block written twice": ((False, [5, 5], [2], [0], [3, 4]), "block 5: is a destination twice"),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_failed_job_copies_nothing(name):
    source = tensor()
    copier, expected = create([[source]]), source.copy()
    assert run(copier, 1, True, list(range(8)), [8], [0], list(range(8))) is None
    source[:] = before = tensor(seed=1)
    job, text = FAILED[name]
    assert run(copier, 2, *job) == "invalid_argument: " + text
    assert (source == before).all()
    assert run(copier, 3, False, list(range(8)), [8], [0], list(range(8))) is None
    assert (source[1:] == expected[1:]).all()


def test_a_job_id_twice_gives_two_results():
    copier, results = create([[tensor()]]), []
    for block in (1, 2):
        copier.submit(1, True, [block], [1], [0], [block])
    for _ in range(1_000_000):  # wait may return after the first of the two
        copier.wait([1])
        results += copier.poll()
        if len(results) == 2:
            break
    assert results == [(1, None), (1, None)]


def test_a_load_reads_what_an_earlier_job_stored():
    """Many jobs in a row, with larger copies than the threads take in one step."""
    source = tensor(5, 3 << 20)
    copier, expected = create([[source]], 4, 3 << 20), source.copy()
    for job in range(6):
        copier.submit(job, True, [1, 2], [2], [0], [job % 2 * 2, job % 2 * 2 + 1])
        copier.wait([job])
        copier.submit(100 + job, False, [3, 4], [2], [0], [job % 2 * 2 + 1, job % 2 * 2])
        copier.wait([100 + job])
        assert (source[3] == expected[2]).all() and (source[4] == expected[1]).all()
        source[3:] = 0
    assert len(copier.poll()) == 12


class Gpu:
    """A stand-in for a tensor on a GPU: it has only `__cuda_array_interface__`."""

    def __init__(self, shape=(4, SLOT), typestr="|u1", data=(1 << 20, False), **more):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": data, "version": 3} | more


A = tensor()
READ_ONLY = tensor()
READ_ONLY.flags.writeable = False
HUGE = np.lib.stride_tricks.as_strided(A, (1, 2**41), (2**41, 1))  # a row without memory
INVALID = kvcast.InvalidArgumentError
MAKE = [
    (lambda: create([]), INVALID), (lambda: create([[]]), INVALID), (lambda: create([[], []]), INVALID),
    (lambda: create(5), TypeError), (lambda: create([5]), TypeError), (lambda: create([[5]]), TypeError),
    (lambda: create([[None]]), TypeError), (lambda: create("x"), TypeError), (lambda: create([["x"]]), TypeError),
    (lambda: create({"a": [A]}), TypeError), (lambda: create([A]), INVALID), (lambda: create([[[A, 3]]]), TypeError),
    (lambda: create([[A.astype(np.int16)]]), INVALID), (lambda: create([[A.astype(np.float64)]]), INVALID),
    (lambda: create([[A.astype("S2")]]), INVALID), (lambda: create([[A.astype(object)]]), INVALID),
    (lambda: create([[A[0]]]), INVALID), (lambda: create([[A.reshape(2, 4, SLOT)]]), INVALID),
    (lambda: create([[np.zeros((), np.uint8)]]), INVALID), (lambda: create([[bytearray(9)]]), INVALID),
    (lambda: create([[READ_ONLY]]), ValueError), (lambda: create([[bytes(9)]]), (INVALID, BufferError)),
    (lambda: create([[memoryview(READ_ONLY)]]), (INVALID, BufferError)), (lambda: create([[A[:, ::2]]]), INVALID),
    (lambda: create([[A.T]]), INVALID), (lambda: create([[np.asfortranarray(A)]]), INVALID),
    (lambda: create([[A[::-1]]]), INVALID), (lambda: create([[A[:, ::-1]]]), INVALID),
    (lambda: create([[np.lib.stride_tricks.as_strided(A, (4, 9), (8, 1))]]), INVALID),
    (lambda: create([[A[:0]]]), INVALID), (lambda: create([[A[:, :0]]]), INVALID),
    (lambda: create([[A, A[:5]]]), INVALID), (lambda: create([[(A,)]]), INVALID),
    (lambda: create([[(A, 1, 1)]]), INVALID), (lambda: create([[(A, 0)]]), INVALID),
    (lambda: create([[(A, -1)]]), INVALID), (lambda: create([[(A, SLOT + 1)]]), INVALID),
    (lambda: create([[(A, 2**63)]]), INVALID), (lambda: create([[(A, 2**64)]]), INVALID),
    (lambda: create([[(A, 1.0)]]), TypeError), (lambda: create([[(A, True)]]), TypeError),
    (lambda: create([[(A, None)]]), TypeError), (lambda: create([[(5, 5)]]), TypeError),
    (lambda: create([[A]], 0), INVALID), (lambda: create([[A]], -1), INVALID),
    (lambda: create([[A]], 2**31 + 1), INVALID), (lambda: create([[A]], 2**63), TypeError),
    (lambda: create([[A]], 2**64), TypeError), (lambda: create([[A]], 1.5), TypeError),
    (lambda: create([[A]], 1, 0), INVALID), (lambda: create([[A]], 1, -1), INVALID),
    (lambda: create([[A]], 1, 2**46 + 1), INVALID), (lambda: create([[A]], 2, 2**45 + 1), INVALID),
    (lambda: create([[A]], 1, 2**63), TypeError), (lambda: create([[A]], 2**31, 2**62), INVALID),
    (lambda: create([[A]], blocks_per_chunk=0), INVALID), (lambda: create([[A]], blocks_per_chunk=-1), INVALID),
    (lambda: create([[A]], blocks_per_chunk=2**20 + 1), INVALID),
    (lambda: create([[HUGE]]), INVALID), (lambda: create([[(HUGE, 2**30)]], blocks_per_chunk=2**10 + 1), INVALID),
    (lambda: create([[A]], blocks_per_chunk=2**64), TypeError), (lambda: create([[A]], backend="x"), INVALID),
    (lambda: create([[A]], backend=""), INVALID), (lambda: create([[A]], backend=None), TypeError),
    (lambda: create([[A]], device=-1), INVALID), (lambda: create([[A]], device=2**20 + 1), INVALID),
    (lambda: create([[A]], device=2**63), TypeError), (lambda: create([[A]], device="0"), TypeError),
    (lambda: kvcast.BlockCopier([[A]], 1, 1, 1), TypeError), (lambda: kvcast.BlockCopier([[A]], 1), TypeError),
]
CUDA = [
    (A, TypeError), (None, TypeError), (Gpu(shape=(4,)), INVALID), (Gpu(shape=(4, 4, 4)), INVALID),
    (Gpu(typestr="<i2"), INVALID), (Gpu(typestr=""), INVALID), (Gpu(strides=(SLOT, 2)), INVALID),
    (Gpu(strides=(SLOT,)), INVALID), (Gpu(strides=(SLOT - 1, 1)), INVALID), (Gpu(strides=(-SLOT, 1)), INVALID),
    (Gpu(data=(1 << 20, True)), INVALID), (Gpu(data=(0, False)), INVALID), (Gpu(shape=(0, SLOT)), INVALID),
    (Gpu(shape=(4, 0)), INVALID), (Gpu(shape=(-4, SLOT)), INVALID), (Gpu(shape=(4, -SLOT)), INVALID),
    (Gpu(shape=(2**63, SLOT)), INVALID), (Gpu(shape=None), INVALID), (Gpu(shape="4,4"), INVALID),
    (Gpu(typestr=None), INVALID), (Gpu(data=None), INVALID), (Gpu(data=(1,)), INVALID),
    (Gpu(data=(-1, False)), INVALID), (Gpu(data=(2**64, False)), INVALID), (Gpu(strides=5), INVALID),
    ((Gpu(), SLOT + 1), INVALID), ((Gpu(), 0), INVALID),
]


@pytest.mark.parametrize("number", range(len(MAKE)))
def test_bad_arguments_of_the_constructor(number):
    make, error = MAKE[number]
    with pytest.raises(error):
        make()


@pytest.mark.parametrize("number", range(len(CUDA)))
def test_bad_tensors_of_a_gpu(number):
    item, error = CUDA[number]
    with pytest.raises(error):
        create([[item]], backend="cuda")


@pytest.mark.parametrize("name", ["shape", "typestr", "data"])
def test_a_tensor_of_a_gpu_without_an_entry(name):
    item = Gpu()
    del item.__cuda_array_interface__[name]
    with pytest.raises(INVALID):
        create([[item]], backend="cuda")


def test_the_constructor_raises_without_memory():
    size = 1 << 46
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, ValueError):
        with pytest.raises(kvcast.ExhaustedError):
            create([[A]], 1, size)
    else:
        pytest.skip("this system overcommits memory")


SUBMIT = [
    ((-1, True, [1], [1], [0], [0]), TypeError), ((2**64, True, [1], [1], [0], [0]), TypeError),
    ((1.0, True, [1], [1], [0], [0]), TypeError), ((None, True, [1], [1], [0], [0]), TypeError),
    ((1, "store", [1], [1], [0], [0]), TypeError), ((1, True, [1], [1], [0]), TypeError),
    ((1, True, None, [1], [0], [0]), TypeError), ((1, True, 1, [1], [0], [0]), TypeError),
    ((1, True, "1", [1], [0], [0]), TypeError), ((1, True, b"1", [1], [0], [0]), TypeError),
    ((1, True, [1.0], [1], [0], [0]), TypeError), ((1, True, [True], [1], [0], [0]), TypeError),
    ((1, True, ["1"], [1], [0], [0]), TypeError), ((1, True, [None], [1], [0], [0]), TypeError),
    ((1, True, [-1], [1], [0], [0]), INVALID), ((1, True, [2**31], [1], [0], [0]), INVALID),
    ((1, True, [2**32], [1], [0], [0]), INVALID), ((1, True, [2**63], [1], [0], [0]), INVALID),
    ((1, True, [2**64], [1], [0], [0]), INVALID), ((1, True, np.array([[1]]), [1], [0], [0]), INVALID),
    ((1, True, np.array(1), [1], [0], [0]), INVALID), ((1, True, np.array([1.0]), [1], [0], [0]), TypeError),
    ((1, True, np.array([1], np.uint8), [1], [0], [0]), TypeError),
    ((1, True, np.array([2**63], np.uint64), [1], [0], [0]), INVALID),
    ((1, True, np.array([1], ">i8"), [1], [0], [0]), TypeError), ((1, True, [1], [1], [0], [-1]), INVALID),
    ((1, True, [1], [1], [0], [2**31]), INVALID), ((1, True, [1], [1], [0], [2**63]), INVALID),
    ((1, True, [1], [1], [0], [2**64]), INVALID), ((1, True, [1], [1], [0], ["0"]), TypeError),
    ((1, True, [1], [1], [0], None), TypeError), ((1, True, [1], [], [0], [0]), INVALID),
    ((1, True, [1], [1, 0], [0], [0]), INVALID), ((1, True, [1], [1], [], [0]), INVALID),
    ((1, True, [1], [1], [0, 0], [0]), INVALID), ((1, True, [1], [2], [0], [0, 1]), INVALID),
    ((1, True, [1, 2], [1], [0], [0]), INVALID), ((1, True, [1], [0], [0], []), INVALID),
    ((1, True, [], [0], [0], [0]), INVALID), ((1, True, [1], [1], [0], []), INVALID),
    ((1, True, [1], [1], [0], [0, 1]), INVALID), ((1, True, [1], [-1], [0], [0]), INVALID),
    ((1, True, [1], [2**63], [0], [0]), INVALID), ((1, True, [1], [2**63 - 1], [2**63 - 1], [0]), INVALID),
    ((1, True, [1], [2**64], [0], [0]), INVALID), ((1, True, [1], [1], [-1], [0]), INVALID),
    ((1, True, [1], [1], [2**63], [0]), INVALID), ((1, True, [1], [1.0], [0], [0]), TypeError),
    ((1, True, [1], None, [0], [0]), TypeError), ((1, True, [1], [1], None, [0]), TypeError),
    ((1, True, [1], [1], [0], [0], 5), INVALID), ((1, True, [1], [1], [0], [0], -1), TypeError),
    ((1, True, [1], [1], [0], [0], 2**64), TypeError), ((1, True, [1], [1], [0], [0], None), TypeError),
    ((1, True, [1], [1], [0], [0], 0, 0), TypeError),
]


@pytest.mark.parametrize("number", range(len(SUBMIT)))
def test_bad_arguments_of_submit_start_nothing(number):
    arguments, error = SUBMIT[number]
    copier = create([[tensor()]])
    with pytest.raises(error):
        copier.submit(*arguments)
    assert copier.poll() == [] and copier.stats()["stores"]["jobs"] == 0
    assert run(copier, 1, True, [1], [1], [2**63 - 1], [0]) is None


def test_slots_of_large_chunks_are_counted():
    copier = create([[tensor()], [(tensor(), 5)]], 16, 40, blocks_per_chunk=3)  # 72 bytes: two slots; 15 bytes: one
    for firsts, slots in [([0, 0], [0, 1, 2]), ([2, 2], [0, 1, 2, 3, 4, 5])]:
        assert run(copier, 1, True, [1, 2, 3], [2, 1], [0, 0], [0, 1, 2]) is None
        needed = [2 * -(-(firsts[0] + 2) // 3), 1]
        assert run(copier, 2, True, [1, 2, 3], [2, 1], firsts, slots[:sum(needed)]) is None
        for count in range(7):
            if count != sum(needed):
                with pytest.raises(INVALID):
                    copier.submit(3, True, [1, 2, 3], [2, 1], firsts, list(range(count)))


@pytest.mark.parametrize("jobs", [[-1], [2**64], ["1"], [1.5], 5, None, "12"])
def test_bad_arguments_of_wait(jobs):
    with pytest.raises(TypeError):
        create([[A]]).wait(jobs)


def test_failed_calls_keep_no_references():
    array, other = tensor(), tensor()[::-1]
    counts = sys.getrefcount(array), sys.getrefcount(other)
    for _ in range(20):
        with pytest.raises(INVALID):
            create([[array, other]])
        with pytest.raises(INVALID):
            create([[array]], backend="x")
        with pytest.raises(INVALID):
            create([[array]]).submit(1, True, array[0].astype(np.int64), [1], [0], [0])
    assert (sys.getrefcount(array), sys.getrefcount(other)) == counts


def test_the_object_keeps_its_tensors():
    first, second = tensor(), tensor(seed=1)
    expected = first.copy(), second.copy()
    alive = weakref.ref(first), weakref.ref(second)
    bytes_of_host = bytearray(8 * SLOT)
    view = memoryview(bytes_of_host).cast("B", (8, SLOT))
    copier = create([[first], [(second, SLOT)], [view]])
    del first, second
    gc.collect()
    assert alive[0]() is not None and alive[1]() is not None
    with pytest.raises(BufferError):
        bytes_of_host.clear()
    assert run(copier, 1, True, [1, 1], [1, 1, 0], [0, 0, 0], [0, 1]) is None
    assert run(copier, 2, False, [2, 3], [0, 0, 2], [0, 0, 0], [0, 1]) is None
    assert bytes(view[2, i] for i in range(SLOT)) == expected[0][1].tobytes()
    assert bytes(view[3, i] for i in range(SLOT)) == expected[1][1].tobytes()
    del copier
    gc.collect()
    assert alive[0]() is None and alive[1]() is None
    view.release()
    bytes_of_host.clear()


def test_close_twice_and_use_after_close():
    copier = create([[tensor()]])
    copier.submit(1, True, [1], [1], [0], [0])
    assert copier.closed is False and copier.block_bytes == [SLOT]
    copier.close()
    copier.close()
    assert copier.closed is True and copier.block_bytes == [SLOT]
    for call in (copier.poll, copier.stats, lambda: copier.wait([1]), lambda: copier.submit(2, True, [1], [1], [0], [0])):
        with pytest.raises(kvcast.ClosedError, match="BlockCopier is closed"):
            call()
    with pytest.raises(INVALID):  # the arguments are read first
        copier.submit(2, True, [1], [1], [0], [])


@pytest.mark.parametrize("end", ["close", "drop"])
def test_the_end_waits_for_copies_that_have_started(end):
    """After the end, nothing writes the tensors."""
    for _ in range(10):
        source = np.full((5, 4 << 20), 1, np.uint8)
        copier = create([[source]], 4, 4 << 20)
        for i in range(4):
            copier.submit(i, i < 2, [i + 1], [1], [0], [i])
        if end == "close":
            copier.close()
        del copier
        source[:] = 2
        gc.collect()
        assert (source == 2).all()


def test_threads_share_an_object():
    """Each thread has blocks and slots of its own. A thread gets results of all threads."""
    source = tensor(8 * 4 + 1, 3000)
    copier, expected = create([[source]], 8 * 4, 3000), source.copy()
    lock, results = threading.Lock(), []

    def work(i):
        blocks, slots = np.arange(1 + 4 * i, 5 + 4 * i), np.arange(4 * i, 4 * i + 4)
        for n in range(60):
            job = i * 1000 + n
            copier.submit(job, n % 2 == 0, blocks, [4], [0], slots)
            copier.wait([job])
            if n % 2 == 0:
                source[blocks] = 0
            else:
                assert (source[blocks] == expected[blocks]).all()
            with lock:
                results.extend(copier.poll())
            assert copier.stats()["stores"]["jobs"] > n // 2 and copier.block_bytes == [3000] and not copier.closed

    in_threads(work)
    assert sorted(results + copier.poll()) == [(i * 1000 + n, None) for i in range(8) for n in range(60)]
    assert copier.stats()["loads"]["jobs"] == copier.stats()["stores"]["jobs"] == 8 * 30


def test_threads_use_and_close_an_object():
    for _ in range(10):
        copier = create([[tensor(9, 100_000)]], 8, 100_000)

        def work(i):
            if i == 7:
                copier.wait([3000])
                copier.close()
                return
            try:
                for n in range(1000):
                    copier.submit(i * 1000 + n, True, [i + 1], [1], [0], [i])
                    copier.wait([i * 1000 + n])
                    copier.poll()
                    copier.stats()
            except kvcast.ClosedError:
                assert copier.closed

        in_threads(work)
        assert copier.closed


def test_other_threads_run_during_a_wait():
    """The switch interval is so long that no thread loses the GIL. The other thread runs only while `wait` has
    released the GIL."""
    copier = create([[tensor(2, 8 << 20)]], 1, 8 << 20)
    interval, turns, during, done = sys.getswitchinterval(), [0], [], threading.Event()

    def work(i):
        if i == 0:
            try:
                for job in range(30):
                    copier.submit(job, True, [1], [1], [0], [0])
                    before = turns[0]
                    copier.wait([job])
                    during.append(turns[0] - before)
            finally:
                done.set()
        while not done.is_set():
            turns[0] += 1
            time.sleep(0)  # releases the GIL

    sys.setswitchinterval(1000)
    try:
        in_threads(work, 2)
    finally:
        sys.setswitchinterval(interval)
    assert sum(during) > 0


def subprocess_of(code):
    return subprocess.run([sys.executable, "-X", "dev", "-c", "import kvcast, numpy as np\n" + code],
                          capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("end", ["", "copier.close()", "del copier", "del source", "import os; os._exit(0)"])
def test_a_process_ends_with_jobs_in_progress(end):
    ended = subprocess_of("source = np.zeros((41, 1 << 20), np.uint8)\n"
                          "copier = kvcast.BlockCopier([[source]], 40, 1 << 20)\n"
                          "for i in range(40): copier.submit(i, i % 2 == 0, [i + 1], [1], [0], [i])\n" + end)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


class Driver:
    """The CUDA driver, and memory of GPU 0."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.allocations, self.context, self.device = [], ctypes.c_void_p(), ctypes.c_int()
        self("cuInit", ctypes.c_uint(0))
        self("cuDeviceGet", ctypes.byref(self.device), ctypes.c_int(0))
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self("cuCtxSetCurrent", self.context)

    def __call__(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def tensor(self, array, used):
        """A tensor on the GPU with the bytes of the array. Its rows have `used` bytes."""
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(array.nbytes))
        self.allocations.append(address)
        self("cuMemcpyHtoD_v2", address, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        rows, step = array.shape
        gpu_tensor = Gpu((rows, used), "|i1", (address.value, False), strides=(step, 1) if used < step else None)
        gpu_tensor.array = array
        return gpu_tensor

    def bytes_of(self, gpu_tensor):
        address = ctypes.c_uint64(gpu_tensor.__cuda_array_interface__["data"][0])
        read = np.empty_like(gpu_tensor.array)
        self("cuMemcpyDtoH_v2", ctypes.c_void_p(read.ctypes.data), address, ctypes.c_size_t(read.nbytes))
        return read

    def close(self):
        for address in self.allocations:
            self("cuMemFree_v2", address)
        self("cuDevicePrimaryCtxRelease_v2", self.device)


def create_on_gpu(groups, *arguments, **more):
    """A BlockCopier with the backend cuda. None: there is no GPU, or the package was built without CUDA."""
    try:
        return create(groups, *arguments, backend="cuda", **more)
    except kvcast.UnavailableError as error:
        assert str(error)
        return None


def test_the_cuda_backend_needs_a_gpu():
    copier = create_on_gpu([[Gpu()]])
    if copier is not None:
        copier.close()
        pytest.skip("this machine has a GPU")
    with pytest.raises(kvcast.UnavailableError):
        create([[Gpu()]], backend="cuda", device=3)
    with pytest.raises(OSError):
        create([[(Gpu(strides=None), 5), Gpu(strides=(100, 1))]], backend="cuda")


@pytest.mark.parametrize("per_chunk", [1, 3])
def test_a_round_trip_on_a_gpu(per_chunk):
    probe = create_on_gpu([[Gpu()]])
    if probe is None:
        pytest.skip("there is no GPU, or the package was built without CUDA")
    probe.close()
    driver = Driver()
    arrays = [tensor(40, 4096, 1), tensor(40, 2048, 2), tensor(30, 512, 3)]
    tensors = [driver.tensor(array, used) for array, used in zip(arrays, (4096, 1000, 512))]
    copier = create_on_gpu([tensors[:2], [(tensors[2], 500)]], 60, 4096, blocks_per_chunk=per_chunk)
    slots_of = [-(-5096 * per_chunk // 4096), -(-500 * per_chunk // 4096)]
    chunks = -(-12 // per_chunk)
    slots = list(range(chunks * slots_of[0])) + list(range(59, 59 - chunks * slots_of[1], -1))
    assert run(copier, 1, True, [*range(1, 13)] * 2, [12, 12], [0, 0], slots) is None
    assert run(copier, 2, False, [*range(13, 25), *range(13, 25)], [12, 12], [0, 0], slots) is None
    for array, one, used in zip(arrays, tensors, (4096, 1000, 500)):
        array[13:25, :used] = array[1:13, :used]
        assert (driver.bytes_of(one) == array).all()
    assert "block 99" in run(copier, 3, True, [99], [1, 0], [0, 0], [0] * slots_of[0])
    event = ctypes.c_void_p()
    driver("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
    driver("cuEventRecord", event, None)
    copier.submit(4, False, [25], [0, 1], [0, 0], [59] * slots_of[1], after=event.value)
    copier.wait([4])
    assert copier.poll() == [(4, None)]
    arrays[2][25, :500] = arrays[2][1, :500]
    assert (driver.bytes_of(tensors[2]) == arrays[2]).all()
    copier.close()
    driver("cuEventDestroy_v2", event)
    driver.close()
