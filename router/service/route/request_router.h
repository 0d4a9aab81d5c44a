// RequestRouter: turns the index's answers for a prompt into a routing decision. It books the load
// of each routed request, and remembers the blocks that the request will store ("expected" blocks).
//
// A decision computes a cost for each worker, in seconds. kvcast/router/selector.h has the sum,
// FleetForecast computes its parts, and docs/options.md has the weights. If the load rates of a
// worker are known (load_rates.h), they replace the weights load_token and load_storage_token.
//
// RequestRouter chooses the worker with the lowest cost. With a temperature T > 0, it draws each
// worker with a probability proportional to exp(-(cost - lowest cost) / (T * S)). S is the time to
// compute the whole prompt. With a limit of the time to the first token (ttft_slo_ms), it considers
// only the workers that are predicted to keep the limit. Of these, it chooses the worker with the
// lowest cost for the fleet (FleetCost). If no worker is predicted to keep the limit, it chooses
// the worker with the shortest predicted time.
//
// A connecting worker is chosen only if all workers are connecting. The tokens that a worker holds
// are multiplied by the weight of its source's state (kvcast/stream/subscriber.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/router/selector.h"
#include "kvcast/router/speculative_prefixes.h"
#include "router/select/fleet_forecast.h"
#include "router/service/load/peer_loads.h"
#include "router/service/route/feedback.h"
#include "router/service/route/query.h"
#include "src/base/mutex.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {

// The rule by which a worker is chosen. kFullOnly and kRoundRobin are baselines for
// tests.
enum class RoutingPolicy : uint8_t {
  kExact,       // lowest cost; predicts the result of the engine's own lookup
  kFullOnly,    // lowest cost; predicts by MatchPolicy::kFullOnly
  kRoundRobin,  // one worker after the other
};

struct RoutingConfig {
  RoutingPolicy policy = RoutingPolicy::kExact;
  CostWeights weights;
  ForecastConfig forecast;
  double temperature = 0;
  SpeculativeConfig speculative;
  // Maximum number of expected hashes per request, evenly spaced. Without this limit, a burst
  // of long prompts would evict the expected hashes of all other requests.
  int64_t speculative_hashes_max = 64;
  // A booking expires after this time if no feedback ends it. If more than bookings_max requests
  // are booked at one time, the oldest bookings expire.
  int64_t booking_lifetime_ms = 60000;
  size_t bookings_max = 65536;
};

// The current work of a worker, as the router counts it.
struct WorkerLoad {
  int64_t active_prefill_tokens = 0;  // routed to the worker and not computed yet
  int64_t decode_blocks = 0;          // KV blocks of requests in decode
  int64_t queued_requests = 0;        // as reported by the engine
  // The requests that other routers have sent to the worker; see FleetForecast::SetOthers.
  int64_t peer_requests = 0;
  int64_t peer_prefill_tokens = 0;
};

// The other routers whose load a decision counts.
struct PeersOfDecision {
  size_t routers = 0;
  // The age of the oldest load that counts. nullopt: no other router counts.
  std::optional<double> age_ms;

  static PeersOfDecision Of(const PeerView& view, double now_ms);
};

struct RouteCandidate {
  QueryAnswer answer;
  int64_t speculative_tokens = 0;
  WorkerLoad load;
  Candidate parts;             // the parts of the cost
  double cost = 0;             // seconds
  TokenLoadCosts token_costs;  // cost of one loaded token, in computed tokens
  bool eligible = true;
  std::string reason;  // why the worker is not eligible
};

// True: `a` is chosen before `b`. Equal costs are ordered as SelectWorker orders them.
bool IsCheaper(const RouteCandidate& a, const RouteCandidate& b);

// The predicted time to the first token.
inline double FirstTokenSeconds(const Candidate& parts) {
  return parts.queue_s + parts.load_s + parts.compute_s;
}

struct RouteDecision {
  std::string request_id;
  std::string traceparent;  // see Query
  int64_t prompt_tokens = 0;
  size_t chosen = 0;  // index into `candidates`
  // Only with Query::ttft_slo_ms: whether the chosen worker is predicted to keep the limit.
  std::optional<bool> keeps_slo;
  // A hint for the engine, see CacheRequest::keep_prefix_tokens. 0: none.
  int64_t keep_prefix_tokens = 0;
  // A second hint for the engine, see CacheRequest::will_not_return_after.
  std::optional<int64_t> will_not_return_after;
  std::vector<RouteCandidate> candidates;
  std::optional<PeersOfDecision> peers;  // nullopt: the router shares no load
  std::string reason;
};

struct RoutingCounters {
  uint64_t decisions = 0;
  std::array<uint64_t, 3> hits{};  // by HitKind of the chosen worker
  // Partial hits by the limiting group; -1: no single group.
  std::map<int64_t, uint64_t> partial_by_group;
  uint64_t bookings = 0;  // current number
  uint64_t expired_bookings = 0;
  uint64_t speculative_hashes = 0;  // current number
  // Decisions for a worker that was expected to hold more blocks than the index showed.
  uint64_t speculative_choices = 0;
  // Requests with feedback about their admission. Their predicted tokens are compared with the
  // reused tokens.
  uint64_t compared = 0;
  uint64_t equal = 0;
  uint64_t predicted_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t over_tokens = 0;
  uint64_t under_tokens = 0;
  // Requests with a reported first token: their number, and sums in seconds of the predicted times
  // to the first token, of the real times, and of the absolute differences.
  uint64_t first_tokens = 0;
  double predicted_first_token_s = 0;
  double first_token_s = 0;
  double first_token_error_s = 0;
};

// Thread-safe.
class RequestRouter {
 public:
  // `random` returns evenly distributed numbers from [0, 1).
  RequestRouter(const RoutingConfig& config, std::function<double()> random)
      : config_(config),
        random_(std::move(random)),
        speculative_(config.speculative),
        forecast_(config.forecast) {}

  RoutingPolicy policy() const { return config_.policy; }
  // kUnavailable: there is no worker to choose from. Times are those of a monotonic clock;
  // fractions of a millisecond count.
  Result<RouteDecision> Decide(const Query& query, std::vector<QueryAnswer> answers, double now_ms);
  // For kFirstToken and kFinished. kNotFound: the booking does not exist or has expired.
  Status Take(const Feedback& feedback, double now_ms);
  // Admit records the reused tokens of a booked request. Only the first admission of a request
  // counts. kNotFound: there is no such booking.
  struct Admission {
    std::string worker;
    int64_t predicted_tokens = 0;
    uint64_t next_seq = 0;  // next_seq of the chosen worker's answer
    bool comparable = false;
    bool first = false;                     // first admission of this request
    std::optional<int64_t> limiting_group;  // limiting group of the same answer
  };
  Result<Admission> Admit(const std::string& request_id, int64_t reused_tokens);
  void SetQueue(WorkerId worker, int64_t queued_requests);

  // Confirms only expected prefixes that hashes name. A prefix that content names is expected until
  // its time ends.
  void OnBatch(WorkerId worker, const EventBatch& batch);
  // Call if the engine restarted, or if its blocks were dropped or replaced by a snapshot.
  void OnReset(WorkerId worker);
  void OnRemoved(WorkerId worker);

  // The exchange of loads with other routers; see LoadSharing. `on_change` is called with the lock
  // held, for each change of this router's load. `on_change` must not block.
  void ShareLoad(std::function<void()> on_change);
  FleetInFlight OwnLoad(double now_ms);
  void SetPeerLoads(FleetInFlight sum, double now_ms);
  void SetPeerView(const PeerView& view);
  // nullopt: the router shares no load.
  std::optional<PeersOfDecision> peers(double now_ms) const;

  WorkerLoad load(WorkerId worker) const;
  RoutingCounters counters() const;

 private:
  struct Booking {
    WorkerId worker;
    std::string name;
    int64_t predicted_tokens = 0;
    uint64_t next_seq = 0;
    bool comparable = false;  // see WorkerIngest::NoteReuse
    std::optional<int64_t> limiting_group;
    int64_t prefill_tokens = 0;
    int64_t decode_blocks = 0;
    bool decoding = false;
    bool compared = false;
    double routed_at_ms = 0;
    double first_token_s = 0;  // predicted
    double expires_at_ms = 0;
    uint64_t number = 0;  // number of the request in forecast_
  };

  // The workers on which a prefix of the prompt is expected, for answers with the same prefixes.
  struct ExpectedOf {
    SharedPrefixes prefixes;
    std::vector<SpeculativePrefixes::Expected> workers;
  };
  // The tokens of the prompt that are expected on the worker of the answer. `expected` keeps the
  // lookups for earlier answers of the decision.
  int64_t ExpectedTokens(const QueryAnswer& answer, std::vector<ExpectedOf>& expected,
                         double now_ms) KV_REQUIRES(mutex_);
  // Sets all other members of a candidate whose `answer` is set. `prefix_tokens`: tokens
  // between two prefixes that the forecast uses; 0: not known.
  void Weigh(const Query& query, int64_t expected_tokens, int64_t prefix_tokens,
             RouteCandidate& weighed) KV_REQUIRES(mutex_);
  static FleetForecast::Facts FactsOf(const Query& query, const RouteCandidate& candidate,
                                      int64_t prefix_tokens);
  // Sets `kept`. False: no worker is predicted to keep the limit.
  size_t ChooseWithin(const std::vector<RouteCandidate>& candidates, double limit_s, bool& kept)
      KV_REQUIRES(mutex_);
  size_t Choose(const Query& query, const std::vector<RouteCandidate>& candidates)
      KV_REQUIRES(mutex_);
  size_t NextInTurn(const std::vector<RouteCandidate>& candidates) KV_REQUIRES(mutex_);
  // `facts`: of the chosen worker.
  void Book(const Query& query, const RouteDecision& decision, const FleetForecast::Facts& facts,
            double now_ms) KV_REQUIRES(mutex_);
  void BeginDecoding(Booking& booking) KV_REQUIRES(mutex_);
  void Release(const std::string& request_id, double now_ms) KV_REQUIRES(mutex_);
  void Expire(double now_ms) KV_REQUIRES(mutex_);
  void NoteChange() KV_REQUIRES(mutex_) {
    if (on_change_) on_change_();
  }
  WorkerLoad LoadOf(WorkerId worker) const KV_REQUIRES(mutex_);

  const RoutingConfig config_;
  const std::function<double()> random_;
  mutable Mutex mutex_;
  SpeculativePrefixes speculative_ KV_GUARDED_BY(mutex_);
  FleetForecast forecast_ KV_GUARDED_BY(mutex_);
  std::unordered_map<WorkerId, WorkerLoad> loads_ KV_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Booking, SeededTextHash> bookings_ KV_GUARDED_BY(mutex_);
  // The request id and expires_at_ms of each booking, in order of booking.
  std::deque<std::pair<std::string, double>> order_ KV_GUARDED_BY(mutex_);
  RoundRobin round_robin_ KV_GUARDED_BY(mutex_);
  RoutingCounters counters_ KV_GUARDED_BY(mutex_);
  uint64_t next_number_ KV_GUARDED_BY(mutex_) = 1;
  std::function<void()> on_change_ KV_GUARDED_BY(mutex_);
  std::optional<PeerView> peers_ KV_GUARDED_BY(mutex_);  // nullopt: no load is shared
};

}  // namespace kvcast::router
