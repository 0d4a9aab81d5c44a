// RelayQueue: the batches that wait for the relay's thread. It has no thread and no lock.
//
// The queue is bounded in bytes. A batch counts as at least bytes_max / batches_max bytes, so the
// number of batches is bounded too. If the queue is full, the worker with the most bytes loses its
// oldest batch. So a worker with at most an equal part of the queue loses nothing. An equal part is
// bytes_max divided by the number of workers that have batches in the queue.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "router/service/relay/topic_numbers.h"

namespace kvcast::router {

struct Posted {
  std::string model;
  WorkerRun from;
  int64_t rank = 0;
  std::vector<uint8_t> payload;
};

// Thread-compatible.
class RelayQueue {
 public:
  struct Worker {
    // The run of the latest batch that the queue has lost. This batch is older than `batches`.
    std::optional<uint64_t> lost_run;
    std::list<Posted> batches;  // the oldest first
    size_t bytes = 0;           // of `batches`, as the queue counts them
  };
  using Workers = std::map<std::string, Worker, std::less<>>;  // by the name of the worker

  // `batches_max`: not 0.
  RelayQueue(size_t batches_max, size_t bytes_max)
      : bytes_max_(bytes_max),
        batch_bytes_min_(bytes_max / batches_max + (bytes_max % batches_max == 0 ? 0 : 1)) {}
  // A copy would refer to the names of the original.
  RelayQueue(const RelayQueue&) = delete;
  RelayQueue& operator=(const RelayQueue&) = delete;
  RelayQueue(RelayQueue&&) = default;
  RelayQueue& operator=(RelayQueue&&) = default;

  // Returns the number of batches that were lost. The time grows with the logarithm of the number
  // of workers.
  size_t Push(Posted posted) {
    Workers::value_type& worker = *workers_.try_emplace(posted.from.worker).first;
    SetBytes(worker, worker.second.bytes + BytesOf(posted));
    worker.second.batches.push_back(std::move(posted));
    size_t lost = 0;
    for (; bytes_ > bytes_max_; ++lost) LoseOldest(*workers_.find(by_bytes_.rbegin()->second));
    return lost;
  }
  // The workers that have batches in the queue, or have lost batches.
  const Workers& workers() const { return workers_; }

 private:
  size_t BytesOf(const Posted& posted) const {
    return std::max(posted.payload.size(), batch_bytes_min_);
  }
  void SetBytes(Workers::value_type& entry, size_t bytes) {
    auto& [name, worker] = entry;
    by_bytes_.erase({worker.bytes, name});
    bytes_ = bytes_ - worker.bytes + bytes;
    worker.bytes = bytes;
    by_bytes_.emplace(bytes, name);
  }
  void LoseOldest(Workers::value_type& entry) {
    Worker& worker = entry.second;
    worker.lost_run = worker.batches.front().from.run;
    SetBytes(entry, worker.bytes - BytesOf(worker.batches.front()));
    worker.batches.pop_front();
  }

  size_t bytes_max_;
  size_t batch_bytes_min_;
  size_t bytes_ = 0;
  Workers workers_;
  std::set<std::pair<size_t, std::string_view>> by_bytes_;  // bytes and name of each worker
};

}  // namespace kvcast::router
