"""compute_block_hashes: types of tokens, forms, options. test_recordings.py compares it with vLLM."""
import array
import struct

import pytest
from conftest import in_threads

import kvcast

np = pytest.importorskip("numpy")


def test_buffers_and_sequences_of_all_types_give_equal_hashes():
    tokens = list(range(40))
    expected = kvcast.compute_block_hashes(tokens).tolist()
    assert len(expected) == 2
    for dtype in (np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        assert kvcast.compute_block_hashes(np.array(tokens, dtype)).tolist() == expected
    assert kvcast.compute_block_hashes(np.repeat(np.array(tokens), 2)[::2]).tolist() == expected
    assert kvcast.compute_block_hashes(array.array("q", tokens)).tolist() == expected
    assert kvcast.compute_block_hashes(tuple(tokens)).tolist() == expected
    assert kvcast.compute_block_hashes(np.int64(t) for t in tokens).tolist() == expected


def test_the_int_form_is_the_end_of_the_digest():
    ints = kvcast.compute_block_hashes(range(32), algo="sha256_cbor")
    digests = kvcast.compute_block_hashes(range(32), algo="sha256_cbor", form="bytes")
    assert [struct.unpack(">Q", digest[-8:])[0] for digest in digests] == ints.tolist()
    assert np.asarray(digests).shape == (2, 32)
    assert len(kvcast.compute_block_hashes(range(16), algo="xxhash", form="bytes")[0]) == 16


def test_hashes_are_a_read_only_buffer_and_a_sequence():
    hashes = kvcast.compute_block_hashes(range(48))
    view = np.asarray(hashes)
    assert view.dtype == np.uint64 and view.tolist() == list(hashes) == hashes.tolist()
    assert not view.flags.writeable
    assert hashes[-1] == hashes[2] and len(hashes) == 3 and "3 hashes" in repr(hashes)
    with pytest.raises(IndexError):
        hashes[3]
    with pytest.raises(IndexError):
        hashes[-4]


def test_the_inputs_of_a_request_change_the_hashes():
    plain = kvcast.compute_block_hashes(range(32)).tolist()
    for more in ({"cache_salt": "s"}, {"lora_name": "l"}, {"mm_items": [("id", 0, 4)]}, {"seed": "0"},
                 {"none_hash": bytes(32)}, {"lookahead": 1}, {"algo": "xxhash"}):
        assert kvcast.compute_block_hashes(range(32), **more).tolist() != plain


@pytest.mark.parametrize("tokens, error", [
    (np.zeros(4), TypeError), (np.zeros(4, bool), TypeError), (np.zeros(4, ">i8"), TypeError), (b"abcd", TypeError),
    ("abcd", TypeError), (7, TypeError), (None, TypeError), ([1.5], TypeError), ([True], TypeError), ([[1]], TypeError),
    (np.zeros((2, 2), int), kvcast.InvalidArgumentError), (np.array(3), kvcast.InvalidArgumentError),
    ([-1], kvcast.InvalidArgumentError), (np.array([1, -1]), kvcast.InvalidArgumentError),
    (np.array([-1], np.int32), kvcast.InvalidArgumentError), ([2**63], kvcast.InvalidArgumentError),
    (np.array([2**63], np.uint64), kvcast.InvalidArgumentError), ([2**64], kvcast.InvalidArgumentError),
])
def test_bad_tokens_raise(tokens, error):
    with pytest.raises(error):
        kvcast.compute_block_hashes(tokens)


@pytest.mark.parametrize("more, error", [
    ({"block_size": 0}, ValueError), ({"block_size": -1}, ValueError), ({"block_size": 2**63}, TypeError),
    ({"algo": "md5"}, ValueError), ({"form": "hex"}, ValueError), ({"extra_keys": "x"}, ValueError),
    ({"lookahead": -1}, ValueError), ({"lookahead": 9}, ValueError), ({"none_hash": b""}, ValueError),
    ({"none_hash": bytes(33)}, ValueError), ({"none_hash": "x"}, TypeError), ({"mm_items": [("a", 0)]}, TypeError),
    ({"mm_items": [("a", -1, 1)]}, ValueError), ({"mm_items": [("a", 0, 0)]}, ValueError),
    ({"mm_items": [(1, 0, 1)]}, TypeError), ({"mm_items": 3}, TypeError),
])
def test_bad_options_raise(more, error):
    with pytest.raises(error):
        kvcast.compute_block_hashes([1, 2, 3], **more)


def test_an_item_may_change_its_list_while_it_is_read():
    class Evil:
        def __index__(self):
            tokens.clear()
            return 1

    tokens = [Evil() for _ in range(100)]
    assert len(kvcast.compute_block_hashes(tokens, 1)) == 1


def test_a_buffer_cannot_be_resized_during_a_call_and_is_released_after_it():
    tokens = array.array("q", range(32))
    kvcast.compute_block_hashes(tokens)
    tokens.append(1)
    with pytest.raises(ValueError):
        kvcast.compute_block_hashes(tokens, block_size=0)
    tokens.append(1)


def test_threads_get_equal_hashes():
    tokens = np.arange(4096)
    expected = kvcast.compute_block_hashes(tokens).tolist()
    for hashes in in_threads(lambda _: [kvcast.compute_block_hashes(tokens).tolist() for _ in range(20)]):
        assert all(one == expected for one in hashes)
