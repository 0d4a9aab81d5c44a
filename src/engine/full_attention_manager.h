// Full attention, MLA and sink: the request holds every block until it ends. Exception: R-SWA (see
// GroupSpec::reference_window).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/engine/single_type_manager.h"

namespace kvcast::engine {

class FullAttentionManager : public SingleTypeManager {
 public:
  // For sink layers, the constructor takes the sink blocks from the pool. The manager never frees
  // them.
  explicit FullAttentionManager(const GroupContext& context);

  void CacheBlocks(RequestSlot slot, const CacheRequest& request, int64_t tokens) override;
  // R-SWA only: releases the blocks between the prompt and the window of the decoded tail, because
  // no step reads them again.
  void RemoveSkipped(RequestSlot slot, int64_t processed_tokens, int64_t prompt_tokens) override;

 private:
  std::vector<BlockId> sink_blocks_;
};

}  // namespace kvcast::engine
