// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/legacy_reader.h"

namespace kvcast::sim {

void LegacyReader::OnReply(uint64_t seq, const Payload& payload) {
  if (!answer_) return;
  if (seq == stream::kEndSeq) return OnEnd(payload);
  if (seq != answer_->at.value_or(seq) || !answer_->reader.Read(*payload, batch_).ok()) {
    record_.Fail("Honest", "a part of a legacy snapshot is invalid or has another sequence number");
  }
  answer_->at = seq;
}

void LegacyReader::OnEnd(const Payload& payload) {
  const bool any = answer_->at.has_value();
  if (!payload->empty())
    record_.Fail("Honest", "the answer to a legacy request ends with a status");
  if (any && !publisher_.extended())
    record_.Fail("Honest", "a publisher without KVX1 sent a legacy snapshot");
  if (any && *answer_->at < answer_->asked_at)
    record_.Fail("Honest", "a legacy snapshot is older than its request");
  if (any && SumOf(answer_->reader.digest().Totals()) !=
                 publisher_.oracle(publisher_.life()).sum(*answer_->at)) {
    record_.Fail("Honest", "a legacy snapshot differs from the oracle");
  }
  ++record_.reached[any ? "legacy snapshots" : "legacy snapshots without parts"];
  answer_.reset();
}

}  // namespace kvcast::sim
