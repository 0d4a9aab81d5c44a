// KubernetesFollower: lists and watches the EndpointSlices of one KubernetesSource, and makes the
// fleet follow their endpoints.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "kvcast/core/status.h"
#include "router/service/discovery/endpoint_slices.h"
#include "router/service/discovery/http_client.h"
#include "router/service/discovery/kubernetes_source.h"
#include "router/service/discovery/source_list_report.h"
#include "router/service/discovery/target_list.h"
#include "src/base/mutex.h"

namespace kvcast::router {

struct KubernetesSourcesConfig {
  KubernetesApi api;
  TargetListConfig lists;
  MakeHttpClient make_client;  // empty: no KubernetesSource is allowed
  // The wait after a failure. Each further failure doubles it, until kLongestWaitMs. A wait is
  // shortened at random by up to half, so that routers do not send their requests together.
  int64_t first_wait_ms = 200;
};

// Has a thread of its own. While the API server does not answer or its answers are damaged, the
// sources stay.
class KubernetesFollower {
 public:
  static constexpr int64_t kLongestWaitMs = 30000;
  static constexpr int64_t kWatchSeconds = 240;  // the server ends a watch after this time
  // Time limit of the request for a page. The time limit of a watch is kWatchSeconds + kRequestMs.
  static constexpr int64_t kRequestMs = 30000;
  static constexpr int64_t kSteadyWatchMs = 1000;  // a shorter watch without an event is a failure
  static constexpr size_t kMaxErrorBytes = 4096;   // of the body of an error
  static constexpr size_t kMaxPages = 4096;

  // `config`, `fleet` and `log` must outlive this object.
  KubernetesFollower(KubernetesSource source, const KubernetesSourcesConfig& config, Fleet& fleet,
                     SourceLog& log);
  // Ends the thread. The sources stay in the fleet.
  ~KubernetesFollower();

  void Begin();  // call it once
  // Replaces the template of the source. Thread-safe.
  void SetTemplate(SourceTemplate source_of);
  // Tries again to follow the sources that could not be followed. Thread-safe.
  void Retry();
  // The thread ends soon. Thread-safe; does not wait.
  void Stop();
  // Waits for the end of the thread, and removes the sources from the fleet.
  void Remove();
  SourceListReport report() const;  // thread-safe

 private:
  enum class Next : uint8_t { kList, kWatch };
  struct Watching;

  void Run();
  // List and Watch return false after a failure.
  bool List();
  bool Watch();
  // Sets `expired` to true if the API server has sent the first pages of a list, and no longer has
  // the next page.
  Status ReadPages(bool& expired);
  bool TakeWatched(Watching& watching, std::string_view bytes);
  bool EndWatch(const Watching& watching, const HttpOutcome& outcome);
  Result<HttpGet> Request(const std::string& parameters) const;
  void SetTargets() KV_REQUIRES(mutex_);
  void Apply() KV_REQUIRES(mutex_);
  void Publish(const SourceListReport& report);
  bool Fail(const std::string& reason);
  void Wait();

  const KubernetesSource source_;
  const KubernetesSourcesConfig& config_;
  const HttpClient client_;
  std::atomic<bool> stopping_{false};
  // Only thread_ uses next_, failures_ and list_expired_.
  Next next_ = Next::kList;
  uint32_t failures_ = 0;      // since the latest event of a watch, or the latest steady watch
  bool list_expired_ = false;  // the latest list ended early because it expired
  mutable Mutex mutex_;
  CondVar wake_;
  EndpointSlices slices_ KV_GUARDED_BY(mutex_);
  TargetList list_ KV_GUARDED_BY(mutex_);
  SourceTemplate source_of_ KV_GUARDED_BY(mutex_);
  bool listed_ KV_GUARDED_BY(mutex_) = false;  // slices_ has the answer to a list
  // The failure of the latest request, which list_ has too. nullopt: no failure.
  std::optional<std::string> failure_ KV_GUARDED_BY(mutex_);
  // The failure is a watch that ended early. A new watch does not end this failure, because the API
  // server may end the new watch early too. The next event ends the failure. After a steady watch,
  // the next watch ends the failure.
  bool cut_ KV_GUARDED_BY(mutex_) = false;
  // Separate from mutex_, so that report() does not wait for changes of the fleet.
  mutable Mutex report_mutex_;
  SourceListReport report_ KV_GUARDED_BY(report_mutex_);
  std::thread thread_;  // last: the thread uses the other members
};

}  // namespace kvcast::router
