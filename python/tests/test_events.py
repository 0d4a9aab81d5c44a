"""Events, decode_batch and encode_batch."""
import pytest
from conftest import in_threads, payload, stored

import kvcast

np = pytest.importorskip("numpy")


def test_decoding_returns_the_encoded_batch(prompt):
    events = [stored(prompt, extra_keys=[["s", ("id", 3), b"x", 1.5, None, True, 2**63]] + [None] * 3),
              kvcast.BlockRemoved([1, -2, b"\1\2"], medium="CPU", group_idx=3), kvcast.AllBlocksCleared()]
    batch = kvcast.EventBatch(events, ts=2.5, data_parallel_rank=7)
    decoded = kvcast.decode_batch(kvcast.encode_batch(batch))
    assert decoded == batch and decoded.events == events
    assert (decoded.ts, decoded.data_parallel_rank) == (2.5, 7)
    store, removed, _ = decoded.events
    assert store.token_ids == prompt and store.block_size == 16
    assert store.block_hashes == kvcast.compute_block_hashes(prompt).tolist()
    assert store.extra_keys == [["s", ["id", 3], b"x", 1.5, None, True, 2**63], None, None, None]
    assert (removed.block_hashes, removed.medium, removed.group_idx) == ([1, -2, b"\1\2"], "CPU", 3)


def test_every_field_of_a_store():
    more = dict(medium="CPU", lora_name="l", lora_id=4, group_idx=2, kv_cache_spec_kind="sliding_window",
                kv_cache_spec_sliding_window=64, locality="LOCAL", ownership="o", session_id="s", cache_salt="c",
                token_offset=16, lookahead_token_ids=[[7, 8]])
    event = kvcast.BlockStored([5], [1, 2], 2, parent_block_hash=b"\7", **more)
    assert {name: getattr(event, name) for name in more} == more
    assert event.parent_block_hash == b"\7" and event.metadata is None and event.tokens_per_position == 1


def test_hashes_are_read_from_buffers_and_sequences():
    digests = np.arange(64, dtype=np.uint8).reshape(2, 32)
    assert kvcast.BlockRemoved(digests).block_hashes == [digests[0].tobytes(), digests[1].tobytes()]
    assert kvcast.BlockRemoved(np.array([1, 2**64 - 1], np.uint64)).block_hashes == [1, 2**64 - 1]
    assert kvcast.BlockRemoved(np.array([-1, 5])).block_hashes == [-1, 5]
    assert kvcast.BlockRemoved([]).block_hashes == []


def test_payloads_may_be_any_contiguous_buffer(prompt):
    data = payload(stored(prompt))
    for form in (bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
        assert kvcast.decode_batch(form) == kvcast.decode_batch(data)


def test_dialects_have_different_bytes_and_equal_events(prompt):
    batch = kvcast.EventBatch([stored(prompt)], ts=1.0)
    encoded = {name: kvcast.encode_batch(batch, name) for name in ("vllm-8", "vllm-11", "vllm-12", "kvcast-1")}
    assert len(set(encoded.values())) >= 3
    for data in encoded.values():
        assert kvcast.decode_batch(data).events[0].block_hashes == batch.events[0].block_hashes


@pytest.mark.parametrize("data, error", [
    (b"", kvcast.MalformedError), (b"\xc1", kvcast.MalformedError), (b"\x93\xcb", kvcast.MalformedError),
    (b"\xdd\xff\xff\xff\xff", kvcast.MalformedError), ("text", TypeError), (7, TypeError), (None, TypeError),
    (memoryview(b"abcd")[::2], BufferError),
])
def test_bad_payloads_raise(data, error):
    with pytest.raises(error):
        kvcast.decode_batch(data)


def test_every_prefix_and_every_changed_byte_of_a_payload_is_decoded_or_refused(prompt):
    data = payload(stored(prompt), kvcast.BlockRemoved([1, b"\1"]))
    refused = 0
    for i in range(len(data)):
        with pytest.raises(kvcast.MalformedError):
            kvcast.decode_batch(data[:i])
        for byte in (0, 0x7F, 0x80, 0xC1, 0xDF, 0xFF):
            try:
                kvcast.decode_batch(data[:i] + bytes([byte]) + data[i + 1:])
            except (kvcast.MalformedError, kvcast.LimitError):
                refused += 1
    assert refused > 100


def test_strict_decides_about_events_that_cannot_be_decoded():
    data = b"\x93\xcb" + bytes(8) + b"\x91\x91\xa3foo\xc0"
    with pytest.raises(kvcast.MalformedError, match="1 unknown_event"):
        kvcast.decode_batch(data)
    assert kvcast.decode_batch(data, strict=False).events == []


def test_bad_events_raise():
    for bad, error in [
        (lambda: kvcast.BlockStored([2**64], [], 1), ValueError), (lambda: kvcast.BlockStored([-2**63 - 1], [], 1), ValueError),
        (lambda: kvcast.BlockStored([b"x" * 257], [], 1), ValueError), (lambda: kvcast.BlockStored([1], [-1], 1), ValueError),
        (lambda: kvcast.BlockStored([1], [1], -1), ValueError), (lambda: kvcast.BlockStored([1], [1], 2**63), TypeError),
        (lambda: kvcast.BlockStored([1], [1], 1, nonsense=1), TypeError),
        (lambda: kvcast.BlockStored([1], [1], 1, group_idx=2**63), ValueError),
        (lambda: kvcast.BlockStored([1], [1], 1, group_idx="0"), TypeError),
        (lambda: kvcast.BlockStored([1], [1], 1, medium=b"GPU"), TypeError),
        (lambda: kvcast.BlockStored([1], [1], 1, extra_keys=[5]), TypeError),
        (lambda: kvcast.BlockStored([1], [1], 1, lookahead_token_ids=[]), ValueError),
        (lambda: kvcast.BlockStored([1], [1], 1, medium="\ud800"), UnicodeEncodeError),
        (lambda: kvcast.BlockRemoved(["a"]), TypeError), (lambda: kvcast.BlockRemoved(5), TypeError),
        (lambda: kvcast.BlockRemoved([1], group_idx=2**63), ValueError),
        (lambda: kvcast.EventBatch([1]), TypeError), (lambda: kvcast.EventBatch(ts="x"), TypeError),
        (lambda: kvcast.EventBatch(data_parallel_rank=2**63), TypeError),
        (lambda: kvcast.AllBlocksCleared(medium=5), TypeError),
        (lambda: kvcast.encode_batch(kvcast.EventBatch(), "vllm-99"), ValueError),
        (lambda: kvcast.encode_batch("batch"), TypeError),
        (lambda: kvcast.encode_batch(kvcast.EventBatch([kvcast.BlockStored([1], [1], 1, token_offset=-1)]),
                                     "kvcast-1"), ValueError),
    ]:
        with pytest.raises(error):
            bad()
    loop = []
    loop.append(loop)
    with pytest.raises(kvcast.InvalidArgumentError, match="nested too deep"):
        kvcast.BlockStored([1], [1], 1, extra_keys=[loop])


def test_events_are_immutable():
    with pytest.raises(AttributeError):
        kvcast.BlockRemoved([1]).medium = "CPU"


def test_threads_decode_and_encode(prompt):
    batch = kvcast.EventBatch([stored(prompt)] * 50, ts=1.0)
    data = kvcast.encode_batch(batch)

    def work(_):
        return all(kvcast.encode_batch(kvcast.decode_batch(data)) == data for _ in range(20))

    assert all(in_threads(work))
