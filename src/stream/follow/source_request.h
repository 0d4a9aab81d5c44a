// SourceRequest: the open request of a source.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "src/residency/extension.h"

namespace kvcast::stream {

struct SourceRequest {
  // kBuckets: a status with the digests of all buckets. kRepair: a snapshot of the buckets that
  // differ.
  enum class Kind : uint8_t { kNone, kStatus, kReplay, kSnapshot, kBuckets, kRepair, kChallenge };

  Kind kind = Kind::kNone;
  bool waiting = false;            // the request waits for its turn, and is not sent yet
  bool extended = false;           // a KVX1 request
  bool answered = false;           // replays and challenges: a batch arrived
  bool cut = false;                // the connection ended: no further replies arrive
  bool wants_overlap = false;      // a replay that starts at an applied batch
  bool proven = true;              // the batches are known to belong to the current epoch
  uint64_t applied_next = 0;       // StreamPosition::next() when the request was sent
  std::optional<uint64_t> resume;  // sequence number of the snapshot's parts; nullopt: no part
  // Repairs only: the status at the end of the answer. The repair continues when the state is at
  // the sequence number of this status.
  std::optional<residency::PublisherStatus> end;
  int64_t deadline_ms = 0;

  bool open() const { return kind != Kind::kNone; }
  // The sink collects the answer as a snapshot.
  bool fills() const { return kind == Kind::kSnapshot || kind == Kind::kRepair; }
  bool repairs() const { return kind == Kind::kBuckets || kind == Kind::kRepair; }
};

}  // namespace kvcast::stream
