// Engine: a random model of the prefix cache in one life of a publisher. It produces events: chains
// of blocks in a few groups and tiers are stored, get second copies, and are removed. A life is the
// time between one start of the publisher and its end.
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
  // Some hashes are used only in this life, and some are shared by all lives and publishers.
  Engine(uint64_t seed, int publisher, int life);

  // The events of one step; sometimes none.
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
  const uint64_t hash_seed_;
  const int64_t groups_;
  const bool has_cpu_;
  uint64_t new_hashes_ = 0;
  std::vector<Copy> copies_;
};

}  // namespace kvcast::sim
