// LoadBook: the unfinished work that a router has sent to each engine. A router can keep this book
// without load reports of the engines. The rules of other routers read the book.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/simulate/prompts.h"

namespace kvcast::simulate {

// The unfinished requests of one engine.
struct EngineLoad {
  int64_t requests = 0;
  // Prompt tokens that the router expects the engine to compute, of requests without a first token.
  int64_t prefill_tokens = 0;
  int64_t prefill_requests = 0;
  int64_t context_tokens = 0;  // prompt tokens of all requests
  int64_t blocks = 0;          // distinct whole hash units of the prompts of all requests
};

class LoadBook {
 public:
  // `requests`: number of requests of the slice. `prefixes`: Prompts::prefixes().
  LoadBook(size_t engines, size_t requests, size_t prefixes);

  // `hit_tokens`: tokens of the prompt that the router expects in the engine's cache.
  void Routed(size_t request, size_t engine, int64_t prompt_tokens, int64_t hit_tokens,
              std::span<const PrefixNumber> prefixes);
  void FirstToken(size_t request);
  void Finished(size_t request, std::span<const PrefixNumber> prefixes);

  const EngineLoad& of(size_t engine) const { return loads_[engine]; }
  // The number of leading prefixes that unfinished requests of the engine have too.
  int64_t SharedWith(size_t engine, std::span<const PrefixNumber> prefixes) const;

 private:
  static constexpr size_t kNone = ~size_t{0};
  struct Booking {
    size_t engine = kNone;
    int64_t prompt_tokens = 0;
    int64_t prefill_tokens = 0;
    bool prefill = false;
  };
  std::vector<EngineLoad> loads_;
  std::vector<Booking> bookings_;            // by request
  std::vector<std::vector<uint32_t>> uses_;  // by engine and prefix: unfinished requests
};

}  // namespace kvcast::simulate
