// SourceSet: makes the fleet follow the sources of one list, which may change.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/core/status.h"
#include "router/service/ingest/fleet.h"
#include "router/service/ingest/source_log.h"
#include "router/service/ingest/source_policy.h"
#include "router/service/ingest/worker_registration.h"

namespace kvcast::router {

// Returns a text of all properties of a source. Different sources have different texts.
using SourceText = std::string (*)(const WorkerRegistration&);

// Thread-compatible.
class SourceSet {
 public:
  // `fleet` must outlive the set. `list`: see ChangeOrigin; it must have static storage.
  SourceSet(Fleet& fleet, const SourcePolicy& policy, std::string_view list, SourceText text_of)
      : fleet_(fleet), policy_(policy), list_(list), text_of_(text_of) {}

  // From this call on, changes and errors are written to `log`, which must outlive the set.
  void LogTo(SourceLog& log) { log_ = &log; }
  // Replaces the list. The fleet changes in the next call of Follow. kFailedPrecondition: two
  // sources have the same name; the list does not change.
  Status Set(std::vector<WorkerRegistration> sources);

  struct Changes {
    size_t added = 0;
    size_t removed = 0;
    std::vector<Status> errors;  // one for each source of the list that cannot be followed
  };
  // Removes the followed sources that the list does not contain. Adds the sources of the list that
  // are not followed. Replaces a source whose properties have changed. If CheckSource refuses the
  // new properties, the old source stays. If the fleet cannot add the new source, the old source is
  // already removed. After an error, the next call tries again. If a client has removed a source of
  // the list, the call adds the source again. Sources that do not come from this list never change.
  // Polls of new URLs begin at the next Fleet::BeginPolls.
  Changes Follow();
  // Tries the sources of the list again for which the latest try had an error. Other sources do not
  // change: if a client has removed such a source, the call does not add it again. Call it after
  // the Follow of the list.
  Changes Retry();
  // Number of sources of the list that the fleet follows.
  size_t followed() const { return followed_.size(); }

 private:
  struct Rank {
    WorkerId id;
    std::string name;
  };
  struct Followed {
    std::string text;
    std::vector<Rank> ranks;
  };
  using WorkerIds = std::map<std::string, WorkerId, std::less<>>;

  bool IsFollowed(const Followed& source, const WorkerIds& ids) const;
  // Calls FollowOne, and notes its error or its success.
  void Try(const WorkerRegistration& source, const std::string& text, const WorkerIds& ids,
           Changes& changes);
  Status FollowOne(const WorkerRegistration& source, const std::string& text, const WorkerIds& ids,
                   Changes& changes);
  void Remove(const std::string& name, Changes& changes);
  Status Add(const WorkerRegistration& source, std::string text);
  void NoteError(const std::string& name, const Status& status, Changes& changes);

  Fleet& fleet_;
  SourceLog* log_ = nullptr;
  const SourcePolicy policy_;
  const std::string_view list_;
  const SourceText text_of_;
  std::set<std::string> names_;                                     // of the list
  std::vector<std::pair<WorkerRegistration, std::string>> wanted_;  // each with its text
  std::map<std::string, Followed> followed_;                        // by name of the source
  // By name of the source: the text of the error of the latest try.
  std::map<std::string, std::string> errors_;
};

}  // namespace kvcast::router
