// DnsSource: a name to look up, and the sources of its targets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "router/service/discovery/source_template.h"

namespace kvcast::router {

struct DnsSource {
  std::string lookup;  // see DnsClient::Look
  SourceTemplate source_of;
};

}  // namespace kvcast::router
