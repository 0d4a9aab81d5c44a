// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace kvcast::router {

// The latest reading of a list of sources: a file, the answer to a lookup, or EndpointSlices.
struct SourceListReport {
  std::string list;  // path of the file, looked up name, or KubernetesSource::list()
  // Number of sources that cannot be followed. At least 1 if the list could not be read or is
  // invalid.
  size_t errors = 0;
  size_t followed = 0;  // sources of the list that the fleet follows
};

}  // namespace kvcast::router
