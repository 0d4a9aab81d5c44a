// DemoRouter: the router of a demo run, composed of the library's subscriber, decoder, prefix index
// and selector.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "apps/demo/demo_audit.h"
#include "apps/demo/demo_fleet.h"
#include "apps/demo/demo_options.h"
#include "apps/demo/demo_run.h"
#include "apps/engine/peer_dialect.h"
#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/router/scheme_detector.h"
#include "kvcast/stream/subscriber.h"

namespace kvcast::tools {

// The names of a prompt's blocks: hash chain of the engines' scheme, and content keys.
struct PromptNames {
  std::shared_ptr<const std::vector<BlockHash>> chain;
  std::shared_ptr<const std::vector<ContentKey>> contents;
};

class DemoRouter {
 public:
  struct Decision {
    size_t engine = 0;
    int64_t predicted_tokens = 0;  // reusable prefix by the rule of the policy
    PromptNames names;
  };

  // Follows all engines; the engines use the dialects in turn. `audit` gets every batch and must
  // outlive this object.
  static Result<std::unique_ptr<DemoRouter>> Create(const DemoOptions& options,
                                                    const std::vector<EngineEndpoints>& engines,
                                                    const std::vector<PeerDialect>& dialects,
                                                    RoutingPolicy policy, ExactnessAudit& audit);
  ~DemoRouter();

  // Chooses an engine for request `number` and books its load there. `now_s`: seconds of any steady
  // clock. `given`: an engine that the caller has chosen.
  Decision Route(int64_t number, std::span<const TokenId> prompt, double now_s,
                 std::optional<size_t> given = std::nullopt);
  // Call when the request's prefill is done: the request then counts as decoding.
  void OnFirstToken(int64_t number);
  // Call when the request is done or refused: its load is removed.
  void OnFinished(int64_t number);
  PromptNames NamesOf(std::span<const TokenId> tokens);
  // The hash scheme that the events of each engine show. The configured scheme is registered.
  std::vector<SchemeVerdict> schemes() const;
  // Batches that were lost and not recovered, over all sources.
  uint64_t lost_batches() const;

 private:
  struct Impl;
  explicit DemoRouter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::tools
