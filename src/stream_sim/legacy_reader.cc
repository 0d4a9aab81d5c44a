// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/legacy_reader.h"

namespace kvcast::sim {

void LegacyReader::OnReply(uint64_t seq, const Payload& payload) {
  if (!answer_) return;
  if (seq == stream::kEndSeq) return OnEnd(payload);
  if (seq != answer_->parts_seq.value_or(seq) || !answer_->reader.Read(*payload, batch_).ok()) {
    record_.Fail("Honest", "a part of a legacy snapshot is invalid or has another sequence number");
  }
  answer_->parts_seq = seq;
}

void LegacyReader::OnEnd(const Payload& payload) {
  const bool has_parts = answer_->parts_seq.has_value();
  if (!payload->empty())
    record_.Fail("Honest", "the answer to a legacy request ends with a status");
  if (has_parts && !publisher_.extended())
    record_.Fail("Honest", "a publisher without KVX1 sent a legacy snapshot");
  if (has_parts && *answer_->parts_seq < answer_->asked_at)
    record_.Fail("Honest", "a legacy snapshot is older than its request");
  if (has_parts && SumOf(answer_->reader.digest().Totals()) !=
                       publisher_.oracle(publisher_.life()).sum(*answer_->parts_seq)) {
    record_.Fail("Honest", "a legacy snapshot differs from the oracle");
  }
  ++record_.reached[has_parts ? "legacy snapshots" : "legacy snapshots without parts"];
  answer_.reset();
}

}  // namespace kvcast::sim
