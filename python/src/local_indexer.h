// LocalIndexer: the index of the router service in one process, without sockets. The caller applies
// the batches. Decoding, naming of blocks, hash schemes, groups and answers are the service's code.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "python/src/sequence_state.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/ingest/worker_registration.h"
#include "router/service/route/query_engine.h"
#include "src/base/mutex.h"

namespace kvcast::python {

// The key of a worker in answers: the instance and the data-parallel rank.
using WorkerKey = std::pair<std::string, int64_t>;

// One source. Its batches are applied under `order`, one at a time.
struct LocalSource {
  WorkerKey key;
  std::shared_ptr<router::WorkerIngest> ingest;
  Mutex order;
  SequenceState sequence KV_GUARDED_BY(order);
  mutable Mutex status_mutex;
  SourceStatus status KV_GUARDED_BY(status_mutex);
  bool numbered KV_GUARDED_BY(status_mutex) = true;
};

// The sources at one time, in order of registration. A view does not change.
struct LocalView {
  std::vector<std::shared_ptr<LocalSource>> sources;
  std::unordered_map<WorkerId, std::shared_ptr<LocalSource>> by_id;
  std::map<std::string, std::shared_ptr<LocalSource>, std::less<>> by_name;
};

struct LocalAnswers {
  std::vector<router::QueryAnswer> answers;
  std::vector<std::shared_ptr<const WorkerKey>> keys;  // of each answer
};

struct LocalApplied {
  bool applied = true;  // false: a duplicate
  uint64_t seq = 0;
  uint64_t lost = 0;  // lost batches before this batch
  SourceState state = SourceState::kConnecting;
};

// Thread-safe. No method needs the GIL. Methods with a `name` return kNotFound if there is no such
// source.
class LocalIndexer {
 public:
  LocalIndexer();

  // `registration.instance` and data_parallel_rank are the key of the worker. Errors:
  // kFailedPrecondition if the name or the key is in use; the errors of WorkerIngest::Create.
  Status Add(const router::WorkerRegistration& registration);
  Status Remove(std::string_view name);
  // Applies one batch. Errors: kMalformed if the payload is not a batch; kLimit if the source has
  // too many blocks; kFailedPrecondition if `seq` is an earlier number, and the batch is not known
  // to be a duplicate (SequenceState::Step::kConflict); kInvalidArgument if `seq` is 2^64 - 1. With
  // kMalformed and kLimit, the blocks of the source are dropped.
  Result<LocalApplied> Apply(std::string_view name, std::span<const uint8_t> payload,
                             std::optional<uint64_t> seq);
  Status Reset(std::string_view name, ResetReason reason);
  // Answers like POST /v1/query. kNotFound: no source has the model of the query.
  Result<LocalAnswers> Find(const router::Query& query) const;
  Result<SourceStatus> status(std::string_view name) const;
  Result<std::vector<GroupSpec>> groups(std::string_view name) const;
  std::vector<std::string> names() const;
  bool Has(std::string_view name) const;
  // See PrefixIndex::Reclaim. Makes passes until nothing is left to free.
  void Reclaim();

 private:
  std::shared_ptr<const LocalView> view() const;
  Result<std::shared_ptr<LocalSource>> SourceOf(std::string_view name) const;
  SourceStatus StatusOf(WorkerId worker) const;
  static void Drop(LocalSource& source, ResetReason reason) KV_REQUIRES(source.order);
  static void ShowStatus(LocalSource& source) KV_REQUIRES(source.order);

  PrefixIndex index_;
  router::QueryEngine queries_;
  Mutex admin_mutex_;  // one Add or Remove at a time
  uint32_t next_id_ KV_GUARDED_BY(admin_mutex_) = 0;
  mutable Mutex view_mutex_;
  std::shared_ptr<const LocalView> view_ KV_GUARDED_BY(view_mutex_) =
      std::make_shared<const LocalView>();
};

}  // namespace kvcast::python
