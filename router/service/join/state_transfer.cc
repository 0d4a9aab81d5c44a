// SPDX-License-Identifier: Apache-2.0
#include "router/service/join/state_transfer.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "router/service/json/json_fields.h"
#include "src/base/clock.h"
#include "src/base/repeater.h"
#include "src/base/secret_file.h"

namespace kvcast::router {
namespace {

constexpr int64_t kWatchMs = 50;
constexpr size_t kMaxAnswerBytes = 4096;  // of an answer without a state

struct StateRequest {
  explicit StateRequest(const std::function<bool(uint64_t)>& takes)
      : reader([this, &takes](const StateStreamHead& got) {
          head = got;
          takes_secret = takes(got.secret);
          return takes_secret ? Status() : Status(StatusCode::kFailedPrecondition, "");
        }) {}

  StateStreamReader reader;
  StateStreamHead head;
  bool takes_secret = true;
  Status status;       // of the reader
  std::string answer;  // the first bytes of a body that is not a state
  std::atomic<int64_t> heard_at_ms{SteadyMs()};
  std::atomic<bool> stalled{false};
  std::atomic<bool> stopped{false};
};

// The file contains one word.
Result<std::string> PeerToken(const std::string& path) {
  if (path.empty()) return std::string();
  const auto failed = [&path](const std::string& why) {
    return Status(StatusCode::kInvalidArgument, path + ": " + why);
  };
  auto text = ReadSecretFile(path);
  if (!text.ok()) return failed(text.status().message());
  while (text->ends_with('\n')) text->pop_back();
  const bool visible = std::ranges::all_of(*text, [](char c) { return c > ' ' && c < 127; });
  if (text->empty() || !visible) return failed("must contain exactly one word of printable ASCII");
  return text;
}

// The text of {"error": TEXT}.
std::string ErrorIn(const std::string& answer) {
  const auto json = ParseObject(answer, 1);
  if (!json.ok() || !json->contains("error") || !(*json)["error"].is_string()) return "";
  std::string error = ": " + (*json)["error"].get<std::string>().substr(0, kMaxTextBytes);
  std::ranges::replace_if(
      error, [](char c) { return c >= 0 && c < ' '; }, ' ');
  return error;
}

TransferredState Ended(TransferEnd end, std::string error) {
  return {.end = end, .error = std::move(error), .bytes = 0, .head = {}, .shards = {}};
}

TransferredState EndedWith(const StateRequest& request, const HttpOutcome& outcome) {
  const int status = outcome.status;
  const std::string answered = "status " + std::to_string(status) + ErrorIn(request.answer);
  if (status == 401 || status == 403) return Ended(TransferEnd::kCredentials, answered);
  if (status == 404 || status == 405) return Ended(TransferEnd::kNotServed, answered);
  if (status == 503) return Ended(TransferEnd::kBusy, answered);
  return Ended(TransferEnd::kBadAnswer, answered);
}

TransferEnd EndFor(const Status& status) {
  if (status.code() == StatusCode::kFailedPrecondition) return TransferEnd::kVersion;
  const bool large =
      status.code() == StatusCode::kLimit || status.code() == StatusCode::kUnavailable;
  return large ? TransferEnd::kTooLarge : TransferEnd::kDamaged;
}

TransferredState ReadShards(StateRequest& request) {
  TransferredState state = Ended(TransferEnd::kComplete, "");
  for (const Descriptor& file : request.reader.Take()) {
    const std::string name = "shard " + std::to_string(state.shards.size());
    auto shard = StateFile::Read(file, name, SecretCheck(request.head.secret));
    if (!shard.ok()) return Ended(EndFor(shard.status()), shard.status().message());
    state.shards.push_back(std::make_shared<const StateFile>(std::move(shard).value()));
  }
  state.head = request.head;
  return state;
}

TransferredState Judge(StateRequest& request, const HttpOutcome& outcome, bool in_time) {
  constexpr int kStateStatus = 200;
  if (request.stopped) return Ended(TransferEnd::kStopped, "the router must end");
  if (request.stalled) return Ended(TransferEnd::kTimeout, "the other router sends no bytes");
  if (!request.takes_secret) {
    return Ended(TransferEnd::kOtherSecret, "the saved states have another secret");
  }
  if (!request.status.ok()) return Ended(EndFor(request.status), request.status.message());
  if (outcome.status != 0 && outcome.status != kStateStatus) return EndedWith(request, outcome);
  if (!in_time && !request.reader.complete()) {
    return Ended(TransferEnd::kTimeout, "not complete in time");
  }
  if (outcome.status == 0) return Ended(TransferEnd::kUnreachable, outcome.error);
  if (!request.reader.complete()) {
    return Ended(TransferEnd::kDamaged, "the state is not complete");
  }
  return ReadShards(request);
}

}  // namespace

std::string_view TransferEndName(TransferEnd end) {
  constexpr std::array<std::string_view, kTransferEnds> kNames = {
      "complete", "unreachable", "credentials", "not_served", "busy",         "bad_answer",
      "version",  "damaged",     "too_large",   "timeout",    "other_secret", "stopped"};
  return kNames[static_cast<size_t>(end)];
}

TransferredState TransferState(const PeerOptions& options, const HttpClient& client,
                               int64_t limit_ms,
                               const std::function<bool(uint64_t secret)>& takes) {
  auto token = PeerToken(options.token_file);
  if (!token.ok()) return Ended(TransferEnd::kCredentials, token.status().message());
  StateRequest request(takes);
  HttpGet get;
  get.url = options.url + (options.url.ends_with('/') ? "" : "/") + "v1/admin/state";
  get.token = *token;
  get.ca_file = options.ca_file;
  get.limit_ms = limit_ms;
  get.on_bytes = [&request](int status, std::string_view bytes) {
    request.heard_at_ms = SteadyMs();
    if (status != 200) {
      request.answer += bytes.substr(0, kMaxAnswerBytes - request.answer.size());
      return request.answer.size() < kMaxAnswerBytes;
    }
    request.status = request.reader.Add(bytes);
    return request.status.ok();
  };
  const int64_t deadline_ms = SteadyMs() + limit_ms;
  HttpOutcome outcome;
  {
    const Repeater watch(kWatchMs, kWatchMs, [&] {
      if (options.stopping && options.stopping()) request.stopped = true;
      if (SteadyMs() - request.heard_at_ms >= options.stall_ms) request.stalled = true;
      if (request.stopped || request.stalled) client.stop();
    });
    outcome = client.get(get);
  }
  if (request.reader.complete()) request.stalled = false;
  TransferredState state = Judge(request, outcome, SteadyMs() < deadline_ms);
  state.bytes = request.reader.bytes();
  return state;
}

}  // namespace kvcast::router
