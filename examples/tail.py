#!/usr/bin/python3
"""Prints the batches of a topic of a KV event stream. Uses only pyzmq and msgpack.

    tail.py ENDPOINT [TOPIC] [COUNT]

SPDX-License-Identifier: Apache-2.0
"""
import struct
import sys

import msgpack
import zmq


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    endpoint = sys.argv[1]
    topic = sys.argv[2] if len(sys.argv) > 2 else ""
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 0

    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.connect(endpoint)
    socket.subscribe(topic)
    seen = 0
    while count == 0 or seen < count:
        frames = socket.recv_multipart()
        if len(frames) != 3:
            continue
        name, seq, payload = frames
        batch = msgpack.unpackb(payload, strict_map_key=False)
        ts, events = batch[:2]
        rank = batch[2] if len(batch) > 2 else None
        print(f"{name.decode()} seq {struct.unpack('>Q', seq)[0]} rank {rank} at {ts:.3f}")
        for event in events:
            kind = event.get("type") if isinstance(event, dict) else event[0]
            if isinstance(event, dict):
                hashes = event.get("block_hashes", [])
            else:  # an array event; AllBlocksCleared has no list of hashes
                hashes = next((field for field in event[1:2] if isinstance(field, list)), [])
            group = event.get("group_idx") if isinstance(event, dict) else None
            print(f"  {kind} group {group} {len(hashes)} hashes")
        sys.stdout.flush()
        seen += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
