// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/publisher.h"

#include <pybind11/stl.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/router/scheme_prover.h"
#include "python/src/arguments.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/events.h"
#include "python/src/holder.h"
#include "src/base/clock.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

double TimeOf(std::optional<double> ts) {
  if (!ts) return WallSeconds();
  if (!std::isfinite(*ts)) ThrowInvalid("ts: must be finite");
  return *ts;
}

PublisherConfig ConfigOf(const std::string& endpoint, const std::string& replay_endpoint,
                         const std::string& topic, int64_t dp_rank, const std::string& dialect) {
  PublisherConfig config;
  config.endpoint = endpoint;
  config.replay_endpoint = replay_endpoint;
  config.topic = topic;
  config.data_parallel_rank = dp_rank;
  const auto parsed = ParseDialect(dialect);
  if (!parsed) ThrowInvalid("dialect: unknown dialect '" + dialect + "'");
  config.dialect = *parsed;
  return config;
}

// `key`, `clients`: the paths of the secret key and of the list of clients. InvalidArgumentError:
// only one of them is set.
void ReadCurve(const std::string& key, const std::string& clients, PublisherConfig& config) {
  if (key.empty() != clients.empty()) ThrowInvalid("curve_key and curve_clients: set both or none");
  if (key.empty()) return;
  CurveServer curve{.keys = Take(CurveKeyPair::Load(key)),
                    .clients = Take(AccessList::Load(clients))};
  config.curve = std::move(curve);
}

// The publisher answers challenges with the hash scheme that its own batches prove.
// `hash_seeds`: candidates besides the well-known seeds.
void AnswerChallenges(const std::vector<std::string>& hash_seeds, PublisherConfig& config) {
  SchemeDetectorConfig candidates;
  candidates.seeds.insert(candidates.seeds.end(), hash_seeds.begin(), hash_seeds.end());
  const std::shared_ptr<SchemeProver> prover = Take(SchemeProver::Create(candidates));
  config.observe = [prover](const EventBatch* batch) { prover->Observe(batch); };
  config.answer_challenge = [prover](uint64_t nonce) { return prover->Answer(nonce); };
}

// The class KvEventPublisher.
class EventPublisher {
 public:
  explicit EventPublisher(const PublisherConfig& config)
      : holder_("KvEventPublisher", Take(WithoutGil([&] { return Publisher::Create(config); }))) {}

  uint64_t Publish(const py::object& events, std::optional<double> ts) {
    if (py::isinstance<EventBatch>(events)) {
      if (ts) ThrowInvalid("ts: a batch has its own time stamp");
      return Send(events.cast<const EventBatch&>());
    }
    return Send({.ts = TimeOf(ts), .events = EventsOf(events)});
  }
  uint64_t PublishStored(const py::object& hashes, const py::object& tokens, int64_t block_size,
                         const py::object& parent, std::optional<double> ts,
                         const py::kwargs& more) {
    return SendOne(MakeStored(hashes, tokens, block_size, parent, more), ts);
  }
  uint64_t PublishRemoved(const py::object& hashes, std::optional<std::string> medium,
                          std::optional<int64_t> group_idx, std::optional<double> ts) {
    BlockRemoved removed;
    removed.block_hashes = HashArgument(hashes, "block_hashes").Copy();
    removed.medium = std::move(medium);
    removed.group_idx = group_idx;
    return SendOne(std::move(removed), ts);
  }
  uint64_t PublishCleared(std::optional<std::string> medium, std::optional<double> ts) {
    return SendOne(AllBlocksCleared{.medium = std::move(medium)}, ts);
  }
  uint64_t PublishPayload(const py::object& payload) {
    const PayloadArgument bytes(payload, "payload");
    return Take(holder_.CallAlone(
                    [&](Publisher& publisher) { return publisher.PublishPayload(bytes.bytes()); }))
        .value;
  }
  void Add(const py::object& events, std::optional<double> ts) {
    std::vector<Event> read = EventsOf(events);
    const double time = TimeOf(ts);
    holder_.CallAlone([&](Publisher& publisher) {
      publisher.Add(std::move(read), time);
      return true;
    });
  }
  void Flush() {
    Check(holder_.CallAlone([](Publisher& publisher) { return publisher.Flush(); }));
  }
  void Close() { holder_.Close(); }
  bool closed() { return holder_.closed(); }
  uint64_t next_seq() {
    return holder_.Call([](Publisher& publisher) { return publisher.next_seq().value; });
  }
  std::string endpoint() {
    return holder_.Call([](Publisher& publisher) { return publisher.endpoint(); });
  }
  std::string replay_endpoint() {
    return holder_.Call([](Publisher& publisher) { return publisher.replay_endpoint(); });
  }
  py::dict Counters() {
    const auto counters = holder_.Call([](Publisher& publisher) { return publisher.counters(); });
    py::dict dict;
    dict["batches"] = counters.batches;
    dict["bytes"] = counters.bytes;
    dict["heartbeats"] = counters.heartbeats;
    dict["encode_errors"] = counters.encode_errors;
    dict["live_dropped"] = counters.live_dropped;
    dict["replay_requests"] = counters.replay_requests;
    dict["replay_batches"] = counters.replay_batches;
    dict["replay_rejects"] = counters.replay_rejects;
    return dict;
  }

 private:
  uint64_t SendOne(Event event, std::optional<double> ts) {
    EventBatch batch{.ts = TimeOf(ts)};
    batch.events.push_back(std::move(event));
    return Send(std::move(batch));
  }
  uint64_t Send(EventBatch batch) {
    return Take(holder_.CallAlone(
                    [&](Publisher& publisher) { return publisher.Publish(std::move(batch)); }))
        .value;
  }

  Holder<Publisher> holder_;
};

std::unique_ptr<EventPublisher> MakePublisher(
    const std::string& endpoint, const std::string& replay_endpoint, const std::string& topic,
    int64_t dp_rank, const std::string& dialect, int64_t ring_batches, int64_t heartbeat_ms,
    int64_t flush_ms, bool hashes_only, const std::string& curve_key,
    const std::string& curve_clients, int64_t send_hwm, const std::string& host_ip,
    std::optional<bool> bind, bool answer_challenges, const std::vector<std::string>& hash_seeds) {
  PublisherConfig config = ConfigOf(endpoint, replay_endpoint, topic, dp_rank, dialect);
  if (ring_batches < 1) ThrowInvalid("ring_batches: must be at least 1");
  config.ring_batches = static_cast<size_t>(ring_batches);
  config.heartbeat_ms = heartbeat_ms;
  config.flush_ms = flush_ms;
  config.hashes_only = hashes_only;
  if (send_hwm < 0 || send_hwm > std::numeric_limits<int>::max()) {
    ThrowInvalid("send_hwm: must be in 0..2147483647");
  }
  config.send_hwm = static_cast<int>(send_hwm);
  config.host_ip = host_ip;
  config.binds = bind;
  ReadCurve(curve_key, curve_clients, config);
  // Without a replay endpoint no peer can send a challenge.
  if (answer_challenges && !replay_endpoint.empty()) AnswerChallenges(hash_seeds, config);
  return std::make_unique<EventPublisher>(config);
}

constexpr char kPublisherDoc[] =
    R"(Publish KV-cache events over ZeroMQ, as vLLM's ZmqEventPublisher does.

endpoint: address of the PUB socket: tcp://HOST:PORT (port 0: any free port), ipc://PATH or
    inproc://NAME. It is bound if it contains "*" or "::", or is ipc, inproc, port 0, 0.0.0.0 or
    127.x; otherwise it is connected.
replay_endpoint: address of the ROUTER socket that answers replays; "": no replay.
topic: first frame of each message. dp_rank: the data-parallel rank; it is added to tcp ports.
dialect: layout of the events, "vllm-12" (vLLM 0.33) or another name of encode_batch.
ring_batches: number of batches that a replay can return.
heartbeat_ms: after this time without a batch, an empty batch is published; 0: never.
flush_ms: if no batch is published within this time after add, the queued events are published in
    a batch of their own.
hashes_only: True leaves out tokens and other content of prompts. A router then has exact answers
    only if the publisher answers challenges.
answer_challenges: True: the publisher detects the hash scheme in the published stores, before their
    tokens are left out, and proves it to routers that ask at the replay endpoint.
hash_seeds: the possible seeds of the hashes (PYTHONHASHSEED of the engine), besides the well-known
    seeds; for answer_challenges.
curve_key, curve_clients: paths of the secret key and of the list of clients (CURVE); "": none.
send_hwm: maximum number of messages that wait for one subscriber; more messages are dropped. 0: no
    limit.
host_ip: address of this node, in place of * in tcp://*:0; "": the address of the default route.
bind: True binds the PUB socket, False connects it; None: the endpoint decides, see above.

Thread-safe: calls of several threads are ordered by a lock. The GIL is released. Closing (or
leaving the with statement) waits up to one second until subscribers have the last batches. Every
method but close raises ClosedError after close. The constructor raises InvalidArgumentError for an
invalid argument, and UnavailableError for an address in use.)";

void AddPublishing(py::class_<EventPublisher>& type) {
  type.def("publish", &EventPublisher::Publish, py::arg("events"), py::arg("ts") = py::none(),
           R"(Publish one batch, and return its sequence number.

events: an EventBatch, or an iterable of BlockStored, BlockRemoved and AllBlocksCleared objects.
ts: seconds since the Unix epoch; None: now. Raises InvalidArgumentError if the batch cannot be
encoded in the dialect.)")
      .def("publish_stored", &EventPublisher::PublishStored, py::arg("block_hashes"),
           py::arg("token_ids"), py::arg("block_size"), py::arg("parent_block_hash") = py::none(),
           py::arg("ts") = py::none(),
           "Publish one BlockStored event in a batch of its own, and return the sequence number. "
           "The arguments are those of BlockStored, and ts.")
      .def("publish_removed", &EventPublisher::PublishRemoved, py::arg("block_hashes"),
           py::kw_only(), py::arg("medium") = py::none(), py::arg("group_idx") = py::none(),
           py::arg("ts") = py::none(),
           "Publish one BlockRemoved event in a batch of its own, and return the sequence number.")
      .def("publish_cleared", &EventPublisher::PublishCleared, py::kw_only(),
           py::arg("medium") = py::none(), py::arg("ts") = py::none(),
           "Publish one AllBlocksCleared event in a batch of its own, and return the sequence "
           "number.")
      .def("publish_payload", &EventPublisher::PublishPayload, py::arg("payload"),
           R"(Publish bytes unchanged, and return the sequence number.

With hashes_only, decode the batch, leave out the content of prompts, and publish the batch in the
dialect of the publisher. Raises InvalidArgumentError for empty bytes. With hashes_only, raises
MalformedError or LimitError if the batch or one of its events cannot be decoded. A call that raises
one of these errors publishes nothing, but uses a sequence number.)")
      .def("add", &EventPublisher::Add, py::arg("events"), py::arg("ts") = py::none(),
           "Queue events for the next batch. Without a batch within flush_ms, they are published "
           "in a batch of their own.")
      .def("flush", &EventPublisher::Flush, "Publish the events that add has queued.");
}

}  // namespace

void AddPublisher(py::module_& module) {
  py::class_<EventPublisher> type(module, "KvEventPublisher", kPublisherDoc);
  type.def(py::init(&MakePublisher), py::arg("endpoint") = "tcp://127.0.0.1:5557",
           py::arg("replay_endpoint") = "", py::arg("topic") = "", py::arg("dp_rank") = 0,
           py::kw_only(), py::arg("dialect") = "vllm-12", py::arg("ring_batches") = 10000,
           py::arg("heartbeat_ms") = 1000, py::arg("flush_ms") = 50, py::arg("hashes_only") = false,
           py::arg("curve_key") = "", py::arg("curve_clients") = "", py::arg("send_hwm") = 100000,
           py::arg("host_ip") = "", py::arg("bind") = py::none(),
           py::arg("answer_challenges") = false,
           py::arg("hash_seeds") = std::vector<std::string>());
  AddPublishing(type);
  type.def_property_readonly("next_seq", &EventPublisher::next_seq,
                             "The sequence number of the next batch.")
      .def_property_readonly("endpoint", &EventPublisher::endpoint,
                             "The endpoint with its actual port.")
      .def_property_readonly("replay_endpoint", &EventPublisher::replay_endpoint,
                             "The replay endpoint with its actual port; \"\": no replay.")
      .def_property_readonly("closed", &EventPublisher::closed)
      .def("counters", &EventPublisher::Counters,
           "Return a dict of counters since the start: batches, bytes, heartbeats, ...")
      .def("close", &EventPublisher::Close, "Stop publishing. A second call has no effect.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](EventPublisher& self, const py::args&) { self.Close(); });
}

}  // namespace kvcast::python
