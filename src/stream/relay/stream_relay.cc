// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/stream_relay.h"

#include <optional>
#include <utility>

#include "src/stream/relay/relay_sink.h"

namespace kvcast {

using stream::RelaySink;

namespace {

// The position in the stream of the followed publisher. nullopt: no batch of the stream is known.
std::optional<SavedPosition> PositionOf(const RelayRecovery& recovery) {
  if (!recovery.mark || recovery.mark->next_seq == 0) return std::nullopt;
  SavedPosition position;
  position.next_seq = recovery.mark->next_seq;
  position.complete = recovery.state->status.has_digests;
  position.fingerprints = {{position.next_seq - 1, recovery.mark->hash}};
  return position;
}

}  // namespace

class StreamRelay::Impl {
 public:
  explicit Impl(std::shared_ptr<RelaySink> relay_sink) : sink(std::move(relay_sink)) {}

  Status Follow(const StreamRelayConfig& config) {
    SubscriberConfig subscriber_config = config.subscriber;
    subscriber_config.on_state = [relay_sink = sink, on_state = config.subscriber.on_state](
                                     WorkerId worker, const SourceStatus& status) {
      relay_sink->NoteState(status.state);
      if (on_state) on_state(worker, status);
    };
    auto made = Subscriber::Create(subscriber_config);
    if (!made.ok()) return made.status();
    subscriber = std::move(made).value();
    SourceConfig source = config.source;
    source.worker = WorkerId(0);
    source.resume = config.recovery ? PositionOf(*config.recovery) : std::nullopt;
    return subscriber->Add(source, sink);
  }

  const std::shared_ptr<RelaySink> sink;
  std::unique_ptr<Subscriber> subscriber;
};

StreamRelay::StreamRelay(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StreamRelay::~StreamRelay() = default;

Result<std::unique_ptr<StreamRelay>> StreamRelay::Create(const StreamRelayConfig& config) {
  const auto wrong = [](const char* what) { return Status(StatusCode::kInvalidArgument, what); };
  if (config.publisher.epoch)
    return wrong("publisher.epoch must not be set: a relay chooses its epochs");
  if (config.publisher.data_parallel_rank != 0) return wrong("a relay has no rank of its own");
  if (config.publisher.resume)
    return wrong("publisher.resume must not be set; set recovery instead");
  if (config.recovery && (!config.recovery->mark || !config.recovery->state))
    return wrong("the state or the mark of the recovery is not set");
  if (config.publisher.replay_endpoint.empty()) return wrong("a relay needs a replay endpoint");
  PublisherConfig publisher = config.publisher;
  // A relay that leaves out content encodes the batches again. A vLLM dialect would show a release
  // that the engine may not have, and has no field for the medium of a clear.
  if (publisher.hashes_only) publisher.dialect = Dialect::kKvcast1;
  auto sink = config.recovery ? RelaySink::Create(publisher, *config.recovery)
                              : RelaySink::Create(publisher);
  if (!sink.ok()) return sink.status();
  auto impl = std::make_unique<Impl>(std::move(sink).value());
  if (Status status = impl->Follow(config); !status.ok()) return status;
  return std::unique_ptr<StreamRelay>(new StreamRelay(std::move(impl)));
}

const std::string& StreamRelay::endpoint() const { return impl_->sink->endpoint(); }
const std::string& StreamRelay::replay_endpoint() const { return impl_->sink->replay_endpoint(); }
SourceStatus StreamRelay::source() const { return impl_->subscriber->status(WorkerId(0)); }
StreamRelayCounters StreamRelay::counters() const { return impl_->sink->counters(); }
RelayHistory& StreamRelay::history() const { return *impl_->sink; }
Status StreamRelay::status() const { return impl_->sink->status(); }

}  // namespace kvcast
