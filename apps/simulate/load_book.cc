// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/load_book.h"

#include <algorithm>

namespace kvcast::simulate {

LoadBook::LoadBook(size_t engines, size_t requests, size_t prefixes)
    : loads_(engines), bookings_(requests), uses_(engines, std::vector<uint32_t>(prefixes)) {}

void LoadBook::Routed(size_t request, size_t engine, int64_t prompt_tokens, int64_t hit_tokens,
                      std::span<const PrefixNumber> prefixes) {
  Booking& booking = bookings_[request];
  booking = {.engine = engine,
             .prompt_tokens = prompt_tokens,
             .prefill_tokens = std::max<int64_t>(prompt_tokens - hit_tokens, 0),
             .prefill = true};
  EngineLoad& load = loads_[engine];
  ++load.requests;
  ++load.prefill_requests;
  load.prefill_tokens += booking.prefill_tokens;
  load.context_tokens += prompt_tokens;
  std::vector<uint32_t>& uses = uses_[engine];
  for (const PrefixNumber prefix : prefixes) load.blocks += uses[prefix]++ == 0;
}

void LoadBook::FirstToken(size_t request) {
  Booking& booking = bookings_[request];
  if (booking.engine == kNone || !booking.prefill) return;
  booking.prefill = false;
  --loads_[booking.engine].prefill_requests;
  loads_[booking.engine].prefill_tokens -= booking.prefill_tokens;
}

void LoadBook::Finished(size_t request, std::span<const PrefixNumber> prefixes) {
  FirstToken(request);
  Booking& booking = bookings_[request];
  if (booking.engine == kNone) return;
  EngineLoad& load = loads_[booking.engine];
  --load.requests;
  load.context_tokens -= booking.prompt_tokens;
  std::vector<uint32_t>& uses = uses_[booking.engine];
  for (const PrefixNumber prefix : prefixes) load.blocks -= --uses[prefix] == 0;
  booking.engine = kNone;
}

int64_t LoadBook::SharedWith(size_t engine, std::span<const PrefixNumber> prefixes) const {
  // A request that holds a prefix holds all shorter prefixes.
  const std::vector<uint32_t>& uses = uses_[engine];
  return std::ranges::partition_point(prefixes,
                                      [&](PrefixNumber prefix) { return uses[prefix] > 0; }) -
         prefixes.begin();
}

}  // namespace kvcast::simulate
