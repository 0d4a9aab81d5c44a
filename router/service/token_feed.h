// TokenFeed: one source's token mode. While no hash scheme is known to fit, its events go through
// TokenKeys too; once none is known to fit, into the index, as a worker of its own beside the one
// that is keyed by the engine's hashes, so that queries by tokens and by hashes are both answered.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kvcast/event.h"
#include "kvcast/prefix_index.h"
#include "kvcast/scheme_detector.h"
#include "kvcast/token_keys.h"
#include "src/base/mutex.h"

namespace kvcast::router {

// What a query needs to know of a source's token mode.
struct TokenFeedStatus {
  bool serving = false;         // queries by tokens are answered by token mode
  int tokens_per_position = 1;  // of the prompt's chain; see ContentChain
  bool late = false;            // what was stored before token mode began is not in the index
  TokenKeysCounters keys;
};
// Why what is served may be short of the engine's own lookup; empty: no reason.
std::string WhyShort(const TokenFeedStatus& status);

class TokenFeed {
 public:
  // `worker`: not registered with the index yet. `config`: groups and hash unit are the
  // registration's. `await_verdict`: serve only once no hash scheme is known to fit. The index must
  // outlive the feed.
  TokenFeed(WorkerId worker, const WorkerConfig& registration, TokenKeysConfig config,
            bool await_verdict, PrefixIndex& index);

  WorkerId worker() const { return worker_; }

  // The subscriber's thread. A batch comes after the verdict that it led to.
  void OnVerdict(const SchemeVerdict& verdict);
  void OnBatch(const EventBatch& batch);
  // What is held may be gone.
  void OnLoss();
  // The engine began anew.
  void OnRestart();

  // Thread-safe.
  TokenFeedStatus status() const;

 private:
  bool ShouldServe() const;
  void Serve();
  void ForgetHeld();
  void NoteStatus();

  const WorkerId worker_;
  const WorkerConfig registration_;
  const TokenKeysConfig config_;
  const bool await_verdict_;
  PrefixIndex& index_;
  // The subscriber's thread.
  std::optional<TokenKeys> keys_;  // nullopt: a scheme is known
  SchemeVerdict verdict_;
  bool fed_ = false;  // the index has the worker
  TokenFeedStatus now_;
  mutable Mutex mutex_;
  TokenFeedStatus status_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::router
