// Engine: the cache of one life of a publisher, as far as its events tell: blocks of a few groups
// and tiers come in chains, get second copies, and go.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvcast/core/event.h"
#include "src/stream_sim/random.h"

namespace kvcast::sim {

class Engine {
 public:
  // Some hashes are the life's own, some are shared by all lives and publishers.
  Engine(uint64_t seed, int publisher, int life);

  // What happens in one step; now and then nothing.
  std::vector<Event> Step();
  Event Clear();

 private:
  struct Copy {
    bool cpu = false;
    int64_t group = 0;
    uint64_t hash = 0;
  };
  uint64_t NewHash();
  Event Store();
  Event StoreAgain();
  Event Remove();

  Random random_;
  const uint64_t own_;
  const int64_t groups_;
  const bool cpu_;
  uint64_t made_ = 0;
  std::vector<Copy> copies_;
};

}  // namespace kvcast::sim
