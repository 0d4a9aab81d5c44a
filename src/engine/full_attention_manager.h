// Full attention, MLA and sink: every block is held until the request ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/engine/single_type_manager.h"

namespace kvcast::engine {

class FullAttentionManager : public SingleTypeManager {
 public:
  // Sink layers take their blocks from the pool here and for good.
  explicit FullAttentionManager(GroupContext context);

  void CacheBlocks(RequestSlot slot, const CacheRequest& request, int64_t tokens) override;
  // R-SWA only: between the prompt and the window of the decoded tail nothing is read again.
  void RemoveSkipped(RequestSlot slot, int64_t processed_tokens, int64_t prompt_tokens) override;

 private:
  std::vector<BlockId> sink_blocks_;
};

}  // namespace kvcast::engine
