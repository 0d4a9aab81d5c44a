// KubernetesSource: EndpointSlices to follow, and the sources of their endpoints.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kvcast/core/status.h"
#include "router/service/discovery/source_template.h"

namespace kvcast::router {

// How to reach the API server. The defaults of the files are those of the service account of a pod.
struct KubernetesApi {
  // https://HOST[:PORT], or http:// with a loopback address; may end with a path. Empty: the
  // server of the pod's cluster.
  std::string url;
  // Read again for each request, because the token changes. Empty: no token.
  std::string token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
  // See HttpGet::ca_file.
  std::string ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
  // Has the namespace of the pod.
  std::string namespace_file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
};

struct KubernetesSource {
  std::string space;      // the namespace; empty: that of the pod
  std::string selector;   // selects EndpointSlices by their labels
  std::string port_name;  // see EndpointSlices
  SourceTemplate source_of;

  // The name of the list in the log and in metrics: [NAMESPACE/]SELECTOR[:PORT_NAME].
  std::string list() const;
};

// kInvalidArgument: `url` is not valid as KubernetesApi::url. The message is one line.
Status CheckApiUrl(const std::string& url);
// The address of the API server, without a final slash.
std::string UrlOf(const KubernetesApi& api);
// The URL of a list of EndpointSlices, without the parameters that differ between requests.
std::string SlicesUrl(const KubernetesApi& api, const std::string& space,
                      const std::string& selector);
// For a parameter of a URL: writes each byte as %XX, except letters, digits, "-", "." and "_".
std::string PercentEncode(const std::string& text);

}  // namespace kvcast::router
