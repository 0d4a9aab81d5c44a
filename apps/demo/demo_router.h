// DemoRouter: the router of a demo run, put together from the library's parts: subscriber, decoder,
// prefix index, selector.
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

// Names of a prompt's blocks: the chain of the engines' scheme, and content keys.
struct PromptNames {
  std::shared_ptr<const std::vector<BlockHash>> chain;
  std::shared_ptr<const std::vector<ContentKey>> contents;
};

class DemoRouter {
 public:
  struct Decision {
    size_t engine = 0;
    int64_t predicted_tokens = 0;  // reusable prefix by the policy's rule
    PromptNames names;
  };

  // Follows all engines, which speak the dialects in turn. `audit` gets every batch and must
  // outlive this object.
  static Result<std::unique_ptr<DemoRouter>> Create(const DemoOptions& options,
                                                    const std::vector<EngineEndpoints>& engines,
                                                    const std::vector<PeerDialect>& dialects,
                                                    RoutingPolicy policy, ExactnessAudit& audit);
  ~DemoRouter();

  // Chooses an engine for request `number` and books its load there. `now_s`: any steady clock.
  // `given`: the engine that someone else chose.
  Decision Route(int64_t number, std::span<const TokenId> prompt, double now_s,
                 std::optional<size_t> given = std::nullopt);
  // The request's prefill is done: from here on it decodes.
  void OnFirstToken(int64_t number);
  // The request is done or refused: its load is gone.
  void OnFinished(int64_t number);
  PromptNames NamesOf(std::span<const TokenId> tokens);
  // What the events of each engine say of its hash scheme, the configured one being registered.
  std::vector<SchemeVerdict> schemes() const;
  // Batches that no source could deliver.
  uint64_t lost_batches() const;

 private:
  struct Impl;
  explicit DemoRouter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::tools
