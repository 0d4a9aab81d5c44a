// The bodies of the Mooncake indexer API (indexer_api.h describes the members). The error of a
// parser is one line that names the wrong member.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/route/query.h"

namespace kvcast::router {

// The workers that a request selects.
struct WorkerSelection {
  std::string instance;
  bool instance_is_number = false;
  std::string model;
  std::string routing_group = "default";
  std::optional<int64_t> rank;  // nullopt: all ranks; POST /register: rank 0
};

// POST /register: the worker's name is made of its routing group, model, instance and rank.
Result<WorkerRegistration> ParseRegistration(std::string_view body);
// POST /unregister.
Result<WorkerSelection> ParseWorkerSelection(std::string_view body);
// POST /query, or with `by_hash` POST /query_by_hash.
Result<Query> ParseIndexerQuery(std::string_view body, bool by_hash);

}  // namespace kvcast::router
