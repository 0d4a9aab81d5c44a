#!/usr/bin/env python3
"""Feeds the events of two engines into an index, and asks which engine should serve a prompt.

SPDX-License-Identifier: Apache-2.0
"""
import kvcast

GROUPS = [{"kind": "full_attention", "block_size": 16}]
indexer = kvcast.KvIndexer()
for engine in ("engine-0", "engine-1"):
    indexer.add_source(engine, groups=GROUPS, eagle=False, reports_hits=False)

# Engines publish these payloads over ZeroMQ; kvcast.Subscriber receives them. Here they are made by hand.
for engine, length in (("engine-0", 64), ("engine-1", 256)):
    stored = kvcast.BlockStored(kvcast.compute_block_hashes(range(length), 16), range(length), 16, group_idx=0)
    indexer.apply(engine, kvcast.encode_batch(kvcast.EventBatch([stored])), seq=0)

prompt = list(range(300))
answer = indexer.find_matches(token_ids=prompt)
for worker, tokens in answer.tokens.items():
    print(worker, tokens, "exact" if answer.exact[worker] else answer.reason[worker])
candidates = [kvcast.Candidate(worker, tokens, compute_s=(len(prompt) - tokens) / 8000) for worker, tokens in answer.tokens.items()]
best = kvcast.Selector().select(candidates)
print("best:", best and best.worker)
