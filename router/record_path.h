// RecordPath: the known states along one prefix, asked from its end towards its start.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "router/token_records.h"

namespace kvcast::router {

// Borrows the records; valid until one is added or forgotten.
class RecordPath {
 public:
  // REQUIRES: `end` is resolved.
  RecordPath(const TokenRecords& records, const TokenRecord& end) : records_(records), at_(&end) {}

  // The state at `position` of the prefix, if some record knows it. Positions must be asked in
  // descending order.
  std::optional<ContentState> StateAt(int64_t position);

 private:
  const TokenRecord* Linked(TokenRecord::Link kind) const;

  const TokenRecords& records_;
  const TokenRecord* at_;
  int detours_ = 0;
};

}  // namespace kvcast::router
