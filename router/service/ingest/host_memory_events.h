// HostMemoryEvents: changes an engine's events about its host memory into events that the index can
// apply.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/core/event.h"
#include "src/base/byte_fields.h"

namespace kvcast::router {

class HostMemoryEvents {
 public:
  // `may_be_connector`: the engine may be vLLM with its offloading connector. The connector's
  // events about host memory and storage have no extra keys.
  explicit HostMemoryEvents(bool may_be_connector) : may_be_connector_(may_be_connector) {}

  // Must be called for each decoded batch of the engine, in order.
  void Adapt(EventBatch& batch) {
    ClearHostMemoryToo(batch);
    DropContentOfConnector(batch);
  }

  // Must be called if stores of the engine were missed, or were replaced by a snapshot. A snapshot
  // has no extra keys, and the blocks of these stores may have had extra keys.
  void NoteMissedStores() { has_keys_ = true; }

  // The learned properties of the engine.
  void Save(FieldWriter& to) const {
    to.Bool(has_keys_);
    to.Bool(is_hicache_);
  }
  void Restore(FieldReader& from) {
    has_keys_ = from.Bool();
    is_hicache_ = from.Bool();
  }

 private:
  void ClearHostMemoryToo(EventBatch& batch);
  void DropContentOfConnector(EventBatch& batch);

  bool may_be_connector_;
  bool has_keys_ = false;    // a store of the engine had, or may have had, extra keys
  bool is_hicache_ = false;  // the engine has stored blocks in SGLang's host memory
};

}  // namespace kvcast::router
