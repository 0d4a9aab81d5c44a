// EndpointSlices: the endpoints of Kubernetes' EndpointSlices (API group discovery.k8s.io/v1), read
// from the answers of the API server to a list and to a watch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/discovery/source_template.h"

namespace kvcast::router {

// An endpoint that serves requests.
struct SliceEndpoint {
  SourceTarget target;
  bool is_v4 = false;
  std::string pod;  // unique id of the object behind the endpoint; empty: unknown
};

struct EndpointSlice {
  std::vector<SliceEndpoint> endpoints;
  // Number of endpoints that are left out because the slice has no port of the wanted name.
  size_t without_port = 0;
};

// Thread-compatible. An answer that is malformed or over a bound changes nothing.
class EndpointSlices {
 public:
  static constexpr size_t kPageSlices = 20;                  // slices of a page of a list
  static constexpr size_t kMaxPageBytes = size_t{32} << 20;  // of a page of a list
  static constexpr size_t kMaxEventBytes = size_t{4} << 20;  // of an event of a watch
  static constexpr size_t kMaxSlices = 4096;
  static constexpr size_t kMaxEndpoints = 65536;  // of all slices

  // `port_name`: the name of the port that replaces {port} (see FillIn). Empty: the TCP port of the
  // slice. If the slice has several such ports, or if `port_name` is empty and the slice has no TCP
  // port, {port} is 0.
  explicit EndpointSlices(std::string port_name) : port_name_(std::move(port_name)) {}

  // Starts a list. The slices stay until the last page of the list was read.
  void BeginList();
  // Reads the next page of the list. After the last page, the slices of all pages replace the
  // previous slices.
  Status ReadPage(std::string_view body);
  // The token of the next page; empty: the list is complete.
  const std::string& next_page() const { return next_page_; }

  enum class Change : uint8_t {
    kNone,     // a bookmark
    kSlices,   // the slices changed
    kExpired,  // the server no longer has the changes since version(), so a new list is needed
  };
  // Reads one event of a watch. kUnavailable: the server reports an error other than kExpired.
  Result<Change> ReadEvent(std::string_view line);
  // The version of the slices, where the next watch begins.
  const std::string& version() const { return version_; }

  // The targets of all slices, sorted and unique. If a pod has IPv4 endpoints, its other endpoints
  // are not targets, because the slices of all address families list the same pods.
  std::vector<SourceTarget> Targets() const;
  // True: no endpoint has a port of the wanted name, and at least one endpoint is left out for this
  // reason.
  bool lacks_port() const;

 private:
  using Slices = std::map<std::string, EndpointSlice, std::less<>>;  // by name

  const std::string port_name_;
  Slices slices_;
  size_t endpoints_ = 0;  // of slices_
  std::string version_;
  Slices listed_;  // the slices of the pages that were read so far
  size_t listed_endpoints_ = 0;
  std::string next_page_;
};

}  // namespace kvcast::router
