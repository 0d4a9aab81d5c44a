// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/http_fetch.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "src/base/clock.h"
#include "src/base/descriptor.h"

namespace kvcast::router {
namespace {

constexpr size_t kHeadMax = size_t{64} << 10;
constexpr size_t kChunkLineMax = 1024;
constexpr int kLookupStepMs = 10;
constexpr int kInterimMax = 8;  // answers with a status below 200 before the answer
constexpr std::string_view kFetchLineEnd = "\r\n";

template <typename Number>
std::optional<Number> DigitsOf(std::string_view text, int base = 10) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

std::string_view WithoutSpaces(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool SameName(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return (x | 0x20) == (y | 0x20); });
}

Status BadUrl(std::string_view text) {
  return {StatusCode::kInvalidArgument,
          "endpoint: expected http://HOST[:PORT][/PATH], got '" + std::string(text) + "'"};
}

}  // namespace

Result<HttpUrl> ParseHttpUrl(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (!text.starts_with(kScheme)) return BadUrl(text);
  const bool visible =
      std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127 && c != '#'; });
  const std::string_view rest = text.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view authority = rest.substr(0, slash);
  HttpUrl url;
  url.target = slash < rest.size() ? rest.substr(slash) : "/";
  const size_t host_end = authority.starts_with('[')
                              ? std::min(authority.find(']'), authority.size() - 1) + 1
                              : std::min(authority.find(':'), authority.size());
  url.host = authority.substr(0, host_end);
  if (url.host.starts_with('[')) {
    if (!url.host.ends_with(']')) return BadUrl(text);
    url.host = url.host.substr(1, url.host.size() - 2);
  }
  url.port = "80";
  if (host_end < authority.size()) {
    url.port = authority.substr(host_end + 1);
    const auto port = DigitsOf<uint16_t>(url.port);
    if (authority[host_end] != ':' || !port || *port == 0) return BadUrl(text);
  }
  if (!visible || url.host.empty() || url.host.find('@') != std::string::npos) return BadUrl(text);
  return url;
}

HttpAnswerReader::State HttpAnswerReader::Read(std::string_view bytes) {
  if (state_ != State::kMore) return state_;
  input_.append(bytes);
  if (!in_body_) state_ = ReadHeads();
  if (in_body_ && state_ == State::kMore) state_ = chunked_ ? ReadChunks() : ReadBody();
  return state_;
}

HttpAnswerReader::State HttpAnswerReader::End() {
  if (state_ == State::kMore) {
    state_ = in_body_ && !chunked_ && !length_ ? State::kComplete : State::kBad;
  }
  return state_;
}

HttpAnswerReader::State HttpAnswerReader::ReadHeads() {
  while (!in_body_) {
    if (const auto end = ReadHead()) return *end;
  }
  return State::kMore;
}

std::optional<HttpAnswerReader::State> HttpAnswerReader::ReadHead() {
  const size_t end = input_.find("\r\n\r\n");
  if (end == std::string::npos) return input_.size() > kHeadMax ? State::kBad : State::kMore;
  std::string_view head = std::string_view(input_).substr(0, end);
  const size_t first_end = std::min(head.find(kFetchLineEnd), head.size());
  const std::string_view first = head.substr(0, first_end);
  const auto status = first.size() >= 12 && first.starts_with("HTTP/1.")
                          ? DigitsOf<int>(first.substr(9, 3))
                          : std::nullopt;
  if (!status || *status < 100) return State::kBad;
  status_ = *status;
  length_.reset();
  chunked_ = false;
  for (head.remove_prefix(first_end); !head.empty();) {
    head.remove_prefix(kFetchLineEnd.size());
    const size_t line_end = std::min(head.find(kFetchLineEnd), head.size());
    if (!ReadHeader(head.substr(0, line_end))) return State::kBad;
    head.remove_prefix(line_end);
  }
  input_.erase(0, end + 4);
  in_body_ = status_ >= 200;
  if (!in_body_ && ++interim_ > kInterimMax) return State::kBad;  // 100 Continue
  if (status_ == 204 || status_ == 304) length_ = 0;
  return std::nullopt;
}

bool HttpAnswerReader::ReadHeader(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = WithoutSpaces(line.substr(colon + 1));
  if (SameName(name, "transfer-encoding")) {
    chunked_ = SameName(value, "chunked");
    return chunked_;
  }
  if (!SameName(name, "content-length")) return true;
  const auto length = DigitsOf<uint64_t>(value);
  if (!length || *length > body_max_ || (length_ && *length_ != *length)) return false;
  length_ = length;
  return true;
}

HttpAnswerReader::State HttpAnswerReader::ReadBody() {
  const size_t wanted = length_ ? static_cast<size_t>(*length_) - body_.size() : input_.size();
  const size_t taken = std::min(wanted, input_.size());
  body_.append(input_, 0, taken);
  input_.erase(0, taken);
  if (body_.size() > body_max_) return State::kBad;
  return length_ && body_.size() == *length_ ? State::kComplete : State::kMore;
}

HttpAnswerReader::State HttpAnswerReader::ReadChunks() {
  size_t at = 0;
  State state = State::kMore;
  while (state == State::kMore) {
    const size_t line_end = input_.find(kFetchLineEnd, at);
    if (std::min(line_end, input_.size()) - at > kChunkLineMax) {
      state = State::kBad;
      break;
    }
    if (line_end == std::string::npos) break;
    std::string_view line = std::string_view(input_).substr(at, line_end - at);
    const auto size = DigitsOf<uint64_t>(WithoutSpaces(line.substr(0, line.find(';'))), 16);
    if (!size || *size > body_max_ - body_.size()) {
      state = State::kBad;
      break;
    }
    const size_t data = line_end + kFetchLineEnd.size();
    if (*size == 0) {
      state = State::kComplete;  // trailers are not needed
      break;
    }
    if (input_.size() < data + *size + kFetchLineEnd.size()) break;
    if (std::string_view(input_).substr(data + *size, kFetchLineEnd.size()) != kFetchLineEnd) {
      state = State::kBad;
    } else {
      body_.append(input_, data, *size);
      at = data + *size + kFetchLineEnd.size();
    }
  }
  input_.erase(0, at);
  return state;
}

namespace {

// The connection and the deadline of one request.
class FetchExchange {
 public:
  explicit FetchExchange(const FetchOptions& options)
      : options_(options), deadline_ms_(SteadyMs() + options.timeout_ms) {}

  FetchResult Run(const HttpUrl& url);

 private:
  // Waits until the socket is ready. Returns an empty text if it is ready, else the error.
  std::string Await(short events);
  // Looks the host name up. Returns an empty text, or the error.
  std::string Resolve(const std::string& host, std::string& address);
  std::string Connect(const HttpUrl& url);
  std::string ConnectTo(const addrinfo& address);
  std::string Send(std::string_view text);
  FetchResult Receive();
  FetchResult Failed(FetchOutcome outcome, std::string error) const {
    return {stopped_ ? FetchOutcome::kStopped : outcome, 0, "", std::move(error)};
  }

  const FetchOptions& options_;
  const int64_t deadline_ms_;
  Descriptor socket_;
  bool stopped_ = false;
};

std::string FetchExchange::Await(short events) {
  while (true) {
    const int64_t left = deadline_ms_ - SteadyMs();
    if (left <= 0) return "no answer in time";
    std::array<pollfd, 2> waits = {{{socket_.get(), events, 0}, {options_.stop_fd, POLLIN, 0}}};
    const int ready =
        poll(waits.data(), waits.size(), static_cast<int>(std::min<int64_t>(left, 60000)));
    if (ready < 0 && errno != EINTR) return std::strerror(errno);
    if (ready > 0 && waits[1].revents != 0) {
      stopped_ = true;
      return "stopped";
    }
    if (ready > 0 && waits[0].revents != 0) return "";
  }
}

std::string FetchExchange::ConnectTo(const addrinfo& address) {
  socket_ = Descriptor(
      socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (socket_.get() < 0) return std::strerror(errno);
  const int yes = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  if (connect(socket_.get(), address.ai_addr, address.ai_addrlen) == 0) return "";
  if (errno != EINPROGRESS) return std::strerror(errno);
  if (std::string error = Await(POLLOUT); !error.empty()) return error;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? "" : std::strerror(error);
}

std::string FetchExchange::Resolve(const std::string& host, std::string& address) {
  const auto lookup = options_.resolver->Begin(host);
  while (!lookup->done()) {
    if (SteadyMs() >= deadline_ms_) return host + ": no address in time";
    pollfd stop = {options_.stop_fd, POLLIN, 0};
    if (poll(&stop, 1, kLookupStepMs) > 0) {
      stopped_ = true;
      return "stopped";
    }
  }
  address = lookup->address();
  return address.empty() ? host + ": no address" : "";
}

std::string FetchExchange::Connect(const HttpUrl& url) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = options_.resolver != nullptr ? AI_NUMERICHOST : 0;
  addrinfo* found = nullptr;
  int failed = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
  if (failed == EAI_NONAME && options_.resolver != nullptr) {
    std::string address;
    if (std::string error = Resolve(url.host, address); !error.empty()) return error;
    failed = getaddrinfo(address.c_str(), url.port.c_str(), &hints, &found);
  }
  if (failed != 0) {
    return url.host + ": " + gai_strerror(failed);
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  std::string error = "no address";
  for (const addrinfo* each = found; each != nullptr && !error.empty() && !stopped_;
       each = each->ai_next) {
    error = ConnectTo(*each);
  }
  return error;
}

std::string FetchExchange::Send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      text.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (std::string error = Await(POLLOUT); !error.empty()) return error;
    } else if (errno != EINTR) {
      return std::strerror(errno);
    }
  }
  return "";
}

FetchResult FetchExchange::Receive() {
  HttpAnswerReader reader(options_.body_max);
  auto state = HttpAnswerReader::State::kMore;
  std::array<char, 65536> buffer;
  while (state == HttpAnswerReader::State::kMore) {
    // Waits before each read, so that a server that never pauses cannot exceed the deadline.
    if (std::string error = Await(POLLIN); !error.empty()) {
      return Failed(FetchOutcome::kCut, std::move(error));
    }
    const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got > 0) {
      state = reader.Read({buffer.data(), static_cast<size_t>(got)});
    } else if (got == 0) {
      state = reader.End();
    } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
      return Failed(FetchOutcome::kCut, std::strerror(errno));
    }
  }
  if (state == HttpAnswerReader::State::kBad) {
    return Failed(FetchOutcome::kCut, "the answer is not HTTP, is too long, or is incomplete");
  }
  return {FetchOutcome::kAnswered, reader.status(), reader.TakeBody(), ""};
}

FetchResult FetchExchange::Run(const HttpUrl& url) {
  if (std::string error = Connect(url); !error.empty()) {
    return Failed(FetchOutcome::kUnreached, std::move(error));
  }
  const bool is_v6 = url.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? "[" + url.host + "]" : url.host;
  std::string request = std::string(options_.method) + " " + url.target +
                        " HTTP/1.1\r\nHost: " + host + ":" + url.port +
                        "\r\nAccept: application/json\r\nConnection: close\r\n";
  if (options_.method == "POST") request += "Content-Length: 0\r\n";
  request += kFetchLineEnd;
  if (std::string error = Send(request); !error.empty()) {
    return Failed(FetchOutcome::kCut, std::move(error));
  }
  return Receive();
}

}  // namespace

FetchResult Fetch(const HttpUrl& url, const FetchOptions& options) {
  return FetchExchange(options).Run(url);
}

}  // namespace kvcast::router
