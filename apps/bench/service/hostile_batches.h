// The attacks of engines on a router. Each batch costs the router as much time or memory as
// possible. The decoder accepts all events, except those of large-batches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::tools {

struct Attack {
  std::string_view name;  // for the command line
  std::string_view summary;
  // Number of batches that are sent once, before the others.
  uint64_t prepared = 0;
  // Batch number `round`, from 0. Batches below `prepared` prepare the attack.
  EventBatch (*batch)(uint64_t round) = nullptr;
  // True: all rounds after the prepared batches send the same batch.
  bool constant = false;
  // The batches have gaps, so the router requests replays. The source answers with one useless
  // frame per second.
  bool slow_replay = false;
  // The router gets host names instead of addresses, and no name server answers. So no batch
  // arrives.
  bool unanswered_names = false;
  int sources = 1;  // number of attacking sources
};

std::span<const Attack> Attacks();

// nullptr: no attack has this name.
const Attack* FindAttack(std::string_view name);

}  // namespace kvcast::tools
