// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/source_policy.h"

#include <string>

#include "kvcast/stream/curve.h"
#include "router/service/ingest/client_sources.h"
#include "router/service/ingest/event_feeds.h"
#include "src/event_log/open_log.h"
#include "src/http/loopback.h"

namespace kvcast::router {
namespace {

Status Refused(const WorkerRegistration& source, const std::string& what) {
  return {StatusCode::kInvalidArgument, source.worker.name + ": " + what};
}

Status CheckKey(const WorkerRegistration& source, const SourcePolicy& policy) {
  if (source.server_key.empty()) return Status();
  if (source.insecure) return Refused(source, "server_key and insecure exclude each other");
  if (const Status key = CheckCurveKey(source.server_key); !key.ok()) {
    return Refused(source, "server_key: " + key.message());
  }
  if (policy.has_keys) return Status();
  return Refused(source, "server_key: the router has no keys; set curve_key (--curve-key)");
}

Status CheckEndpoint(const WorkerRegistration& source, const std::string& endpoint) {
  if (endpoint.empty()) return Status();
  const bool is_protected = !source.server_key.empty() || source.insecure;
  if (is_protected || IsLoopbackEndpoint(endpoint)) return Status();
  return Refused(source, endpoint +
                             " is not loopback; set server_key (CURVE), or insecure=true "
                             "for an engine without CURVE");
}

}  // namespace

Status CheckSource(const WorkerRegistration& source, const SourcePolicy& policy,
                   SourceOrigin origin) {
  if (origin == SourceOrigin::kHttp) {
    const Status checked = CheckClientSource(source, policy.networks);
    if (!checked.ok()) return checked;
  }
  if (IsFeedEndpoint(source.endpoint)) return Status();
  if (IsLogEndpoint(source.endpoint)) {
    return policy.reads_logs ? Status() : Refused(source, source.endpoint + " needs --nats");
  }
  if (source.bind && !IsLoopbackEndpoint(source.endpoint) && !policy.allow_remote) {
    return Refused(source, "bind: " + source.endpoint +
                               " is not loopback; set allow_remote (--allow-remote) to listen "
                               "there");
  }
  if (const Status key = CheckKey(source, policy); !key.ok()) return key;
  for (const std::string* endpoint : {&source.endpoint, &source.replay_endpoint}) {
    if (const Status checked = CheckEndpoint(source, *endpoint); !checked.ok()) {
      return checked;
    }
  }
  return Status();
}

std::string_view SecurityOf(const WorkerRegistration& source) {
  if (!source.server_key.empty()) return "curve";
  return source.insecure ? "insecure" : "none";
}

}  // namespace kvcast::router
