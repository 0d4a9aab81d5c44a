// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/shard_save.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "router/index/index_image.h"
#include "src/base/clock.h"

namespace kvcast::router {
namespace {

std::vector<SavedWorker> WorkersOf(const std::vector<FollowedWorker>& followed,
                                   const FrozenShard& frozen, SourceText text_of) {
  std::vector<SavedWorker> saved;
  for (size_t i = 0; i < followed.size(); ++i) {
    const FleetWorker& worker = *followed[i].worker;
    saved.push_back({.registration = text_of(worker.config),
                     .position = followed[i].position,
                     .source = worker.source->Save(),
                     .learned = frozen.learned()[i]});
  }
  return saved;
}

}  // namespace

void ShardSave::Begin(const SavedRouter& router, size_t shard, int fd) {
  const StateHead head = {.secret_check = SecretCheck(router.secret),
                          .saved_at_ms = static_cast<int64_t>(router.now() * 1000)};
  const int64_t begin_ns = SteadyNs();
  router.fleet.BetweenTurns(shard, [&](const std::vector<FollowedWorker>& all) {
    std::vector<FollowedWorker> workers;
    std::ranges::copy_if(all, std::back_inserter(workers),
                         [](const auto& worker) { return worker.worker->source->CanSave(); });
    std::vector<WorkerId> ids;
    for (const FollowedWorker& followed : workers) ids.push_back(followed.worker->id);
    workers_ = workers.size();
    IndexImage::Freeze(router.index, shard, ids, [&](const FrozenShard& frozen) {
      writer_.emplace(fd, EncodeHead(head, WorkersOf(workers, frozen, router.text_of)));
      save_.Begin(*writer_, frozen, fd);
    });
  });
  pause_seconds_ = static_cast<double>(SteadyNs() - begin_ns) / 1e9;
}

}  // namespace kvcast::router
