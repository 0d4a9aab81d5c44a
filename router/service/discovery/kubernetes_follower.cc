// SPDX-License-Identifier: Apache-2.0
#include "router/service/discovery/kubernetes_follower.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "router/service/discovery/line_reader.h"
#include "router/service/discovery/read_file.h"
#include "router/service/ingest/http_fetch.h"
#include "router/service/json/json_fields.h"
#include "src/base/clock.h"

namespace kvcast::router {
namespace {

constexpr int kHttpBadRequest = 400;
constexpr int kHttpGone = 410;

std::string WithoutSpace(const std::string& text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// The text of a file of the service account.
Result<std::string> AccountText(const std::string& path) {
  const auto content = ReadRegularFile(path, 1);
  std::string text = content.ok() ? WithoutSpace(*content) : "";
  const bool visible = std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127; });
  if (!text.empty() && visible) return text;
  return Status(StatusCode::kUnavailable,
                path + ": " +
                    (content.ok() ? "must contain exactly one word of printable ASCII"
                                  : content.status().message()));
}

// One line for an answer with an error. `body`: a Status of Kubernetes, if the API server sent it.
std::string ReasonOf(int status, std::string_view body) {
  std::string reason = "the API server answered " + std::to_string(status);
  const auto json = ParseObject(body, 1);
  if (!json.ok() || !json->contains("message") || !(*json)["message"].is_string()) return reason;
  std::string message = (*json)["message"].get<std::string>().substr(0, kMaxTextBytes);
  std::ranges::replace_if(
      message, [](char c) { return c >= 0 && c < ' '; }, ' ');
  return reason + ": " + message;
}

int64_t ShortenedAtRandom(int64_t ms) {
  static thread_local std::minstd_rand random(std::random_device{}());
  return std::uniform_int_distribution<int64_t>(ms / 2, ms)(random);
}

}  // namespace

// A watch in progress.
struct KubernetesFollower::Watching {
  LineReader lines{EndpointSlices::kMaxEventBytes};
  int64_t began_ms = 0;
  bool progress = false;  // an event was read
  bool expired = false;
  Status status;  // of the latest event
  std::string error_body;
};

KubernetesFollower::KubernetesFollower(KubernetesSource source,
                                       const KubernetesSourcesConfig& config, Fleet& fleet,
                                       SourceLog& log)
    : source_(std::move(source)),
      config_(config),
      client_(config.make_client()),
      slices_(source_.port_name),
      list_(source_.list(), config.lists, fleet, log),
      source_of_(source_.source_of),
      report_{.list = source_.list()} {}

KubernetesFollower::~KubernetesFollower() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void KubernetesFollower::Begin() {
  thread_ = std::thread([this] { Run(); });
}

void KubernetesFollower::SetTemplate(SourceTemplate source_of) {
  const MutexLock lock(mutex_);
  source_of_ = std::move(source_of);
  if (!listed_) return;
  SetTargets();
  if (failure_) list_.NoteFailure(*failure_);
  Publish(list_.Follow());
}

void KubernetesFollower::Retry() {
  const MutexLock lock(mutex_);
  if (listed_) Publish(list_.Follow());
}

void KubernetesFollower::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  client_.stop();
}

void KubernetesFollower::Remove() {
  Stop();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  listed_ = false;
  list_.Clear();
}

SourceListReport KubernetesFollower::report() const {
  const MutexLock lock(report_mutex_);
  return report_;
}

void KubernetesFollower::Run() {
  while (!stopping_) {
    const bool done = next_ == Next::kList ? List() : Watch();
    if (!done) Wait();
  }
}

bool KubernetesFollower::List() {
  bool expired = false;
  const Status status = ReadPages(expired);
  // The first expired list in a row is not reported as a failure. A long list can expire before its
  // last page, because the API server keeps the version of a list only for some minutes.
  if (expired && !std::exchange(list_expired_, true)) {
    ++failures_;
    return false;
  }
  list_expired_ = expired;
  if (!status.ok()) return Fail(status.message());
  next_ = Next::kWatch;
  return true;
}

Status KubernetesFollower::ReadPages(bool& expired) {
  std::string token;
  for (size_t pages = 0; pages < kMaxPages; ++pages) {
    auto get = Request("&limit=" + std::to_string(EndpointSlices::kPageSlices) +
                       (token.empty() ? "" : "&continue=" + PercentEncode(token)));
    if (!get.ok()) return get.status();
    get->limit_ms = kRequestMs;
    std::string body;
    get->on_bytes = [&body](int, std::string_view bytes) {
      body += bytes;
      return body.size() <= EndpointSlices::kMaxPageBytes;
    };
    const HttpOutcome outcome = client_.get(*get);
    if (body.size() > EndpointSlices::kMaxPageBytes) {
      return {StatusCode::kLimit, "a page of the list is too long"};
    }
    if (outcome.status != 0 && outcome.status != kHttpOk) {
      expired = pages > 0 && outcome.status == kHttpGone;
      return {StatusCode::kUnavailable, ReasonOf(outcome.status, body)};
    }
    if (!outcome.error.empty()) return {StatusCode::kUnavailable, outcome.error};
    const MutexLock lock(mutex_);
    if (pages == 0) slices_.BeginList();
    if (Status status = slices_.ReadPage(body); !status.ok()) return status;
    token = slices_.next_page();
    if (!token.empty()) continue;
    listed_ = true;
    Apply();
    return Status();
  }
  return {StatusCode::kLimit, "the list has too many pages"};
}

bool KubernetesFollower::Watch() {
  std::string version;
  {
    const MutexLock lock(mutex_);
    version = slices_.version();
  }
  auto get =
      Request("&watch=true&allowWatchBookmarks=true&resourceVersion=" + PercentEncode(version) +
              "&timeoutSeconds=" + std::to_string(kWatchSeconds));
  if (!get.ok()) return Fail(get.status().message());
  get->limit_ms = kWatchSeconds * 1000 + kRequestMs;
  Watching watching;
  watching.began_ms = SteadyMs();
  get->on_bytes = [&](int status, std::string_view bytes) {
    if (status == kHttpOk) return TakeWatched(watching, bytes);
    watching.error_body += bytes;
    return watching.error_body.size() <= kMaxErrorBytes;
  };
  const HttpOutcome outcome = client_.get(*get);
  return stopping_ || EndWatch(watching, outcome);
}

// The API server has accepted the watch. `bytes` may be empty.
bool KubernetesFollower::TakeWatched(Watching& watching, std::string_view bytes) {
  std::vector<std::string> lines;
  if (!watching.lines.Add(bytes, lines)) {
    watching.status = Status(StatusCode::kLimit, "an event of the watch is too long");
  }
  const MutexLock lock(mutex_);
  bool changed = failure_ && (!cut_ || !lines.empty());
  for (const std::string& line : lines) {
    const auto change = slices_.ReadEvent(line);
    if (!change.ok()) {
      watching.status = change.status();
      break;
    }
    changed |= *change == EndpointSlices::Change::kSlices;
    watching.expired = *change == EndpointSlices::Change::kExpired;
    if (watching.expired) break;
    failures_ = 0;
    watching.progress = true;
  }
  if (changed) Apply();
  return watching.status.ok() && !watching.expired;
}

bool KubernetesFollower::EndWatch(const Watching& watching, const HttpOutcome& outcome) {
  if (watching.expired || outcome.status == kHttpGone) {
    next_ = Next::kList;
    ++failures_;  // the wait bounds the rate of lists
    return false;
  }
  if (!watching.status.ok()) {
    // The state after a damaged event is unknown.
    next_ = Next::kList;
    return Fail(watching.status.message());
  }
  if (outcome.status == 0) return Fail(outcome.error);
  if (outcome.status != kHttpOk) {
    if (outcome.status == kHttpBadRequest) next_ = Next::kList;
    return Fail(ReasonOf(outcome.status, watching.error_body));
  }
  const bool steady = SteadyMs() - watching.began_ms >= kSteadyWatchMs;
  if (steady) {
    failures_ = 0;
    const MutexLock lock(mutex_);
    cut_ = false;
  }
  if (outcome.error.empty() && (watching.progress || steady)) return true;
  // The first watch in a row that ends early is not reported as a failure: a watch also ends early
  // when an API server is updated.
  if (failures_ == 0) {
    ++failures_;
    return false;
  }
  Fail("the watch ended early" + (outcome.error.empty() ? "" : ": " + outcome.error));
  const MutexLock lock(mutex_);
  cut_ = true;
  return false;
}

Result<HttpGet> KubernetesFollower::Request(const std::string& parameters) const {
  const KubernetesApi& api = config_.api;
  std::string space = source_.space;
  if (space.empty()) {
    auto own = AccountText(api.namespace_file);
    if (!own.ok()) return own.status();
    space = std::move(own).value();
  }
  HttpGet get;
  if (!api.token_file.empty()) {
    auto token = AccountText(api.token_file);
    if (!token.ok()) return token.status();
    get.token = std::move(token).value();
  }
  get.url = SlicesUrl(api, space, source_.selector) + parameters;
  get.ca_file = api.ca_file;
  return get;
}

void KubernetesFollower::SetTargets() {
  const bool lacks_port = slices_.lacks_port();
  list_.Set(slices_.Targets(), source_of_,
            lacks_port ? "no endpoint has a port named " + source_.port_name : "");
}

void KubernetesFollower::Apply() {
  SetTargets();
  failure_.reset();
  cut_ = false;
  Publish(list_.Follow());
}

void KubernetesFollower::Publish(const SourceListReport& report) {
  const MutexLock lock(report_mutex_);
  report_ = report;
}

// The sources stay. Returns false.
bool KubernetesFollower::Fail(const std::string& reason) {
  if (stopping_) return false;
  ++failures_;
  const MutexLock lock(mutex_);
  cut_ = false;
  failure_ = reason;
  list_.NoteFailure(reason);
  Publish(list_.Follow());
  return false;
}

void KubernetesFollower::Wait() {
  constexpr uint32_t kMostDoublings = 20;
  const uint32_t doublings = std::min(failures_ - 1, kMostDoublings);
  const int64_t ms = std::min(config_.first_wait_ms << doublings, kLongestWaitMs);
  const int64_t end_us = SteadyUs() + ShortenedAtRandom(ms) * 1000;
  const MutexLock lock(mutex_);
  while (!stopping_ && wake_.WaitUntil(mutex_, end_us)) {
  }
}

}  // namespace kvcast::router
