// LegacyReader: a reader of another vendor that sends the legacy `snapshot` request. The answer
// must be the state at one sequence number, or be empty.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/residency/snapshot_reader.h"
#include "src/stream_sim/publisher.h"
#include "src/stream_sim/violation.h"

namespace kvcast::sim {

// The answer that is being read.
struct LegacyAnswer {
  uint64_t asked_at = 0;              // the publisher's next sequence number at the request
  std::optional<uint64_t> parts_seq;  // sequence number of the parts; nullopt: no part has arrived
  residency::SnapshotReader reader;
};

class LegacyReader {
 public:
  static constexpr const char* kName = "reader";

  LegacyReader(const SimPublisher& publisher, Record& record)
      : publisher_(publisher), record_(record) {}

  bool waits() const { return answer_.has_value(); }
  void Ask() { answer_.emplace().asked_at = publisher_.next_seq(); }
  // Must be called when the publisher that got the request has ended.
  void Reset() { answer_.reset(); }
  void OnReply(uint64_t seq, const Payload& payload);

 private:
  void OnEnd(const Payload& payload);

  const SimPublisher& publisher_;
  Record& record_;
  std::optional<LegacyAnswer> answer_;
  EventBatch batch_;
};

}  // namespace kvcast::sim
