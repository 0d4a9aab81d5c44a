// Observers of a router that ask and never read: dashboards that hang, tails that are stopped.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "kvcast/core/status.h"

namespace kvcast::tools {

class StalledObservers {
 public:
  StalledObservers();
  ~StalledObservers();

  // `count` HTTP clients each for /dump, /v1/events and /v1/state that send their request again and
  // again on one connection and read nothing, and as many subscribers of `relay` (empty: none).
  // What is closed on them connects anew.
  Status Start(int count, int port, const std::string& relay);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::tools
