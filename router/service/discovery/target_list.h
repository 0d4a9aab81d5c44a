// TargetList: follows a source for each target of one list, such as the answer to a lookup.
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

// Makes the template apply the defaults to its sources.
SourceTemplate WithDefaults(SourceTemplate source_of, const SourceDefaults& defaults);

// The properties of all lists of one kind.
struct TargetListConfig {
  std::string_view kind;  // see SourceSet: `list`
  LogEvent failed;        // written for each new failure
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

  // Replaces the targets. A target without a valid source is a failure, and does not stop the other
  // targets. If two targets give sources of one name, no source changes. The fleet changes in the
  // next call of Follow. `failure`: a failure of the whole list that leaves the targets valid;
  // empty: none.
  void Set(const std::vector<SourceTarget>& targets, const SourceTemplate& source_of,
           std::string failure = "");
  // Notes that the list could not be read. The sources stay. `reason` empty: the failure has ended.
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
  std::string failure_;  // the latest; empty: none
  size_t errors_ = 0;    // see SourceListReport; without the sources that cannot be followed
};

}  // namespace kvcast::router
