// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/kubernetes_source.h"

#include <cctype>
#include <cstdlib>
#include <string_view>

#include "router/service/ingest/http_fetch.h"
#include "src/http/loopback.h"

namespace kvcast::router {
namespace {

constexpr std::string_view kPlain = "http://";
constexpr std::string_view kTls = "https://";

}  // namespace

std::string KubernetesSource::list() const {
  return (space.empty() ? "" : space + "/") + selector + (port_name.empty() ? "" : ":" + port_name);
}

Status CheckApiUrl(const std::string& url) {
  const auto wrong = [&url](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, what + ", got '" + url + "'");
  };
  const bool tls = url.starts_with(kTls);
  const auto parsed =
      ParseHttpUrl(tls ? std::string(kPlain) + url.substr(kTls.size()) : std::string(url));
  if (!parsed.ok() || url.find('?') != std::string::npos) {
    return wrong("expected https://HOST[:PORT]");
  }
  // Without TLS, a token and the addresses of engines would be readable and could be forged.
  if (!tls && !IsLoopbackAddress(parsed->host)) {
    return wrong("http:// is allowed for loopback addresses only");
  }
  return Status();
}

std::string UrlOf(const KubernetesApi& api) {
  std::string url = api.url;
  if (url.empty()) {
    const char* const host = std::getenv("KUBERNETES_SERVICE_HOST");
    const char* const port = std::getenv("KUBERNETES_SERVICE_PORT");
    url = "https://kubernetes.default.svc";
    if (host != nullptr && port != nullptr) {
      const bool is_v6 = std::string_view(host).find(':') != std::string_view::npos;
      url = std::string(kTls) + (is_v6 ? "[" + std::string(host) + "]" : host) + ":" + port;
    }
  }
  if (url.ends_with('/')) url.pop_back();
  return url;
}

std::string SlicesUrl(const KubernetesApi& api, const std::string& space,
                      const std::string& selector) {
  return UrlOf(api) + "/apis/discovery.k8s.io/v1/namespaces/" + PercentEncode(space) +
         "/endpointslices?labelSelector=" + PercentEncode(selector);
}

std::string PercentEncode(const std::string& text) {
  static constexpr char kHexDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char byte : text) {
    const auto value = static_cast<unsigned char>(byte);
    if (value < 128 && (std::isalnum(value) || byte == '-' || byte == '.' || byte == '_')) {
      encoded += byte;
    } else {
      encoded += {'%', kHexDigits[value >> 4], kHexDigits[value & 15]};
    }
  }
  return encoded;
}

}  // namespace kvcast::router
