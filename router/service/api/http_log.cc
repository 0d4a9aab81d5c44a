// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/http_log.h"

#include <string>

namespace kvcast::router {
namespace {

constexpr int kMinFailureStatus = 500;
constexpr std::string_view kReadinessRoute = "/readyz";  // 503 is one of its normal answers

std::string UrlOf(const HttpOptions& options, int port) {
  if (!options.unix_path.empty()) return "unix:" + options.unix_path;
  const bool ipv6 = options.address.find(':') != std::string::npos;
  return std::string(options.tls_certificate.empty() ? "http://" : "https://") +
         (ipv6 ? "[" + options.address + "]" : options.address) + ":" + std::to_string(port);
}

}  // namespace

void LogAnswer(Logger& log, const HttpAnswer& answer) {
  const LogEvent* event = &log_events::kHttpRequest;
  if (!answer.refused_for.empty()) {
    event = &log_events::kHttpRefused;
  } else if (answer.status >= kMinFailureStatus && answer.route != kReadinessRoute) {
    event = &log_events::kHttpFailed;
  }
  if (!log.Enabled(*event)) return;
  log.Write(*event, answer.peer,
            {{"status", answer.status},
             {"method", answer.method},
             {"route", answer.route},
             {"reason", answer.refused_for},
             {"traceparent", answer.traceparent}});
}

void LogListening(Logger& log, std::string_view listener, const HttpOptions& options, int port) {
  log.Write(log_events::kHttpListening, "",
            {{"listener", listener},
             {"address", UrlOf(options, port)},
             {"encrypted", !options.tls_certificate.empty()},
             {"tokens", !options.token_file.empty()}});
}

}  // namespace kvcast::router
