// Clients of a router that send requests and never read, like a dashboard that hangs or a stopped
// `kvcast tail`.
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

  // Starts `count` HTTP clients for each of /dump, /v1/events and /v1/state. Each client sends its
  // request repeatedly on one connection and reads nothing. Also starts `count` subscribers of the
  // endpoint `relay` (empty: no subscribers). A closed connection is opened again.
  Status Start(int count, int port, const std::string& relay);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::tools
