"""Compares the payloads of the plug-in with those of vLLM's own publisher, for the batches of one run. With
KVCAST_VLLM_HASHES_ONLY, compares the decoded batches after the removal of the content of prompts.
SPDX-License-Identifier: Apache-2.0
"""
import os
import time

import zmq

TOPIC = "kv-events"
TIMEOUT_S = 60


class Reader:
    """A legacy subscriber. Reads live messages, and requests missing messages as a replay."""

    def __init__(self, endpoint: str, replay_endpoint: str, binds: bool = False):
        context = zmq.Context.instance()
        self._live, self._replay = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        self._live.set_hwm(0)
        self._live.subscribe(TOPIC)
        if not binds:
            self._live.connect(endpoint)
        self._replay.connect(replay_endpoint)
        self.live = self.replayed = 0

    def payloads(self, count: int) -> dict[int, bytes]:
        """Returns the payloads of the first `count` batches by number."""
        by_number, deadline = {}, time.monotonic() + TIMEOUT_S
        while len(by_number) < count and self._live.poll(200):
            _, seq, payload = self._live.recv_multipart()
            by_number[int.from_bytes(seq, "big")] = payload
        self.live = len(by_number)
        self._replay.send_multipart((b"", (0).to_bytes(8, "big")))
        while self._replay.poll(max(0, 1000 * (deadline - time.monotonic()))):
            _, _, seq, payload = self._replay.recv_multipart()
            if not payload:
                break
            if by_number.setdefault(int.from_bytes(seq, "big"), payload) != payload:
                raise RuntimeError("a replayed payload differs from the live payload")
            self.replayed += 1
        self._live.close(0)
        self._replay.close(0)
        return by_number


def without_content(batch):
    """Removes the content of prompts from a batch of vLLM's types."""
    for event in batch.events:
        if type(event).__name__ != "BlockStored":
            continue
        event.token_ids, event.extra_keys, event.lora_name, event.session_id = [], None, None, None
        if getattr(event, "lookahead_token_ids", None):
            event.lookahead_token_ids = [[0] * len(tokens) for tokens in event.lookahead_token_ids]
    return batch


class Payloads:
    """Each batch of the run goes to the plug-in and to a publisher of vLLM beside it."""

    def __init__(self, engine):
        from vllm.distributed.kv_events import ZmqEventPublisher

        stock = ZmqEventPublisher(0, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*", buffer_steps=100_000, topic=TOPIC)
        self._engine, self._stock = engine, stock
        self._expected = Reader(stock._pub.getsockopt_string(zmq.LAST_ENDPOINT),
                                stock._replay.getsockopt_string(zmq.LAST_ENDPOINT))
        # With --connect, the router binds the live stream, so the reader has only the replay.
        self._sent = Reader(engine.endpoint, engine.replay_endpoint, engine.options.connects)
        self.failures = []
        engine.on_batch.append(stock.publish)

    def compare(self) -> dict:
        """Returns the figures. `failures` then has the differences."""
        import msgspec
        from vllm.distributed.kv_events import KVEventBatch

        count = self._engine.published
        sent, expected = self._sent.payloads(count), self._expected.payloads(count)
        self._stock.shutdown()
        decoder = msgspec.msgpack.Decoder(KVEventBatch)
        decoded = sum(isinstance(decoder.decode(payload), KVEventBatch) for payload in sent.values())
        if os.environ.get("KVCAST_VLLM_HASHES_ONLY") == "1":
            equal = sum(number in sent and decoder.decode(sent[number]) == without_content(decoder.decode(payload))
                        for number, payload in expected.items())
        else:
            equal = sum(sent.get(number) == payload for number, payload in expected.items())
        if not count == len(sent) == len(expected) == equal == decoded:
            self.failures.append(f"payloads: {count} batches, {len(sent)} from the plug-in, {len(expected)} from "
                                 f"vLLM's publisher, {equal} equal, {decoded} decoded")
        return {"batches": count, "equal": equal, "decoded": decoded, "live": self._sent.live,
                "replayed": self._sent.replayed}
