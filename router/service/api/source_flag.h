// Sources on the command line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kvcast/core/status.h"
#include "router/service/ingest/worker_ingest.h"

namespace kvcast::router {

// NAME=ENDPOINT[,REPLAY_ENDPOINT][,MEMBER=VALUE...], with the members that docs/options.md
// describes. The elements of a list are joined by +. Not ok: one line that names the wrong member.
Result<WorkerRegistration> SourceFromFlag(const std::string& text);

}  // namespace kvcast::router
