// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/http_attacks.h"

#include <algorithm>
#include <array>

#include "apps/bench/service/http_load.h"

namespace kvcast::tools {
namespace {

constexpr size_t kMiB = 1 << 20;

std::string Repeated(std::string_view part, size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() < bytes) text += part;
  return text;
}

std::string HashQuery(size_t hashes, const std::string& rest) {
  std::string body = "{\"hashes\":[0";
  for (size_t i = 1; i < hashes; ++i) body += "," + std::to_string(i);
  return HttpPost("/query", body + "]" + rest + "}");
}

// Registers a worker. For this worker, the router looks up the tiers for the whole length of a
// prompt.
std::string MirroredWorker() {
  return HttpPost("/v1/sources", R"({"name":"mirrored","model":"m","endpoint":"tcp://127.0.0.1:9",)"
                                 R"("block_size":16,"offload_rule":"mirrored_pool"})");
}

std::string LongestPrompt() { return HashQuery(1, R"(,"model":"m","prompt_tokens":2147483648)"); }

std::string EmptyLines() { return Repeated("\r\n", kMiB / 8); }

std::string SmallChunks() {
  return "POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         "Transfer-Encoding: chunked\r\n\r\n" +
         Repeated("1\r\n \r\n", kMiB) + "0\r\n\r\n";
}

std::string MostHashes() { return HashQuery(size_t{1} << 17, R"(,"model":"m")"); }

std::string TooManyHashes() { return HashQuery(size_t{2} << 20, R"(,"model":"m")"); }

std::string EmptyStrings() {
  return HttpPost("/query",
                  R"({"tokens":"x","a":[)" + Repeated(R"("",)", 16 * kMiB - 64) + R"(""]})");
}

std::string LargestUnregister() {
  return HttpPost("/unregister", R"({"name":")" + std::string(16 * kMiB - 16, 'x') + "\"}");
}

std::string Get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

std::string ManyDecisions() { return Repeated(Get("/v1/decisions"), 4096); }

std::string ManyDumps() { return Repeated(Get("/dump"), 4096); }

// A head of almost 16 KiB with the maximum number of query parameters (kMaxQueryNames). The client
// sends no body. The path is /healthz, because this route needs no token.
std::string HeadWithoutBody() {
  std::string head = "GET /healthz?";
  for (int i = 0; i < 128; ++i) head += std::to_string(i) + "=" + std::string(110, 'x') + "&";
  return head + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n";
}

std::string ManyHealthChecks() { return Repeated(Get("/healthz"), 64); }

std::string OneMetrics() { return Get("/metrics"); }

std::string UnfinishedUpload() {
  std::string request = HttpPost("/query", std::string(16 * kMiB - 1, ' ') + "x");
  request.pop_back();
  return request;
}

constexpr std::array kHttpAttacks = {
    HttpAttack{
        .name = "longest-prompt",
        .summary = "queries with the greatest prompt_tokens, for a worker with a mirrored pool",
        .bytes = LongestPrompt,
        .preparation = MirroredWorker},
    HttpAttack{
        .name = "empty-lines", .summary = "empty lines", .connections = 256, .bytes = EmptyLines},
    HttpAttack{.name = "small-chunks",
               .summary = "bodies in chunks of one byte",
               .connections = 256,
               .bytes = SmallChunks},
    HttpAttack{.name = "most-hashes",
               .summary = "queries with the greatest number of hashes",
               .bytes = MostHashes},
    HttpAttack{.name = "too-many-hashes",
               .summary = "queries with two million hashes",
               .bytes = TooManyHashes},
    HttpAttack{.name = "empty-strings",
               .summary = "queries of 16 MiB with millions of empty strings",
               .connections = 5,
               .bytes = EmptyStrings},
    HttpAttack{.name = "unregister-bodies",
               .summary = "bodies of 16 MiB for /unregister",
               .bytes = LargestUnregister},
    HttpAttack{.name = "decisions", .summary = "GET /v1/decisions", .bytes = ManyDecisions},
    HttpAttack{.name = "unfinished-uploads",
               .summary = "uploads of 16 MiB without their last byte",
               .connections = 17,
               .bytes = UnfinishedUpload,
               .sends_once = true},
    HttpAttack{.name = "dumps", .summary = "GET /dump", .bytes = ManyDumps},
    HttpAttack{.name = "heads",
               .summary = "heads of 16 KiB without their bodies",
               .connections = 8192,
               .bytes = HeadWithoutBody,
               .sends_once = true},
    HttpAttack{.name = "many",
               .summary = "GET /healthz on 4,096 connections, from another address",
               .connections = 4096,
               .bytes = ManyHealthChecks,
               .address = "127.0.0.2"},
    HttpAttack{.name = "unread",
               .summary = "GET /metrics, without reading the answers",
               .connections = 4096,
               .bytes = OneMetrics,
               .sends_once = true,
               .reads = false},
};

}  // namespace

std::span<const HttpAttack> HttpAttacks() { return kHttpAttacks; }

const HttpAttack* FindHttpAttack(std::string_view name) {
  const auto* const found = std::ranges::find(kHttpAttacks, name, &HttpAttack::name);
  return found == kHttpAttacks.end() ? nullptr : found;
}

}  // namespace kvcast::tools
