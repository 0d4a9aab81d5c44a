// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/legacy_reader.h"

namespace kvcast::sim {

void LegacyReader::OnReply(uint64_t seq, const Payload& payload) {
  if (!answer_) return;
  if (seq == stream::kEndSeq) return OnEnd(payload);
  if (seq != answer_->at.value_or(seq) || !answer_->reader.Read(*payload, batch_).ok()) {
    record_.Fail("Honest", "a part of a legacy snapshot is of no use");
  }
  answer_->at = seq;
}

void LegacyReader::OnEnd(const Payload& payload) {
  const bool any = answer_->at.has_value();
  if (!payload->empty()) record_.Fail("Honest", "a legacy request is answered with a status");
  if (any && !publisher_.extended()) record_.Fail("Honest", "a legacy publisher has snapshots");
  if (any && *answer_->at < answer_->asked_at) record_.Fail("Honest", "a snapshot of the past");
  if (any && SumOf(answer_->reader.digest().Totals()) !=
                 publisher_.oracle(publisher_.life()).sum(*answer_->at)) {
    record_.Fail("Honest", "a legacy snapshot is of another state");
  }
  ++record_.reached[any ? "legacy snapshots" : "legacy snapshots of nothing"];
  answer_.reset();
}

}  // namespace kvcast::sim
