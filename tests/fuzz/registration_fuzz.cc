// Fuzz target: the JSON of requests that change the router's state. The router writes an accepted
// source as JSON, and reads the same source from this JSON. For an accepted source of a client, the
// router connects only to endpoints in the networks for sources.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/stream/endpoint.h"
#include "router/service/api/indexer_requests.h"
#include "router/service/api/source_flag.h"
#include "router/service/api/source_json.h"
#include "router/service/discovery/endpoint_slices.h"
#include "router/service/ingest/event_feeds.h"
#include "router/service/ingest/http_fetch.h"
#include "router/service/ingest/load_rates.h"
#include "router/service/ingest/source_policy.h"
#include "router/service/json/json_fields.h"
#include "router/service/route/feedback.h"
#include "router/service/route/query.h"
#include "src/base/check.h"
#include "src/wire/utf8.h"
#include "tests/fuzz/fuzz_input.h"

namespace kvcast::router {
namespace {

constexpr int kSourceDepth = 5;

bool IsShort(const std::string& text) { return text.size() <= kMaxTextBytes; }

// The host to which libzmq or a poller connects.
std::string HostOf(const std::string& endpoint) {
  if (endpoint.starts_with("http://")) return ParseHttpUrl(endpoint).value().host;
  return endpoint.substr(6, endpoint.rfind(':') - 6);
}

void CheckClientEndpoint(const std::string& endpoint, const IpNetwork& network) {
  const auto address = ParseIpAddress(HostOf(endpoint));
  KV_CHECK(address && network.Contains(*address));
}

// Checks that without CURVE and without `insecure`, an endpoint is on this machine.
void CheckLoopback(const WorkerRegistration& source) {
  const Status status = CheckSource(source, SourcePolicy{}, SourceOrigin::kHttp);
  if (!status.ok() || source.insecure || IsFeedEndpoint(source.endpoint)) return;
  KV_CHECK(source.server_key.empty());
  for (const std::string& endpoint : {source.endpoint, source.replay_endpoint}) {
    if (endpoint.empty()) continue;
    const std::string host = HostOf(endpoint);
    const auto address = ParseIpAddress(host);
    KV_CHECK(host == "localhost" ||
             (address && (IpNetwork::Parse("127.0.0.0/8")->Contains(*address) ||
                          IpNetwork::Parse("::1")->Contains(*address))));
  }
}

void CheckPolicy(const WorkerRegistration& source) {
  CheckLoopback(source);
  const IpNetwork network = *IpNetwork::Parse("127.0.0.0/8");
  const SourcePolicy policy{.allow_remote = false, .has_keys = true, .networks = {network}};
  const Status status = CheckSource(source, policy, SourceOrigin::kHttp);
  fuzz::CheckReason(status);
  if (!status.ok()) return;
  KV_CHECK(source.server_key.empty() || !source.insecure);
  if (source.endpoint != kPushEndpoint && !source.bind) {
    CheckClientEndpoint(source.endpoint, network);
  }
  if (!source.replay_endpoint.empty()) CheckClientEndpoint(source.replay_endpoint, network);
  if (!IsFeedEndpoint(source.endpoint)) KV_CHECK(source.endpoint.starts_with("tcp://"));
}

void CheckBounds(const WorkerRegistration& source) {
  KV_CHECK(!source.worker.name.empty() && !source.endpoint.empty());
  KV_CHECK(IsShort(source.endpoint) && IsShort(source.replay_endpoint) && IsShort(source.topic));
  KV_CHECK(IsShort(source.model) && IsShort(source.instance) && IsShort(source.routing_group));
  KV_CHECK(std::ssize(source.worker.groups) <= kMaxGroups);
  KV_CHECK(source.data_parallel_rank >= 0 && source.data_parallel_size >= 1);
  KV_CHECK(source.gpu_blocks >= 0 && source.max_residencies >= 0 && source.poll_ms >= 1);
}

// True: the source would be the same without this member, because `value` is the default value or
// the source's format does not use the member.
bool IsDefault(const std::string& name, const Json& value, const Json& source) {
  const std::set<std::string> trtllm_members = {"largest_is_window", "partial_reuse", "poll_ms"};
  if (source.value("format", "") != "trtllm" && trtllm_members.contains(name)) return true;
  if (source.value("format", "") != "mooncake" && name == "tenant_id") return true;
  if (name == "prefix_cacheable" || name == "partial_reuse") return value == true;
  if (name == "data_parallel_size" || name == "blocks_per_chunk") return value == 1;
  if (name == "ranks_on") return value == "ports";
  if (name == "poll_ms") return value == WorkerRegistration().poll_ms;
  return value == false || value == 0 || value == "" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return text;
}

// Checks that the written source has the member, unless the member has the default value.
void CheckMember(const std::string& name, const Json& value, const Json& written) {
  if (!written.contains(name)) return KV_CHECK(IsDefault(name, value, written));
  const Json& kept = written[name];
  if (name == "none_hash" || name == "candidate_none_hashes") {
    return KV_CHECK(kept.dump() == Lower(value.dump()));  // hex digits
  }
  if (name != "groups") return KV_CHECK(kept == value);
  KV_CHECK(kept.size() == value.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    for (const auto& [member, field] : value[i].items()) CheckMember(member, field, kept[i]);
  }
}

void CheckSourceJson(const Json& object) {
  const Result<WorkerRegistration> source = SourceFromJson(object);
  fuzz::CheckReason(source.status());
  if (!source.ok()) return;
  KV_CHECK(IsShort(source->worker.name));
  CheckBounds(*source);
  CheckPolicy(*source);
  const Json written = SourceToJson(*source);
  const Result<WorkerRegistration> again = SourceFromJson(Json::parse(Dump(written)));
  KV_CHECK(again.ok());
  KV_CHECK(SourceToJson(*again) == written);
  for (const auto& [name, value] : object.items()) CheckMember(name, value, written);
}

void CheckRegistration(std::string_view body) {
  const Result<WorkerRegistration> source = ParseRegistration(body);
  fuzz::CheckReason(source.status());
  if (!source.ok()) return;
  CheckBounds(*source);
  CheckPolicy(*source);
  KV_CHECK(source->block_size >= 1 && !source->instance.empty() && !source->model.empty());
  // The name is GROUP/MODEL/INSTANCE/RANK. Of these parts, only the model may contain slashes.
  const std::string& name = source->worker.name;
  const size_t rank = name.rfind('/');
  const size_t instance = name.rfind('/', rank - 1);
  const size_t group = name.find('/');
  KV_CHECK(group < instance && instance < rank);
  KV_CHECK(name.substr(group + 1, instance - group - 1) == source->model);
  KV_CHECK(name.substr(rank + 1) == std::to_string(source->data_parallel_rank));
  Json selection = {{"instance_id", source->instance},
                    {"model_name", source->model},
                    {"routing_group", source->routing_group},
                    {"dp_rank", source->data_parallel_rank}};
  const auto selected = ParseWorkerSelection(selection.dump());
  KV_CHECK(selected.ok() && selected->instance == source->instance);
}

void CheckReports(std::string_view body) {
  const Result<Feedback> feedback = ParseFeedback(body);
  fuzz::CheckReason(feedback.status());
  if (feedback.ok()) {
    KV_CHECK(feedback->reused_tokens >= 0 && feedback->reused_tokens <= kMaxPromptTokens);
    KV_CHECK(feedback->queued_requests >= 0 && feedback->queued_requests <= kMaxQueuedRequests);
    KV_CHECK(IsShort(feedback->request_id) && IsShort(feedback->worker));
  }
  const Result<LoadRateReport> report = ParseLoadRateReport(body);
  fuzz::CheckReason(report.status());
  if (!report.ok()) return;
  KV_CHECK(!report->loads.empty() && report->loads.size() <= kMaxLoadsAReport);
  for (const LoadMeasurement& load : report->loads) {
    KV_CHECK(std::isfinite(load.bytes) && load.bytes >= 0);
    KV_CHECK(std::isfinite(load.seconds) && load.seconds >= 0);
  }
}

void CheckFlag(const std::string& text) {
  const Result<WorkerRegistration> source = SourceFromFlag(text);
  if (source.ok() && wire::IsUtf8(text)) CheckSourceJson(SourceToJson(*source));
}

// Lists of sources: a source file, and a name to look up.
void CheckLists(std::string_view body) {
  const auto sources = SourcesFromText(body);
  fuzz::CheckReason(sources.status());
  if (sources.ok()) {
    for (const WorkerRegistration& source : *sources) CheckBounds(source);
  }
  const Result<Json> json = ParseObject(body, kSourceDepth + 1);
  if (!json.ok()) return;
  const auto kubernetes = KubernetesSourceFromJson(*json);
  fuzz::CheckReason(kubernetes.status());
  if (kubernetes.ok()) KV_CHECK(!kubernetes->selector.empty());
  const Result<DnsSource> dns = DnsSourceFromJson(*json);
  fuzz::CheckReason(dns.status());
  if (!dns.ok()) return;
  KV_CHECK(!dns->lookup.empty() && IsShort(dns->lookup));
  for (const SourceTarget& target : {SourceTarget{"fd00::1", 0}, SourceTarget{"a.b", 65535}}) {
    const auto source = dns->source_of(target);
    fuzz::CheckReason(source.status());
    if (source.ok()) CheckBounds(*source);
  }
}

// An answer of an API server. A malformed answer changes nothing.
void CheckSlices(std::string_view body) {
  EndpointSlices slices("");
  slices.BeginList();
  const Status page = slices.ReadPage(body);
  fuzz::CheckReason(page);
  KV_CHECK(page.ok() && slices.next_page().empty() ? !slices.version().empty()
                                                   : slices.Targets().empty());
  const auto event = slices.ReadEvent(body);
  fuzz::CheckReason(event.status());
  for (const SourceTarget& target : slices.Targets()) {
    KV_CHECK(!target.host.empty() && IsShort(target.host));
    KV_CHECK(target.port >= 0 && target.port <= 65535);
  }
}

void CheckBody(std::string_view body) {
  if (const Result<Json> json = ParseObject(body, kSourceDepth); json.ok()) {
    CheckSourceJson(*json);
  }
  CheckRegistration(body);
  CheckReports(body);
  CheckLists(body);
  CheckSlices(body);
  fuzz::CheckReason(ParseWorkerSelection(body).status());
}

}  // namespace
}  // namespace kvcast::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = kvcast::fuzz::TextOf({data, size});
  if (text.starts_with("--source=")) {
    kvcast::router::CheckFlag(std::string(text.substr(9)));
  } else {
    kvcast::router::CheckBody(text);
  }
  return 0;
}
