// Fuzz target: bytes that a client sends to the HTTP server. A second reader, which follows RFC
// 9112 without Boost.Beast, finds the same requests in the bytes. The sizes of the pieces in which
// the bytes arrive do not matter. If an accepted request is written as text, the server's reader
// reads the same request from this text.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "router/service/ingest/http_fetch.h"
#include "src/base/check.h"
#include "src/http/host_rules.h"
#include "src/http/ip_network.h"
#include "src/http/request_reader.h"
#include "src/http/trace_parent.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/http_oracle.h"

namespace kvcast {
namespace {

using State = RequestReader::State;

// Small bounds, which small inputs reach.
constexpr HttpLimits kLimits{.max_head_bytes = 512, .max_body_bytes = 128};

struct Requests {
  std::vector<HttpRequest> complete;
  State state = State::kHead;  // after the last byte
  // The last request was refused with 431: its head, its trailers or a line of a chunk is too long,
  // or it has too many headers.
  bool has_431 = false;
};

bool Same(const HttpRequest& a, const HttpRequest& b) {
  return a.method == b.method && a.path == b.path && a.query == b.query && a.headers == b.headers &&
         a.body == b.body && a.keep_alive == b.keep_alive && a.takes_chunks == b.takes_chunks;
}

// Reads the text in pieces of `step` bytes.
Requests Read(std::string_view text, size_t step) {
  Requests requests;
  RequestReader reader(kLimits);
  boost::beast::flat_buffer input;
  while (!text.empty() && requests.state != State::kBad) {
    const std::string_view piece = text.substr(0, step);
    text.remove_prefix(piece.size());
    const auto room = input.prepare(piece.size());
    std::copy(piece.begin(), piece.end(), static_cast<char*>(room.data()));
    input.commit(piece.size());
    while ((requests.state = reader.Read(input)) == State::kComplete) {
      const size_t held = reader.held_bytes();
      requests.complete.push_back(reader.Take());
      const HttpRequest& request = requests.complete.back();
      KV_CHECK(request.headers.size() <= 128 && request.query.size() <= 128);
      KV_CHECK(held >= request.body.size() + 100 * (request.headers.size() + request.query.size()));
    }
  }
  KV_CHECK(requests.state != State::kBad || reader.error().status >= 400);
  requests.has_431 = requests.state == State::kBad && reader.error().status == 431;
  return requests;
}

bool IsVisible(char c) { return c > ' ' && c < '\x7f'; }

void CheckRequest(const HttpRequest& request) {
  KV_CHECK(!request.method.empty() && std::ranges::all_of(request.method, IsVisible));
  KV_CHECK(request.body.size() <= kLimits.max_body_bytes);
  KV_CHECK(!request.takes_chunks || request.headers.contains("host"));
  KV_CHECK(!request.headers.contains("content-length") ||
           !request.headers.contains("transfer-encoding"));
  size_t bytes = 0;
  for (const auto& [name, value] : request.headers) {
    KV_CHECK(std::ranges::all_of(name, IsVisible));
    KV_CHECK(std::ranges::none_of(name, [](char c) { return c >= 'A' && c <= 'Z'; }));
    KV_CHECK(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    bytes += name.size() + value.size();
  }
  KV_CHECK(bytes <= kLimits.max_head_bytes);
  const std::string_view trace = TraceParentOf(request);
  KV_CHECK(trace.empty() || (trace.size() == 55 && std::ranges::all_of(trace, IsVisible)));
}

// A request from a page of another site has the name or the origin of that site. Checks that
// each accepted Host is a name of the server or a loopback address.
void CheckHosts(const HttpRequest& request) {
  const HostRules rules(/*local_only=*/true, {"router.example"});
  const std::string_view host = request.Header("host");
  if (host.empty() || rules.WhyRefused(host, request.Header("origin"), true) != nullptr) return;
  const std::string name(
      host.substr(0, host.starts_with('[') ? host.find(']') + 1 : host.rfind(':')));
  const auto address = ParseIpAddress(name);
  const bool is_loopback = address && (IpNetwork::Parse("127.0.0.0/8")->Contains(*address) ||
                                       IpNetwork::Parse("::1")->Contains(*address));
  std::string lower = name;
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  KV_CHECK(is_loopback || lower == "localhost" || lower == "router.example");
}

std::string Escaped(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    escaped += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return escaped;
}

void CheckWritten(const HttpRequest& request) {
  std::string text = request.method + " /" + Escaped(request.path) + "?";
  for (const auto& [name, value] : request.query)
    text += Escaped(name) + "=" + Escaped(value) + "&";
  text += request.takes_chunks ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n";
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\r\n";
  text += "\r\n";
  if (request.headers.contains("transfer-encoding")) {
    for (const char c : request.body) text += std::string("1\r\n") + c + "\r\n";
    text += "0\r\n\r\n";
  } else {
    text += request.body;
  }
  RequestReader reader({.max_head_bytes = 1 << 14, .max_body_bytes = kLimits.max_body_bytes});
  boost::beast::flat_buffer input;
  const auto room = input.prepare(text.size());
  std::copy(text.begin(), text.end(), static_cast<char*>(room.data()));
  input.commit(text.size());
  KV_CHECK(reader.Read(input) == State::kComplete && input.size() == 0);
  HttpRequest again = reader.Take();
  again.path.erase(0, 1);
  HttpRequest expected = request;
  for (auto& [name, value] : expected.headers) {
    if (value.ends_with(", ")) value.pop_back();  // the last of several values is empty
  }
  KV_CHECK(Same(expected, again));
}

// True if two hex digits follow each percent sign.
bool HasWholeEscapes(std::string_view target) {
  constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
  for (size_t offset = target.find('%'); offset != std::string_view::npos;
       offset = target.find('%', offset + 1)) {
    const std::string_view digits = target.substr(offset + 1, 2);
    if (digits.size() != 2 || digits.find_first_not_of(kDigits) != std::string_view::npos) {
      return false;
    }
  }
  return true;
}

void CheckRequests(std::string_view text) {
  const Requests whole = Read(text, text.size());
  size_t offset = 0;
  for (const HttpRequest& request : whole.complete) {
    CheckRequest(request);
    CheckHosts(request);
    CheckWritten(request);
    const auto expected = oracle::ReadHttp(text.substr(offset));
    KV_CHECK(expected && expected->method == request.method && expected->body == request.body);
    KV_CHECK(expected->host == request.Header("host") && HasWholeEscapes(expected->target));
    offset += expected->bytes;
  }
  for (const size_t step : {1, 7}) {
    const Requests pieces = Read(text, step);
    // Trailers and lines of chunks above the limit are refused only if they arrive in pieces.
    const size_t same = pieces.has_431 ? std::min(pieces.complete.size(), whole.complete.size())
                                       : whole.complete.size();
    KV_CHECK(std::ranges::equal(std::span(whole.complete).first(same), pieces.complete, Same));
  }
}

// Reads the text as the answer of an engine that the router polls.
void CheckAnswer(std::string_view text) {
  using router::HttpAnswerReader;
  constexpr size_t kBodyMax = 128;
  const auto read = [&](HttpAnswerReader& reader, size_t step) {
    auto state = HttpAnswerReader::State::kMore;
    for (size_t i = 0; i < text.size(); i += step) state = reader.Read(text.substr(i, step));
    return state == HttpAnswerReader::State::kMore ? reader.End() : state;
  };
  HttpAnswerReader whole(kBodyMax);
  HttpAnswerReader pieces(kBodyMax);
  const auto state = read(whole, text.size() + 1);
  KV_CHECK(state == read(pieces, 1));
  if (state != HttpAnswerReader::State::kComplete) return;
  KV_CHECK(whole.status() == pieces.status() && whole.status() >= 200);
  const std::string body = whole.TakeBody();
  KV_CHECK(body == pieces.TakeBody() && body.size() <= kBodyMax);
}

}  // namespace
}  // namespace kvcast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = kvcast::fuzz::TextOf({data, size});
  if (text.starts_with("HTTP/")) {
    kvcast::CheckAnswer(text);
  } else {
    kvcast::CheckRequests(text);
  }
  return 0;
}
