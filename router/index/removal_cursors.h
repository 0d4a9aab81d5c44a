// RemovalCursors: the cursors of removals for up to four holders. Engines report each removed block
// in an event of its own. The blocks of a prompt lie next to each other in the runs, so the cursor
// of the previous removal is usually beside the next removed block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "router/index/holder_table.h"
#include "router/index/residency_map.h"

namespace kvcast::router {

// Valid as long as only removals change the map.
class RemovalCursors {
 public:
  ResidencyMap::Cursor& At(HolderId holder) {
    Entry& entry = entries_[holder % entries_.size()];
    if (entry.holder != holder) entry = {holder, {}};
    return entry.cursor;
  }

 private:
  struct Entry {
    HolderId holder = kNoHolderId;
    ResidencyMap::Cursor cursor;
  };
  std::array<Entry, 4> entries_;
};

}  // namespace kvcast::router
