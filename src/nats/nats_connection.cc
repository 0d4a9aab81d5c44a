// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcast/stream/endpoint.h"
#include "src/base/clock.h"
#include "src/base/secret_file.h"
#include "src/nats/nats_link.h"

namespace kvcast::nats {
namespace {

constexpr int64_t kRetryMs = 500;
constexpr int64_t kConnectTimeoutMs = 2000;
// If a server does not answer two pings, the connection is closed.
constexpr int64_t kPingMs = 2000;
constexpr int kMaxPings = 2;
constexpr int64_t kFlushMs = 1000;

Status BadOption(const std::string& message) { return {StatusCode::kInvalidArgument, message}; }

std::string_view HostAndPort(std::string_view url) { return url.substr(url.find("//") + 2); }

std::string HostOf(std::string_view url) {
  const std::string_view address = HostAndPort(url);
  const std::string_view host = address.substr(0, address.rfind(':'));
  const bool quoted = host.starts_with('[') && host.ends_with(']');
  return std::string(quoted ? host.substr(1, host.size() - 2) : host);
}

// A password in a URL would be visible in the list of processes.
Status CheckUrl(const std::string& url, const NatsOptions& options) {
  const bool tls = url.starts_with("tls://");
  if (!tls && !url.starts_with("nats://"))
    return BadOption("NATS: " + url + " is not nats://HOST:PORT or tls://HOST:PORT");
  if (url.find('@') != std::string::npos)
    return BadOption("NATS: a URL may have no user and no password; use a file");
  const auto endpoint = ParseEndpoint("tcp://" + std::string(HostAndPort(url)));
  if (!endpoint.ok())
    return BadOption("NATS: " + url + " is not nats://HOST:PORT or tls://HOST:PORT");
  const bool local = endpoint->is_local() || HostOf(url) == "localhost";
  if (tls || !options.ca_file.empty() || local || options.insecure) return Status();
  return BadOption("NATS: " + url +
                   " is beyond loopback: use tls://, or allow connections without TLS");
}

Result<std::vector<std::string>> UrlsOf(const NatsOptions& options) {
  std::vector<std::string> urls;
  std::string_view remaining = options.url;
  while (true) {
    const size_t comma = remaining.find(',');
    urls.emplace_back(remaining.substr(0, comma));
    if (Status status = CheckUrl(urls.back(), options); !status.ok()) return status;
    if (comma == std::string_view::npos) return urls;
    remaining.remove_prefix(comma + 1);
  }
}

// Reads the first lines of a file with a secret.
Status ReadLines(const std::string& path, const std::vector<std::string*>& lines) {
  auto text = ReadSecretFile(path);
  if (!text.ok()) return BadOption("NATS: " + path + ": " + text.status().message());
  std::istringstream file(std::move(text).value());
  for (std::string* line : lines) {
    if (!std::getline(file, *line) || line->empty())
      return BadOption("NATS: " + path + " does not have " + std::to_string(lines.size()) +
                       " line(s), or a line is empty");
  }
  return Status();
}

Status CheckReadable(const std::string& path) {
  if (std::ifstream(path).peek() != std::ifstream::traits_type::eof()) return Status();
  return BadOption("NATS: " + path + " cannot be read, or is empty");
}

}  // namespace

std::string ErrorText(natsStatus status) {
  natsStatus last = NATS_OK;
  const char* const detail = nats_GetLastError(&last);
  std::string text = natsStatus_GetText(status);
  if (last == status && detail != nullptr && *detail != 0) text += std::string(": ") + detail;
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// The close waits for the thread of the connection.
NatsLink::~NatsLink() {
  natsConnection_Close(connection_);
  for (natsSubscription* const subscription : ended_) natsSubscription_Destroy(subscription);
  natsConnection_Destroy(connection_);
}

// Before libnats 3.5.1, the thread of the connection may still use a subscription that is destroyed
// while the thread handles a message for it (nats.c, issue 637). After the answer to a ping, the
// thread handles no message that arrived before the end of the subscription.
void NatsLink::End(natsSubscription* subscription) {
  (void)natsSubscription_Unsubscribe(subscription);
  if (is_up() && natsConnection_FlushTimeout(connection_, kFlushMs) == NATS_OK) {
    return natsSubscription_Destroy(subscription);
  }
  const MutexLock lock(mutex_);
  ended_.push_back(subscription);
}

Result<std::shared_ptr<NatsConnection>> NatsConnection::Create(const NatsOptions& options) {
  const int files =
      !options.credentials_file.empty() + !options.user_file.empty() + !options.token_file.empty();
  if (files > 1) return BadOption("NATS: more than one file with credentials");
  auto urls = UrlsOf(options);
  if (!urls.ok()) return urls.status();
  NatsConnectionImpl::Secrets secrets;
  Status read;
  if (!options.user_file.empty())
    read = ReadLines(options.user_file, {&secrets.user, &secrets.password});
  if (!options.token_file.empty()) read = ReadLines(options.token_file, {&secrets.token});
  std::string unused;
  if (read.ok() && !options.credentials_file.empty())
    read = ReadLines(options.credentials_file, {&unused});
  if (read.ok() && !options.ca_file.empty()) read = CheckReadable(options.ca_file);
  if (!read.ok()) return read;
  return std::shared_ptr<NatsConnection>(
      std::make_shared<NatsConnectionImpl>(options, std::move(urls).value(), std::move(secrets)));
}

// libnats must not reconnect: a connection that has ended is replaced by a new connection. So no
// message of an earlier attempt is sent later, and no subscription outlives its connection.
natsStatus NatsConnectionImpl::Configure(natsOptions* options, const std::string& url) const {
  const auto tls = [&]() -> natsStatus {
    if (!url.starts_with("tls://") && options_.ca_file.empty()) return NATS_OK;
    natsStatus s = natsOptions_SetSecure(options, true);
    if (s == NATS_OK && !options_.ca_file.empty())
      s = natsOptions_LoadCATrustedCertificates(options, options_.ca_file.c_str());
    return s == NATS_OK ? natsOptions_SetExpectedHostname(options, HostOf(url).c_str()) : s;
  };
  const auto credentials = [&]() -> natsStatus {
    if (!options_.credentials_file.empty())
      return natsOptions_SetUserCredentialsFromFiles(options, options_.credentials_file.c_str(),
                                                     nullptr);
    if (!secrets_.user.empty())
      return natsOptions_SetUserInfo(options, secrets_.user.c_str(), secrets_.password.c_str());
    if (!secrets_.token.empty()) return natsOptions_SetToken(options, secrets_.token.c_str());
    return NATS_OK;
  };
  natsStatus s = natsOptions_SetURL(options, ("nats://" + std::string(HostAndPort(url))).c_str());
  if (s == NATS_OK) s = natsOptions_SetName(options, "kvcast");
  if (s == NATS_OK) s = natsOptions_SetAllowReconnect(options, false);
  if (s == NATS_OK) s = natsOptions_SetTimeout(options, kConnectTimeoutMs);
  if (s == NATS_OK) s = natsOptions_SetPingInterval(options, kPingMs);
  if (s == NATS_OK) s = natsOptions_SetMaxPingsOut(options, kMaxPings);
  if (s == NATS_OK) s = tls();
  if (s == NATS_OK) s = credentials();
  return s;
}

Result<std::shared_ptr<NatsLink>> NatsConnectionImpl::Connect(const std::string& url) const {
  natsOptions* made = nullptr;
  natsStatus s = natsOptions_Create(&made);
  const Options options(made);
  if (s == NATS_OK) s = Configure(made, url);
  natsConnection* connection = nullptr;
  if (s == NATS_OK) s = natsConnection_Connect(&connection, made);
  if (s != NATS_OK) return Status(StatusCode::kUnavailable, url + ": " + ErrorText(s));
  return std::make_shared<NatsLink>(connection);
}

Result<std::shared_ptr<NatsLink>> NatsConnectionImpl::Get() {
  const MutexLock lock(mutex_);
  if (link_ != nullptr && link_->is_up()) return link_;
  if (SteadyMs() < next_ms_) return error_;
  for (const std::string& url : urls_) {
    auto link = Connect(url);
    error_ = link.status();
    next_ms_ = SteadyMs() + kRetryMs;
    if (!link.ok()) continue;
    link_ = std::move(link).value();
    error_ = Status(StatusCode::kUnavailable, url + ": the connection has ended");
    return link_;
  }
  return error_;
}

}  // namespace kvcast::nats
