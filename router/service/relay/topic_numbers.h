// TopicNumbers: the sequence numbers of a relay's messages. Each topic counts its own messages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace kvcast::router {

// A worker between two resets. Each run has a new number.
struct WorkerRun {
  std::string worker;
  uint64_t run = 0;
};

// Thread-compatible.
class TopicNumbers {
 public:
  // Returns the number of the next message of the topic. A new run begins at 0.
  uint64_t Next(const WorkerRun& of, const std::string& topic) {
    Worker& worker = Of(of);
    Topic& at = worker.topics[topic];
    if (std::exchange(at.losses, worker.losses) != worker.losses) ++at.next;
    return at.next++;
  }
  // A batch or an event was lost, and its topics are not known. So the next message of each topic
  // of the worker skips a number.
  void NoteLost(const WorkerRun& of) { ++Of(of).losses; }
  // Call after the worker was removed. `of`: its latest run, which may have sent nothing. Another
  // worker of the same name may follow.
  void Forget(const WorkerRun& of) {
    const auto it = workers_.find(of.worker);
    if (it != workers_.end() && it->second.run <= of.run) workers_.erase(it);
  }

  size_t workers() const { return workers_.size(); }

 private:
  struct Topic {
    uint64_t next = 0;
    uint64_t losses = 0;  // Worker::losses at the latest message of this topic
  };
  struct Worker {
    uint64_t run = 0;
    uint64_t losses = 0;
    std::map<std::string, Topic> topics;
  };
  Worker& Of(const WorkerRun& of) {
    Worker& worker = workers_[of.worker];
    if (worker.run != of.run) worker = {.run = of.run};
    return worker;
  }

  std::map<std::string, Worker> workers_;
};

}  // namespace kvcast::router
