// DnsSources: looks up names, and follows a source for each target of each name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/discovery/dns_source.h"
#include "router/service/discovery/source_list_report.h"
#include "router/service/discovery/target_list.h"
#include "src/base/mutex.h"
#include "src/base/repeater.h"

namespace kvcast::router {

struct DnsSourcesConfig {
  std::function<Result<std::vector<SourceTarget>>(const std::string& lookup)> look;
  TargetListConfig lists;
};

// Looks each name up once per period, in a thread of its own. While the lookups of a name fail, the
// sources of the name stay. If a name has no targets, the sources of the name are removed.
class DnsSources {
 public:
  static constexpr int64_t kPeriodMs = 5000;

  // `fleet` and `log` must outlive this object.
  DnsSources(DnsSourcesConfig config, Fleet& fleet, SourceLog& log);
  // Waits for the lookup in progress. The sources stay in the fleet.
  ~DnsSources();

  // Replaces the names, and looks the new names up soon. The sources of removed names stay until
  // this lookup begins. Thread-safe.
  void Set(std::vector<DnsSource> sources);
  // Starts the thread, and the first lookups. Call it once.
  void Begin();
  // From this call on, no lookup begins. Thread-safe; the call does not wait.
  void Stop() { stopping_ = true; }
  // has_names and reports are thread-safe.
  bool has_names() const;
  std::vector<SourceListReport> reports() const;

 private:
  void LookUpAll();
  void LookUp(const DnsSource& source, TargetList& list);

  const DnsSourcesConfig config_;
  Fleet& fleet_;
  SourceLog& log_;
  std::atomic<bool> stopping_{false};
  std::map<std::string, TargetList> lists_;  // by lookup
  mutable Mutex mutex_;
  std::vector<DnsSource> wanted_ KV_GUARDED_BY(mutex_);
  std::vector<SourceListReport> reports_ KV_GUARDED_BY(mutex_);
  std::unique_ptr<Repeater> repeater_;  // last: its thread uses the other members
};

}  // namespace kvcast::router
