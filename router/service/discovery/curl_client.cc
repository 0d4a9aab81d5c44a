// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/curl_client.h"

#include <curl/curl.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace kvcast::router {
namespace {

struct FreeHeaders {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, FreeHeaders>;

// The answer in progress.
struct Answer {
  const HttpGet& get;
  int status = 0;
};

size_t TakeHeader(char* line, size_t size, size_t count, void* user) {
  auto& answer = *static_cast<Answer*>(user);
  const std::string_view text(line, size * count);
  constexpr std::string_view kVersion = "HTTP/1.1 ";
  if (text.starts_with("HTTP/") && text.size() > kVersion.size()) {
    answer.status = std::atoi(std::string(text.substr(kVersion.size(), 3)).c_str());
  }
  constexpr int kFinal = 200;  // a lower status has no body, and another answer follows
  const bool ends = text == "\r\n" && answer.status >= kFinal;
  return !ends || answer.get.on_bytes(answer.status, {}) ? text.size() : 0;
}

size_t TakeBody(char* bytes, size_t size, size_t count, void* user) {
  auto& answer = *static_cast<Answer*>(user);
  const std::string_view text(bytes, size * count);
  return answer.get.on_bytes(answer.status, text) ? text.size() : 0;
}

Headers HeadersOf(const HttpGet& get) {
  Headers headers(curl_slist_append(nullptr, "Accept: application/json"));
  if (!get.token.empty() && headers != nullptr) {
    curl_slist_append(headers.get(), ("Authorization: Bearer " + get.token).c_str());
  }
  return headers;
}

class CurlClient {
 public:
  CurlClient() : multi_(curl_multi_init()), easy_(curl_easy_init()) {}
  CurlClient(const CurlClient&) = delete;
  CurlClient& operator=(const CurlClient&) = delete;
  ~CurlClient() {
    curl_easy_cleanup(easy_);
    curl_multi_cleanup(multi_);
  }

  HttpOutcome Get(const HttpGet& get) {
    if (multi_ == nullptr || easy_ == nullptr) return {0, "libcurl cannot be used"};
    Answer answer{get};
    const Headers headers = HeadersOf(get);
    std::array<char, CURL_ERROR_SIZE> error{};
    SetOptions(get, answer, headers.get(), error.data());
    curl_multi_add_handle(multi_, easy_);
    const CURLcode code = Perform();
    curl_multi_remove_handle(multi_, easy_);
    if (code == CURLE_OK) return {answer.status, ""};
    return {answer.status, error[0] != 0 ? error.data() : curl_easy_strerror(code)};
  }

  void Stop() {
    stopping_ = true;
    if (multi_ != nullptr) curl_multi_wakeup(multi_);
  }

 private:
  void SetOptions(const HttpGet& get, Answer& answer, curl_slist* headers, char* error) {
    curl_easy_reset(easy_);
    curl_easy_setopt(easy_, CURLOPT_URL, get.url.c_str());
    curl_easy_setopt(easy_, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy_, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    curl_easy_setopt(easy_, CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});
    curl_easy_setopt(easy_, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy_, CURLOPT_NETRC, long{CURL_NETRC_IGNORED});
    if (!get.ca_file.empty()) curl_easy_setopt(easy_, CURLOPT_CAINFO, get.ca_file.c_str());
    curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy_, CURLOPT_TIMEOUT_MS, static_cast<long>(get.limit_ms));
    curl_easy_setopt(easy_, CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
    curl_easy_setopt(easy_, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy_, CURLOPT_TCP_KEEPIDLE, kKeepAliveSeconds);
    curl_easy_setopt(easy_, CURLOPT_TCP_KEEPINTVL, kKeepAliveSeconds);
    curl_easy_setopt(easy_, CURLOPT_NOSIGNAL, 1L);
    // The end of a request does not wait for a lookup of the server's name.
    curl_easy_setopt(easy_, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(easy_, CURLOPT_HEADERFUNCTION, &TakeHeader);
    curl_easy_setopt(easy_, CURLOPT_HEADERDATA, &answer);
    curl_easy_setopt(easy_, CURLOPT_WRITEFUNCTION, &TakeBody);
    curl_easy_setopt(easy_, CURLOPT_WRITEDATA, &answer);
  }

  CURLcode Perform() {
    constexpr int kPollMs = 1000;  // Stop ends a poll at once
    for (int running = 1; running > 0;) {
      if (stopping_) return CURLE_ABORTED_BY_CALLBACK;
      if (curl_multi_perform(multi_, &running) != CURLM_OK) return CURLE_FAILED_INIT;
      if (running > 0) curl_multi_poll(multi_, nullptr, 0, kPollMs, nullptr);
    }
    int left = 0;
    const CURLMsg* const message = curl_multi_info_read(multi_, &left);
    return message == nullptr ? CURLE_FAILED_INIT : message->data.result;
  }

  static constexpr long kConnectMs = 10000;
  static constexpr long kKeepAliveSeconds = 15;

  CURLM* const multi_;
  CURL* const easy_;
  std::atomic<bool> stopping_{false};
};

}  // namespace

HttpClient MakeCurlClient() {
  static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);
  (void)initialized;  // after a failure, curl_easy_init returns nullptr
  const auto client = std::make_shared<CurlClient>();
  return {.get = [client](const HttpGet& get) { return client->Get(get); },
          .stop = [client] { client->Stop(); }};
}

}  // namespace kvcast::router
