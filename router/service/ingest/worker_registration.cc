// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/worker_registration.h"

#include <limits>
#include <utility>

#include "kvcast/stream/publisher.h"

namespace kvcast::router {

void SourceDefaults::ApplyTo(WorkerRegistration& source) const {
  if (!source.algorithm) source.algorithm = algorithm;
  if (!source.hash_seed) source.hash_seed = hash_seed;
  source.candidate_seeds.insert(source.candidate_seeds.end(), candidate_seeds.begin(),
                                candidate_seeds.end());
  source.candidate_none_hashes.insert(source.candidate_none_hashes.end(),
                                      candidate_none_hashes.begin(), candidate_none_hashes.end());
}

Result<std::vector<WorkerRegistration>> ExpandRanks(const WorkerRegistration& source) {
  std::vector<WorkerRegistration> ranks;
  if (source.data_parallel_size == 1) {
    ranks.push_back(source);
    return ranks;
  }
  const int64_t first = source.data_parallel_rank;
  if (first > std::numeric_limits<int64_t>::max() - source.data_parallel_size) {
    return Status(StatusCode::kInvalidArgument,
                  source.worker.name + ": data_parallel_rank is too large");
  }
  for (int64_t rank = first; rank < first + source.data_parallel_size; ++rank) {
    WorkerRegistration& each = ranks.emplace_back(source);
    each.worker.name += "-dp" + std::to_string(rank);
    if (each.instance.empty()) each.instance = source.worker.name;
    each.data_parallel_rank = rank;
    each.data_parallel_size = 1;
    if (source.rank_by_tag) continue;
    for (std::string* const endpoint : {&each.endpoint, &each.replay_endpoint}) {
      auto of_rank = EndpointForRank(*endpoint, rank);
      if (!of_rank.ok()) {
        return Status(StatusCode::kInvalidArgument,
                      source.worker.name + ": " + of_rank.status().message());
      }
      *endpoint = std::move(of_rank).value();
    }
  }
  return ranks;
}

}  // namespace kvcast::router
