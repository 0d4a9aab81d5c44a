// LogRecord: the header of a message in the log of a source. docs/nats.md describes the format.
//
// The log of an epoch:
//   begin    the start of a snapshot; `index` is the number of the first batch after the snapshot
//   part     a part of the snapshot, a batch of stores; `index` counts from 0
//   end      the payload is the status of the snapshot; `index` is the number of parts
//   batch    the payload of batch next - 1
//   refused  the number next - 1 belongs to no batch
// Later snapshots of the epoch replace the batches before them. Batches may stand between the parts
// of a later snapshot. Each epoch begins with a snapshot that has no batches between its parts. An
// announcement has the kind `status`, and its payload is a status.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvcast/residency/publisher_status.h"
#include "kvcast/stream/relay_history.h"

namespace kvcast::event_log {

enum class RecordKind : uint8_t { kBegin, kPart, kEnd, kBatch, kRefused, kStatus };

struct LogRecord {
  RecordKind kind = RecordKind::kBatch;
  Epoch epoch;
  uint64_t writer = 0;  // identifies one run of a relay
  // After this record: the number of the first batch of the epoch that the log does not have.
  uint64_t next = 0;
  // The log has a complete snapshot of the epoch, and all batches between the snapshot and `next`.
  bool begun = false;
  // kBegin, kPart, kEnd: see above. kStatus: 1 if the relay's state is known to equal the
  // engine's state, 0 otherwise.
  uint64_t index = 0;
  // A large payload is divided into pieces, in consecutive messages. `piece` counts from 0. `more`:
  // another piece follows. In the pieces before the last one, `next` and `begun` describe the log
  // without this record.
  uint64_t piece = 0;
  bool more = false;
  std::optional<EngineMark> mark;  // kBatch, kEnd: the position in the engine's stream

  friend bool operator==(const LogRecord&, const LogRecord&) = default;
};

std::string EncodeRecord(const LogRecord& record);
// nullopt: not a record.
std::optional<LogRecord> ParseRecord(std::string_view header);

}  // namespace kvcast::event_log
