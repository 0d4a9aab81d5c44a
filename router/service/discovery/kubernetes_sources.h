// KubernetesSources: follows a source for each endpoint of EndpointSlices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "router/service/discovery/kubernetes_follower.h"
#include "src/base/mutex.h"
#include "src/base/repeater.h"

namespace kvcast::router {

// Has a thread for each KubernetesSource.
class KubernetesSources {
 public:
  static constexpr int64_t kRetryMs = 5000;  // period of KubernetesFollower::Retry

  // `fleet` and `log` must outlive this object.
  KubernetesSources(KubernetesSourcesConfig config, Fleet& fleet, SourceLog& log);
  // Waits for the end of the threads. The sources stay in the fleet.
  ~KubernetesSources();

  // Replaces the lists. A list that was set before is not read again. The sources of lists that are
  // no longer set leave the fleet. One call at a time. REQUIRES: each list() occurs once; if there
  // are lists, has_client() is true.
  void Set(std::vector<KubernetesSource> sources);
  bool has_client() const { return config_.make_client != nullptr; }
  // Starts the threads. Call it once.
  void Begin();
  // The threads end soon. Thread-safe; does not wait.
  void Stop();
  // has_lists and reports are thread-safe.
  bool has_lists() const;
  std::vector<SourceListReport> reports() const;

 private:
  using Follower = std::shared_ptr<KubernetesFollower>;

  std::vector<Follower> followers() const;

  const KubernetesSourcesConfig config_;
  Fleet& fleet_;
  SourceLog& log_;
  mutable Mutex mutex_;
  std::map<std::string, Follower> followers_ KV_GUARDED_BY(mutex_);  // by name of the list
  std::unique_ptr<Repeater> repeater_;  // last: its thread uses the other members
};

}  // namespace kvcast::router
