// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/subscriber.h"

#include <pybind11/stl.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "kvcast/wire/wire.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/holder.h"
#include "python/src/stream_queue.h"
#include "python/src/values.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

// A wait is divided into slices of at most this time, so that Ctrl-C ends the wait.
constexpr int64_t kSliceUs = 50000;

// The subscriber and the names of its sources.
class NamedSubscriber {
 public:
  NamedSubscriber(std::unique_ptr<Subscriber> subscriber, std::shared_ptr<StreamQueue> queue)
      : queue_(std::move(queue)), subscriber_(std::move(subscriber)) {}
  ~NamedSubscriber() { queue_->Close(); }

  Status Add(const std::string& name, SourceConfig config) {
    const MutexLock lock(mutex_);
    if (ids_.contains(name)) {
      return {StatusCode::kFailedPrecondition, "name: two sources are named '" + name + "'"};
    }
    config.worker = WorkerId(next_id_);
    const auto shared = std::make_shared<const std::string>(name);
    auto sink = std::make_shared<BatchSink>(
        [queue = queue_, shared](Seq seq, std::span<const uint8_t> payload) {
          queue->Push({.source = shared,
                       .reset = std::nullopt,
                       .seq = seq.value,
                       .payload = {payload.begin(), payload.end()}});
        },
        [queue = queue_, shared](ResetReason reason) {
          queue->Push({.source = shared, .reset = reason});
        });
    if (Status status = subscriber_->Add(config, std::move(sink)); !status.ok()) return status;
    ids_.emplace(name, WorkerId(next_id_++));
    return {};
  }
  Status Remove(const std::string& name) {
    const MutexLock lock(mutex_);
    const auto it = ids_.find(name);
    if (it == ids_.end()) return Unknown(name);
    subscriber_->Remove(it->second);
    ids_.erase(it);
    return {};
  }
  Result<SourceStatus> status(const std::string& name) const {
    const MutexLock lock(mutex_);
    const auto it = ids_.find(name);
    if (it == ids_.end()) return Unknown(name);
    return subscriber_->status(it->second);
  }

 private:
  static Status Unknown(const std::string& name) {
    return {StatusCode::kNotFound, "name: unknown source '" + name + "'"};
  }

  mutable Mutex mutex_;
  std::map<std::string, WorkerId> ids_ KV_GUARDED_BY(mutex_);
  uint32_t next_id_ KV_GUARDED_BY(mutex_) = 0;
  const std::shared_ptr<StreamQueue> queue_;
  std::unique_ptr<Subscriber> subscriber_;  // destroyed first: its threads use the queue
};

// The class Subscriber, without asyncio.
class StreamReader {
 public:
  StreamReader(int64_t max_batches, int64_t max_bytes, const std::string& curve_key)
      : queue_(MakeQueue(max_batches, max_bytes)), holder_("Subscriber", Make(curve_key, queue_)) {}

  void Add(const std::string& name, const std::string& endpoint, const std::string& replay_endpoint,
           const std::string& topic, bool bind, const std::string& server_key) {
    if (name.empty()) ThrowInvalid("name: must not be empty");
    SourceConfig config;
    config.endpoint = endpoint;
    config.replay_endpoint = replay_endpoint;
    config.topic = topic;
    config.bind = bind;
    config.server_key = server_key;
    Check(holder_.Call([&](NamedSubscriber& named) { return named.Add(name, config); }));
  }
  void Remove(const std::string& name) {
    Check(holder_.Call([&](NamedSubscriber& named) { return named.Remove(name); }));
  }
  py::dict Status(const std::string& name) {
    const SourceStatus status =
        Take(holder_.Call([&](NamedSubscriber& named) { return named.status(name); }));
    py::dict dict = ToPython(status);
    dict["lag"] = status.lag;
    dict["replayed"] = status.replayed;
    dict["reconnects"] = status.reconnects;
    return dict;
  }
  // Returns None if no item arrives within `timeout` seconds. nullopt: no limit.
  py::object Get(std::optional<double> timeout) {
    py::object item = Wait(timeout);
    if (!item) ThrowClosed("Subscriber");
    return item;
  }
  py::object Next() {
    py::object item = Wait(std::nullopt);
    if (!item) throw py::stop_iteration();
    return item;
  }
  void Close() {
    holder_.Close();
    queue_->Close();
  }
  bool closed() { return holder_.closed(); }
  uint64_t dropped() const { return queue_->dropped(); }
  int fileno() const { return queue_->fd(); }

 private:
  // Like Get. Returns a null object if the queue has ended.
  py::object Wait(std::optional<double> timeout) {
    if (timeout && (std::isnan(*timeout) || *timeout < 0)) {
      ThrowInvalid("timeout: must be at least 0");
    }
    // A timeout is cut to 1e9 seconds, more than 30 years. A slice is a whole number of
    // microseconds. So `left_us` must be one too: a fraction of a microsecond would remain, and the
    // loop would not end.
    double left_us = std::ceil(std::min(timeout.value_or(1e9), 1e9) * 1e6);
    for (;;) {
      const auto slice = static_cast<int64_t>(std::min<double>(left_us, kSliceUs));
      auto item = WithoutGil([&] { return queue_->Pop(slice); });
      if (item) return py::cast(std::move(*item));
      if (queue_->ended()) return {};
      left_us -= static_cast<double>(slice);
      if (timeout && left_us <= 0) return py::none();
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
  }
  static std::shared_ptr<StreamQueue> MakeQueue(int64_t max_batches, int64_t max_bytes) {
    if (max_batches < 1) ThrowInvalid("max_batches: must be at least 1");
    if (max_bytes < 1) ThrowInvalid("max_bytes: must be at least 1");
    auto queue = std::make_shared<StreamQueue>(static_cast<size_t>(max_batches),
                                               static_cast<size_t>(max_bytes));
    if (queue->fd() < 0)
      Throw(kvcast::Status(StatusCode::kUnavailable, "no file descriptor is free"));
    return queue;
  }
  static std::unique_ptr<NamedSubscriber> Make(const std::string& curve_key,
                                               std::shared_ptr<StreamQueue> queue) {
    SubscriberConfig config;
    if (!curve_key.empty()) config.curve_keys = Take(CurveKeyPair::Load(curve_key));
    auto subscriber = Take(WithoutGil([&] { return Subscriber::Create(config); }));
    return std::make_unique<NamedSubscriber>(std::move(subscriber), std::move(queue));
  }

  const std::shared_ptr<StreamQueue> queue_;
  Holder<NamedSubscriber> holder_;
};

py::object ReasonOf(const StreamItem& item) {
  if (!item.reset) return py::none();
  return py::str(ResetReasonName(*item.reset).data());
}

py::object PayloadOf(const StreamItem& item) {
  if (item.reset) return py::none();
  return py::bytes(reinterpret_cast<const char*>(item.payload.data()), item.payload.size());
}

EventBatch DecodeItem(const StreamItem& item) {
  if (item.reset) Throw(Status(StatusCode::kFailedPrecondition, "a reset has no batch"));
  EventBatch batch;
  DecodeCounts counts;
  Check(WithoutGil([&] { return DecodeBatch(item.payload, WireLimits(), batch, counts); }));
  return batch;
}

void AddItem(py::module_& module) {
  py::class_<StreamItem>(module, "StreamItem",
                         R"(One element of a subscriber's stream: a batch, or a reset. Immutable.

A reset means: drop the state of the source. Its batches before this point are no longer valid.)")
      .def_property_readonly(
          "source", [](const StreamItem& item) { return *item.source; }, "Name of the source.")
      .def_property_readonly("reset", &ReasonOf,
                             "None for a batch. Else the reason of the reset: \"restart\", "
                             "\"lost_batches\" or \"doubt\".")
      .def_readonly("seq", &StreamItem::seq, "Sequence number of the batch; 0 for a reset.")
      .def_property_readonly("payload", &PayloadOf, "The bytes of the batch; None for a reset.")
      .def("decode", &DecodeItem,
           "Return the EventBatch, without events that cannot be decoded. Raises MalformedError "
           "if the payload is not a batch, and StateError for a reset.");
}

}  // namespace

void AddSubscriber(py::module_& module) {
  AddItem(module);
  py::class_<StreamReader>(module, "_Subscriber")
      .def(py::init<int64_t, int64_t, const std::string&>(), py::arg("max_batches"),
           py::arg("max_bytes"), py::arg("curve_key"))
      .def("add", &StreamReader::Add, py::arg("name"), py::arg("endpoint"),
           py::arg("replay_endpoint") = "", py::arg("topic") = "", py::arg("bind") = false,
           py::arg("server_key") = "",
           R"(Follow a source.

name: a unique name. endpoint: of the publisher's PUB socket. replay_endpoint: of its ROUTER socket;
    "": lost batches cannot be fetched. topic: subscription prefix; "": all topics.
bind: True: the publisher connects, and this socket listens. server_key: the publisher's public
    key (CURVE); "": no encryption.

Raises InvalidArgumentError for a wrong endpoint, StateError for a name in use, UnavailableError if
the endpoint cannot be bound, and ClosedError.)")
      .def("remove", &StreamReader::Remove, py::arg("name"),
           "Stop following a source. Queued items stay. Raises NotFoundError and ClosedError.")
      .def("status", &StreamReader::Status, py::arg("name"),
           "Return a dict of the source: state (\"synced\", ...), reason, next_seq, lag, batches, "
           "gaps, replayed, lost, duplicates, reconnects, resets. Raises NotFoundError and "
           "ClosedError.")
      .def("get", &StreamReader::Get, py::arg("timeout") = py::none(),
           "Return the next StreamItem, or None after `timeout` seconds (None: no limit). The GIL "
           "is released. Raises ClosedError if the subscriber is closed and no item is left, and "
           "InvalidArgumentError for a negative timeout.")
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &StreamReader::Next)
      .def("fileno", &StreamReader::fileno,
           "A file descriptor that is readable while an item is queued, and after close, for event "
           "loops.")
      .def_property_readonly("dropped", &StreamReader::dropped,
                             "Number of queued batches that were dropped because another item did "
                             "not fit into the queue.")
      .def_property_readonly("closed", &StreamReader::closed)
      .def("close", &StreamReader::Close,
           "Stop following all sources. Queued items can still be read. A second call has no "
           "effect.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](StreamReader& self, const py::args&) { self.Close(); });
}

}  // namespace kvcast::python
