// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/kubernetes_sources.h"

#include <utility>

#include "src/base/check.h"

namespace kvcast::router {

KubernetesSources::KubernetesSources(KubernetesSourcesConfig config, Fleet& fleet, SourceLog& log)
    : config_(std::move(config)), fleet_(fleet), log_(log) {}

// Stops all threads first, so that they end in parallel.
KubernetesSources::~KubernetesSources() { Stop(); }

void KubernetesSources::Set(std::vector<KubernetesSource> sources) {
  KV_CHECK(sources.empty() || has_client());
  std::map<std::string, Follower> set;
  std::map<std::string, Follower> old;
  std::vector<Follower> added;
  {
    const MutexLock lock(mutex_);
    old = followers_;
  }
  for (KubernetesSource& source : sources) {
    const std::string list = source.list();
    if (auto known = old.extract(list); !known.empty()) {
      known.mapped()->SetTemplate(std::move(source.source_of));
      set.insert(std::move(known));
      continue;
    }
    added.push_back(std::make_shared<KubernetesFollower>(std::move(source), config_, fleet_, log_));
    set.emplace(list, added.back());
  }
  {
    const MutexLock lock(mutex_);
    followers_ = std::move(set);
  }
  for (const auto& [list, follower] : old) follower->Stop();
  for (const auto& [list, follower] : old) follower->Remove();
  // New lists begin after the removal, because their sources may have the names of old sources.
  if (repeater_ == nullptr) return;
  for (const Follower& follower : added) follower->Begin();
}

void KubernetesSources::Begin() {
  for (const Follower& follower : followers()) follower->Begin();
  repeater_ = std::make_unique<Repeater>(kRetryMs, kRetryMs, [this] {
    for (const Follower& follower : followers()) follower->Retry();
  });
}

void KubernetesSources::Stop() {
  for (const Follower& follower : followers()) follower->Stop();
}

bool KubernetesSources::has_lists() const {
  const MutexLock lock(mutex_);
  return !followers_.empty();
}

std::vector<SourceListReport> KubernetesSources::reports() const {
  std::vector<SourceListReport> reports;
  for (const Follower& follower : followers()) reports.push_back(follower->report());
  return reports;
}

std::vector<KubernetesSources::Follower> KubernetesSources::followers() const {
  const MutexLock lock(mutex_);
  std::vector<Follower> followers;
  for (const auto& [list, follower] : followers_) followers.push_back(follower);
  return followers;
}

}  // namespace kvcast::router
