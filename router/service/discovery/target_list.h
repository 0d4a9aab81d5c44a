// TargetList: makes the fleet follow one source for each target of a list. An example of a list is
// the answer to a DNS lookup.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "router/service/discovery/source_list_report.h"
#include "router/service/discovery/source_set.h"
#include "router/service/discovery/source_template.h"
#include "src/base/logger.h"

namespace kvcast::router {

// Returns a template that applies the defaults to each source of `source_of`.
SourceTemplate WithDefaults(SourceTemplate source_of, const SourceDefaults& defaults);

// The properties of all lists of one kind.
struct TargetListConfig {
  std::string_view kind;  // the argument `list` of SourceSet
  LogEvent failed;        // written to `log` for each new failure
  SourceText text_of = nullptr;
  SourcePolicy policy;
  Logger* log = nullptr;  // nullptr: no log
};

// Thread-compatible.
class TargetList {
 public:
  // `list`: the name of the list in the log and in its report. `fleet` and `log` must outlive this
  // object.
  TargetList(std::string list, const TargetListConfig& config, Fleet& fleet, SourceLog& log);

  // Replaces the targets. The fleet changes in the next call of Follow. A target for which
  // `source_of` returns an error is a failure; the other targets are still followed. If two targets
  // give sources with the same name, this is a failure, and the list keeps its previous sources.
  // `failure`: the reason if the whole list has a failure, for example if a port is missing; empty:
  // the whole list has no failure.
  void Set(const std::vector<SourceTarget>& targets, const SourceTemplate& source_of,
           std::string failure = "");
  // Must be called when the list could not be read. The sources stay. An empty `reason` means that
  // the failure has ended.
  void NoteFailure(const std::string& reason);
  // Makes the fleet follow the list.
  SourceListReport Follow();
  // Removes the sources of the list from the fleet.
  void Clear();

 private:
  const std::string list_;
  const LogEvent event_;
  Logger* const log_;
  Fleet& fleet_;
  SourceSet sources_;
  std::string failure_;  // the latest failure; empty: none
  // Number of targets without a valid source; 1 for a failure of the whole list.
  size_t errors_ = 0;
};

}  // namespace kvcast::router
