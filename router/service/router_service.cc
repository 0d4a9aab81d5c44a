// SPDX-License-Identifier: Apache-2.0
#include "router/service/router_service.h"

#include <atomic>
#include <chrono>
#include <string>
#include <unordered_set>
#include <utility>

#include "kvcast/prefix_index.h"
#include "router/service/metrics.h"
#include "router/service/query.h"
#include "router/service/query_engine.h"

namespace kvcast::router {
namespace {

double SystemSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

class RouterService::Impl {
 public:
  Status Start(const RouterOptions& options);
  void Stop();
  int http_port() const { return http_->port(); }

 private:
  Status AddSources(const RouterOptions& options);
  Status Follow(const RouterOptions& options);
  Status Serve(const RouterOptions& options);
  HttpReply AnswerQuery(const std::string& body);
  HttpReply TakeFeedback(const std::string& body);
  HttpReply AnswerHealth() const;
  HttpReply AnswerMetrics() const;
  SourceState StateOf(const Source& source) const {
    return source.State(subscriber_->status(source.id()).state);
  }

  PrefixIndex index_;
  std::vector<std::unique_ptr<Source>> sources_;  // by worker id; fixed once started
  std::unique_ptr<Subscriber> subscriber_;
  std::unique_ptr<QueryEngine> queries_;
  std::atomic<uint64_t> answered_{0};
  std::atomic<uint64_t> refused_{0};
  std::unique_ptr<HttpServer> http_;
};

Status RouterService::Impl::AddSources(const RouterOptions& options) {
  std::unordered_set<std::string> names;
  for (const RouterSource& config : options.sources) {
    if (!names.insert(config.worker.name).second) {
      return Status(StatusCode::kInvalidArgument, "two sources are named " + config.worker.name);
    }
    const WorkerId id(static_cast<uint32_t>(sources_.size()));
    Result<std::unique_ptr<Source>> source = Source::Create(id, config, index_);
    if (!source.ok()) return source.status();
    sources_.push_back(std::move(source).value());
  }
  return Status();
}

Status RouterService::Impl::Follow(const RouterOptions& options) {
  SubscriberSink sink;
  sink.apply = [this](WorkerId worker, Seq seq, std::span<const uint8_t> payload) {
    return sources_[worker.value]->OnBatch(payload, seq);
  };
  sink.begin_snapshot = [this](WorkerId worker) { sources_[worker.value]->BeginSnapshot(); };
  sink.add_to_snapshot = [this](WorkerId worker, std::span<const uint8_t> payload) {
    return sources_[worker.value]->AddToSnapshot(payload);
  };
  sink.commit_snapshot = [this](WorkerId worker, const PublisherStatus& status) {
    return sources_[worker.value]->CommitSnapshot(status);
  };
  sink.drop_snapshot = [this](WorkerId worker) { sources_[worker.value]->DropSnapshot(); };
  sink.compare = [this](WorkerId worker, const PublisherStatus& status) {
    return sources_[worker.value]->Compare(status);
  };
  sink.on_reset = [this](WorkerId worker, ResetReason reason) {
    sources_[worker.value]->OnReset(reason);
  };
  Result<std::unique_ptr<Subscriber>> subscriber =
      Subscriber::Create(options.subscriber, std::move(sink));
  if (!subscriber.ok()) return subscriber.status();
  subscriber_ = std::move(subscriber).value();
  for (size_t i = 0; i < sources_.size(); ++i) {
    const RouterSource& config = options.sources[i];
    const Status status = subscriber_->Add(
        {sources_[i]->id(), config.endpoint, config.replay_endpoint, config.topic});
    if (!status.ok()) return Status(status.code(), config.worker.name + ": " + status.message());
  }
  return Status();
}

Status RouterService::Impl::Serve(const RouterOptions& options) {
  using Method = HttpRoute::Method;
  queries_ = std::make_unique<QueryEngine>(
      index_, sources_, [this](WorkerId worker) { return subscriber_->status(worker); },
      options.now ? options.now : SystemSeconds);
  std::vector<HttpRoute> routes = {
      {Method::kPost, "/v1/query",
       [this](const HttpRequest& request) { return AnswerQuery(request.body); }},
      {Method::kPost, "/v1/feedback",
       [this](const HttpRequest& request) { return TakeFeedback(request.body); }},
      {Method::kGet, "/healthz", [this](const HttpRequest&) { return AnswerHealth(); }},
      {Method::kGet, "/metrics", [this](const HttpRequest&) { return AnswerMetrics(); }},
  };
  Result<std::unique_ptr<HttpServer>> http = HttpServer::Start(options.http, std::move(routes));
  if (!http.ok()) return http.status();
  http_ = std::move(http).value();
  return Status();
}

Status RouterService::Impl::Start(const RouterOptions& options) {
  if (Status status = AddSources(options); !status.ok()) return status;
  if (Status status = Follow(options); !status.ok()) return status;
  return Serve(options);
}

// In the reverse order of use: queries read the subscriber, the subscriber feeds the sources.
void RouterService::Impl::Stop() {
  if (http_) http_->Stop();
  subscriber_.reset();
}

HttpReply RouterService::Impl::AnswerQuery(const std::string& body) {
  Result<Query> query = ParseQuery(body);
  Result<std::vector<QueryAnswer>> answers =
      query.ok() ? queries_->Answer(*query) : Result<std::vector<QueryAnswer>>(query.status());
  if (!answers.ok()) {
    ++refused_;
    return HttpError(400, answers.status().message());
  }
  ++answered_;
  return {200, RenderAnswers(*answers)};
}

HttpReply RouterService::Impl::TakeFeedback(const std::string& body) {
  const Result<Feedback> feedback = ParseFeedback(body);
  if (!feedback.ok()) return HttpError(400, feedback.status().message());
  for (const auto& source : sources_) {
    if (source->name() != feedback->worker) continue;
    const bool refuted = source->NoteReuse(feedback->promised_tokens, feedback->cached_tokens);
    if (refuted) subscriber_->Contradict(source->id());
    return {.body = refuted ? "{\"refuted\":true}\n" : "{\"refuted\":false}\n"};
  }
  return HttpError(400, "worker: there is no " + feedback->worker);
}

HttpReply RouterService::Impl::AnswerHealth() const {
  size_t synced = 0;
  size_t matched = 0;
  for (const auto& source : sources_) {
    synced += StateOf(*source) == SourceState::kSynced;
    matched += source->verdict().state == SchemeState::kMatched;
  }
  return {200, R"({"status": "ok", "sources": )" + std::to_string(sources_.size()) +
                   R"(, "synced": )" + std::to_string(synced) + R"(, "schemes_matched": )" +
                   std::to_string(matched) + "}\n"};
}

HttpReply RouterService::Impl::AnswerMetrics() const {
  ServiceMetrics metrics;
  metrics.queries = answered_;
  metrics.bad_queries = refused_;
  for (const auto& source : sources_) {
    const SourceStatus stream = subscriber_->status(source->id());
    metrics.workers.push_back({source->name(), source->State(stream.state), stream,
                               source->counters(), index_.counters(source->id()), source->verdict(),
                               source->scheme_counters(), source->token_status()});
  }
  return {200, RenderMetrics(metrics), "text/plain; version=0.0.4; charset=utf-8"};
}

RouterService::RouterService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RouterService::~RouterService() { Stop(); }

Result<std::unique_ptr<RouterService>> RouterService::Start(const RouterOptions& options) {
  auto impl = std::make_unique<Impl>();
  if (Status status = impl->Start(options); !status.ok()) {
    impl->Stop();
    return status;
  }
  return std::unique_ptr<RouterService>(new RouterService(std::move(impl)));
}

int RouterService::http_port() const { return impl_->http_port(); }
void RouterService::Stop() { impl_->Stop(); }

}  // namespace kvcast::router
