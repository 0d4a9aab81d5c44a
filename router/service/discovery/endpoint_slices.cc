// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/endpoint_slices.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "router/service/json/bounded_json.h"
#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

// The used members are at most this deep. Deeper values, such as those in managedFields, are left
// out.
constexpr size_t kPageDepth = 7;
constexpr size_t kEventDepth = 6;
constexpr size_t kMaxSliceValues = size_t{1} << 20;  // of a page or an event
constexpr size_t kMaxVersionBytes = 4096;            // of a version, and of the token of a page
constexpr int64_t kGone = 410;                       // HTTP status "Gone"

Status Damaged(const std::string& what) { return {StatusCode::kMalformed, what}; }

// nullptr: `json` is not an object, or has no such member, or the member is null.
const Json* Member(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

// Empty: there is no such member, or it is not a text.
std::string TextOf(const Json* json, const char* name) {
  const Json* const member = json == nullptr ? nullptr : Member(*json, name);
  return member != nullptr && member->is_string() ? member->get<std::string>() : "";
}

// nullopt: the member is not a boolean. An absent member has the value `absent`.
std::optional<bool> Flag(const Json* json, const char* name, bool absent) {
  const Json* const member = json == nullptr ? nullptr : Member(*json, name);
  if (member == nullptr) return absent;
  if (!member->is_boolean()) return std::nullopt;
  return member->get<bool>();
}

// The elements of an array. nullopt: the member is not an array. An absent member has no elements.
std::optional<std::vector<const Json*>> Elements(const Json& json, const char* name) {
  std::vector<const Json*> elements;
  const Json* const member = Member(json, name);
  if (member == nullptr) return elements;
  if (!member->is_array()) return std::nullopt;
  for (const Json& element : *member) elements.push_back(&element);
  return elements;
}

std::optional<std::string> HostName(std::string name) {
  constexpr size_t kMaxNameBytes = 253;
  if (name.ends_with('.')) name.pop_back();
  const auto valid = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '.'; };
  if (name.empty() || name.size() > kMaxNameBytes || !std::ranges::all_of(name, valid)) {
    return std::nullopt;
  }
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

// The address in its usual form. nullopt: it is not an address of this type.
std::optional<std::string> HostOf(const std::string& address, const std::string& type) {
  if (type == "FQDN") return HostName(address);
  const int family = type == "IPv4" ? AF_INET : AF_INET6;
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  char text[INET6_ADDRSTRLEN] = {};
  if (inet_pton(family, address.c_str(), bytes.data()) != 1) return std::nullopt;
  inet_ntop(family, bytes.data(), text, sizeof(text));
  return text;
}

// The port that replaces {port}. 0: there is none, or several. nullopt: malformed. Sets `has_port`
// to true if a port has the wanted name.
std::optional<int> PortOf(const Json& slice, const std::string& wanted, bool& has_port) {
  constexpr int64_t kMaxPort = 65535;
  const auto ports = Elements(slice, "ports");
  if (!ports) return std::nullopt;
  std::vector<int> found;
  for (const Json* port : *ports) {
    const std::string protocol = TextOf(port, "protocol");
    if (!protocol.empty() && protocol != "TCP") continue;
    if (!wanted.empty() && TextOf(port, "name") != wanted) continue;
    has_port = true;
    const Json* const number = Member(*port, "port");
    const auto value = number == nullptr ? std::optional<int64_t>(0) : Int64Of(*number);
    if (!value || *value < 0 || *value > kMaxPort) return std::nullopt;
    found.push_back(static_cast<int>(*value));
  }
  return found.size() == 1 ? found.front() : 0;
}

enum class Serving : uint8_t { kYes, kNo, kDamaged };

// An endpoint without the condition "ready" counts as ready. An endpoint without the condition
// "terminating" counts as not terminating.
Serving ServingOf(const Json& endpoint) {
  const Json* const conditions = Member(endpoint, "conditions");
  const auto ready = Flag(conditions, "ready", true);
  const auto terminating = Flag(conditions, "terminating", false);
  if (!ready || !terminating) return Serving::kDamaged;
  return *ready && !*terminating ? Serving::kYes : Serving::kNo;
}

Result<EndpointSlice> SliceOf(const Json& object, const std::string& port_name) {
  const std::string type = TextOf(&object, "addressType");
  if (type != "IPv4" && type != "IPv6" && type != "FQDN") return Damaged("addressType: unknown");
  bool has_port = port_name.empty();
  const auto port = PortOf(object, port_name, has_port);
  if (!port) return Damaged("ports: malformed");
  const auto endpoints = Elements(object, "endpoints");
  if (!endpoints) return Damaged("endpoints: must be an array");
  EndpointSlice slice;
  for (const Json* endpoint : *endpoints) {
    const Serving serving = ServingOf(*endpoint);
    if (serving == Serving::kDamaged) return Damaged("conditions: malformed");
    const auto addresses = Elements(*endpoint, "addresses");
    // Further addresses of an endpoint have no defined meaning.
    const bool has_text = addresses && !addresses->empty() && addresses->front()->is_string();
    const auto host = has_text ? HostOf(addresses->front()->get<std::string>(), type)
                               : std::optional<std::string>();
    if (!host) return Damaged("addresses: not an address of type " + type);
    if (serving == Serving::kNo) continue;
    if (!has_port) {
      ++slice.without_port;
      continue;
    }
    slice.endpoints.push_back(
        {{*host, *port}, type == "IPv4", TextOf(Member(*endpoint, "targetRef"), "uid")});
  }
  return slice;
}

// Empty: the object has no usable version.
std::string VersionOf(const Json& object) {
  std::string version = TextOf(Member(object, "metadata"), "resourceVersion");
  return version.size() <= kMaxVersionBytes ? version : "";
}

std::string SliceName(const Json& object) { return TextOf(Member(object, "metadata"), "name"); }

}  // namespace

void EndpointSlices::BeginList() {
  listed_.clear();
  listed_endpoints_ = 0;
  next_page_.clear();
}

Status EndpointSlices::ReadPage(std::string_view body) {
  const auto json = ReadJson(body, {.max_depth = kPageDepth, .max_values = kMaxSliceValues});
  if (!json.ok()) return Damaged("the list is not JSON, or is too long");
  const std::string version = VersionOf(*json);
  const auto items = Elements(*json, "items");
  if (TextOf(&*json, "kind") != "EndpointSliceList" || version.empty() || !items) {
    return Damaged("not a list of EndpointSlices");
  }
  for (const Json* item : *items) {
    auto slice = SliceOf(*item, port_name_);
    if (!slice.ok()) return slice.status();
    listed_endpoints_ += slice->endpoints.size();
    const std::string name = SliceName(*item);
    if (name.empty()) return Damaged("an EndpointSlice has no name");
    listed_.insert_or_assign(name, std::move(slice).value());
    if (listed_.size() > kMaxSlices || listed_endpoints_ > kMaxEndpoints) {
      return {StatusCode::kLimit, "too many endpoints"};
    }
  }
  next_page_ = TextOf(Member(*json, "metadata"), "continue");
  if (next_page_.size() > kMaxVersionBytes) return Damaged("continue: too long");
  if (!next_page_.empty()) return Status();
  slices_ = std::move(listed_);
  endpoints_ = listed_endpoints_;
  version_ = version;
  BeginList();
  return Status();
}

Result<EndpointSlices::Change> EndpointSlices::ReadEvent(std::string_view line) {
  const auto json = ReadJson(line, {.max_depth = kEventDepth, .max_values = kMaxSliceValues});
  if (!json.ok()) return Damaged("the event is not JSON, or is too long");
  const std::string type = TextOf(&*json, "type");
  const Json* const object = Member(*json, "object");
  if (object == nullptr) return Damaged("the event has no object");
  if (type == "ERROR") {
    const Json* const code = Member(*object, "code");
    if (code != nullptr && Int64Of(*code) == kGone) return Change::kExpired;
    return Status(StatusCode::kUnavailable,
                  "the watch ended: " + TextOf(object, "message").substr(0, kMaxTextBytes));
  }
  const std::string version = VersionOf(*object);
  if (version.empty()) return Damaged("the event has no version");
  if (type == "BOOKMARK") {
    version_ = version;
    return Change::kNone;
  }
  const std::string name = SliceName(*object);
  if (name.empty()) return Damaged("an EndpointSlice has no name");
  const auto known = slices_.find(name);
  const size_t before = known == slices_.end() ? 0 : known->second.endpoints.size();
  if (type == "DELETED") {
    slices_.erase(name);
    endpoints_ -= before;
  } else if (type == "ADDED" || type == "MODIFIED") {
    auto slice = SliceOf(*object, port_name_);
    if (!slice.ok()) return slice.status();
    const size_t after = endpoints_ - before + slice->endpoints.size();
    if (after > kMaxEndpoints || (known == slices_.end() && slices_.size() == kMaxSlices)) {
      return Status(StatusCode::kLimit, "too many endpoints");
    }
    slices_.insert_or_assign(name, std::move(slice).value());
    endpoints_ = after;
  } else {
    return Damaged("the event has an unknown type");
  }
  version_ = version;
  return Change::kSlices;
}

std::vector<SourceTarget> EndpointSlices::Targets() const {
  std::set<std::string_view> v4_pods;
  for (const auto& [name, slice] : slices_) {
    for (const SliceEndpoint& endpoint : slice.endpoints) {
      if (endpoint.is_v4 && !endpoint.pod.empty()) v4_pods.insert(endpoint.pod);
    }
  }
  std::set<SourceTarget> targets;
  for (const auto& [name, slice] : slices_) {
    for (const SliceEndpoint& endpoint : slice.endpoints) {
      if (endpoint.is_v4 || !v4_pods.contains(endpoint.pod)) targets.insert(endpoint.target);
    }
  }
  return {targets.begin(), targets.end()};
}

bool EndpointSlices::lacks_port() const {
  return endpoints_ == 0 && std::ranges::any_of(slices_, [](const auto& entry) {
           return entry.second.without_port > 0;
         });
}

}  // namespace kvcast::router
