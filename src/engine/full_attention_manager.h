// Full attention, MLA and sink: a request holds all its blocks until its end. Exception: R-SWA (see
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
  // R-SWA only: releases the blocks after the prompt and before the window, because no step reads
  // these blocks again. The window is at the end of the decoded tokens.
  void RemoveSkipped(RequestSlot slot, int64_t processed_tokens, int64_t prompt_tokens) override;

 private:
  std::vector<BlockId> sink_blocks_;
};

}  // namespace kvcast::engine
