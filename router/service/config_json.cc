// SPDX-License-Identifier: Apache-2.0
#include "router/service/config_json.h"

#include <charconv>
#include <utility>

#include "router/service/api/source_json.h"
#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

constexpr int kConfigDepth = 6;
constexpr double kMaxWeight = 1e9;

Status ReadWeights(const Json& json, RoutingConfig& routing) {
  if (!json.is_object()) return BadField("weights: must be an object");
  const std::pair<const char*, double*> weights[] = {
      {"recompute_token", &routing.weights.recompute_token},
      {"load_token", &routing.weights.load_token},
      {"load_storage_token", &routing.weights.load_storage_token},
      {"active_prefill_token", &routing.weights.active_prefill_token},
      {"decode_block", &routing.weights.decode_block},
      {"queued_request", &routing.weights.queued_request},
      {"affinity_token", &routing.weights.affinity_token},
      {"expected_token", &routing.expected_token},
  };
  for (const auto& [name, value] : json.items()) {
    double* weight = nullptr;
    for (const auto& [known, place] : weights) {
      if (name == known) weight = place;
    }
    if (weight == nullptr) return BadField("weights: unknown member: " + name);
    Status status = ReadNumber(value, "weights." + name, 0, kMaxWeight, *weight);
    if (!status.ok()) return status;
  }
  return Status();
}

Status ReadSources(const Json& json, RouterOptions& options) {
  if (!json.is_array()) return BadField("sources: must be an array");
  for (size_t i = 0; i < json.size(); ++i) {
    auto source = SourceFromJson(json[i]);
    if (!source.ok()) {
      return BadField("sources[" + std::to_string(i) + "]: " + source.status().message());
    }
    options.sources.push_back(std::move(source).value());
  }
  return Status();
}

Status ReadMember(const std::string& name, const Json& value, RouterOptions& options) {
  RoutingConfig& routing = options.routing;
  if (name == "sources") return ReadSources(value, options);
  if (name == "weights") return ReadWeights(value, routing);
  if (name == "temperature") {
    return ReadNumber(value, name, 0, kMaxTemperature, routing.temperature);
  }
  if (name == "speculative_ms") {
    return ReadInteger(value, name, 0, routing.speculative.lifetime_ms);
  }
  if (name == "booking_lifetime_ms") {
    return ReadInteger(value, name, 1, routing.booking_lifetime_ms);
  }
  if (name == "relay") return ReadText(value, name, options.relay.endpoint);
  if (name == "relay_redact") return ReadBool(value, name, options.relay.redact);
  if (name == "allow_remote") return ReadBool(value, name, options.allow_remote);
  if (name == "tls_cert") return ReadText(value, name, options.http.tls_certificate);
  if (name == "tls_key") return ReadText(value, name, options.http.tls_key);
  if (name != "http") return BadField("unknown member: " + name.substr(0, kMaxTextBytes));
  std::string address;
  if (Status status = ReadText(value, name, address); !status.ok()) return status;
  return ParseHttpAddress(address, options.http);
}

}  // namespace

Status ReadConfig(std::string_view text, RouterOptions& options) {
  const auto json = ParseObject(text, kConfigDepth);
  if (!json.ok()) {
    return BadField(json.status().message() == "body: not JSON" ? "not JSON" : "must be an object");
  }
  for (const auto& [name, value] : json->items()) {
    if (Status status = ReadMember(name, value, options); !status.ok()) return status;
  }
  return Status();
}

Status ParseHttpAddress(const std::string& text, HttpOptions& http) {
  const size_t colon = text.rfind(':');
  int port = -1;
  if (colon != std::string::npos && colon > 0) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || stop != end) port = -1;
  }
  if (port < 0 || port > 65535) return BadField("http: expected ADDR:PORT, got '" + text + "'");
  http.address = text.substr(0, colon);
  http.port = port;
  return Status();
}

}  // namespace kvcast::router
