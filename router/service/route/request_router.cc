// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/request_router.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "kvcast/spec/cache_spec.h"
#include "router/service/json/json_fields.h"
#include "router/service/route/request_ids.h"

namespace kvcast::router {
namespace {

int64_t LongestOfAnyGroup(const WorkerMatch& match) {
  int64_t longest = 0;
  for (const int64_t tokens : match.per_group_tokens) longest = std::max(longest, tokens);
  return longest;
}

std::string Seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f s", value);
  return text;
}

// Returns at most `most` of the prefixes from position `held` on, evenly spaced. The result ends
// with the longest prefix. REQUIRES: `most` is positive.
std::vector<PrefixName> Sample(std::span<const PrefixName> prefixes, int64_t held, int64_t most) {
  std::vector<PrefixName> sample;
  const int64_t stride = std::max<int64_t>(CeilDiv(std::ssize(prefixes) - held, most), 1);
  for (int64_t i = std::ssize(prefixes) - 1; i >= held; i -= stride) {
    sample.push_back(prefixes[static_cast<size_t>(i)]);
  }
  std::ranges::reverse(sample);
  return sample;
}

std::string ReasonOf(const Query& query, const std::vector<RouteCandidate>& candidates,
                     size_t chosen) {
  const RouteCandidate& best = candidates[chosen];
  const WorkerMatch& match = best.answer.match;
  std::string text = std::to_string(match.gpu_tokens) + " of " +
                     std::to_string(query.prompt_tokens) + " tokens reusable";
  if (match.with_cpu_tokens > match.gpu_tokens) {
    text += ", " + std::to_string(match.with_cpu_tokens - match.gpu_tokens) + " to load";
  }
  if (match.with_storage_tokens > match.with_cpu_tokens) {
    text += ", " + std::to_string(match.with_storage_tokens - match.with_cpu_tokens) +
            " to load from storage";
  }
  if (best.speculative_tokens > match.gpu_tokens) {
    text += ", " + std::to_string(best.speculative_tokens) + " expected soon";
  }
  text += "; cost " + Seconds(best.cost);
  const RouteCandidate* other = nullptr;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const bool rival = i != chosen && candidates[i].eligible;
    if (rival && (other == nullptr || IsCheaper(candidates[i], *other))) other = &candidates[i];
  }
  if (other == nullptr) return text + ", the only worker to choose from";
  if (other->cost >= best.cost) {
    text += ", the lowest; next is ";
  } else {
    text += query.ttft_slo_ms ? "; the lowest is " : ", drawn by temperature; the lowest is ";
  }
  return text + other->answer.name + " with " + Seconds(other->cost);
}

}  // namespace

bool IsCheaper(const RouteCandidate& a, const RouteCandidate& b) {
  return std::tuple(!a.eligible, a.cost, -a.answer.match.gpu_tokens, a.answer.match.worker) <
         std::tuple(!b.eligible, b.cost, -b.answer.match.gpu_tokens, b.answer.match.worker);
}

PeersOfDecision PeersOfDecision::Of(const PeerView& view, double now_ms) {
  PeersOfDecision peers{.routers = view.routers, .age_ms = std::nullopt};
  if (view.oldest_us) {
    peers.age_ms = std::max(now_ms - static_cast<double>(*view.oldest_us) / 1000, 0.0);
  }
  return peers;
}

int64_t RequestRouter::ExpectedTokens(const QueryAnswer& answer, std::vector<ExpectedOf>& expected,
                                      double now_ms) {
  if (!answer.prefixes) return 0;
  auto entry = std::ranges::find(expected, answer.prefixes, &ExpectedOf::prefixes);
  if (entry == expected.end()) {
    expected.push_back(
        {answer.prefixes, speculative_.Match(*answer.prefixes, static_cast<int64_t>(now_ms))});
    entry = expected.end() - 1;
  }
  const auto worker = std::ranges::find(entry->workers, answer.match.worker,
                                        &SpeculativePrefixes::Expected::worker);
  if (worker == entry->workers.end()) return 0;
  return static_cast<int64_t>(worker->prefixes) * answer.hash_block_size;
}

FleetForecast::Facts RequestRouter::FactsOf(const Query& query, const RouteCandidate& candidate,
                                            int64_t prefix_tokens) {
  const QueryAnswer& answer = candidate.answer;
  const WorkerMatch& match = answer.match;
  const auto of = [&](int64_t tokens) {
    return std::min(static_cast<int64_t>(static_cast<double>(tokens) * answer.weight),
                    query.prompt_tokens);
  };
  FleetForecast::Facts facts;
  facts.worker = match.worker;
  facts.model = answer.model;
  facts.prompt_tokens = query.prompt_tokens;
  facts.reusable_tokens = of(match.gpu_tokens);
  facts.speculative_tokens = candidate.speculative_tokens;
  const int64_t held = std::max(facts.reusable_tokens, facts.speculative_tokens);
  const int64_t upto_cpu = std::max(of(match.with_cpu_tokens), held);
  facts.from_cpu_tokens = upto_cpu - held;
  facts.from_storage_tokens = std::max(of(match.with_storage_tokens), upto_cpu) - upto_cpu;
  facts.resident_tokens = of(LongestOfAnyGroup(match));
  facts.tokens_per_prefix = prefix_tokens;
  facts.load_costs = candidate.token_costs;
  facts.cache_tokens = answer.cache_tokens;
  return facts;
}

void RequestRouter::Weigh(const Query& query, int64_t expected_tokens, int64_t prefix_tokens,
                          RouteCandidate& weighed) {
  const QueryAnswer& answer = weighed.answer;
  const WorkerId worker = answer.match.worker;
  weighed.speculative_tokens = std::min(expected_tokens, query.prompt_tokens);
  weighed.load = LoadOf(worker);
  weighed.token_costs = CostsOfLoads(answer.load_costs, config_.weights);
  weighed.parts = forecast_.Weigh(FactsOf(query, weighed, prefix_tokens), config_.weights);
  weighed.parts.queue_s +=
      config_.weights.queued_request * static_cast<double>(weighed.load.queued_requests);
  weighed.cost = Cost(weighed.parts, config_.weights, forecast_.delay());
  if (answer.state == SourceState::kConnecting) {
    weighed.eligible = false;
    weighed.reason = "connecting";
  }
}

size_t RequestRouter::ChooseWithin(const std::vector<RouteCandidate>& candidates, double limit_s,
                                   bool& kept) {
  const auto keeps = [&](const RouteCandidate& candidate) {
    return candidate.eligible && FirstTokenSeconds(candidate.parts) <= limit_s;
  };
  kept = std::ranges::any_of(candidates, keeps);
  const double delay = forecast_.delay();
  const auto rank = [&](const RouteCandidate& candidate) {
    const double cost = kept ? FleetCost(candidate.parts, config_.weights, delay)
                             : FirstTokenSeconds(candidate.parts);
    return std::tuple(kept ? !keeps(candidate) : !candidate.eligible, cost, candidate.cost,
                      candidate.answer.match.worker);
  };
  return static_cast<size_t>(std::ranges::min_element(candidates, {}, rank) - candidates.begin());
}

size_t RequestRouter::Choose(const Query& query, const std::vector<RouteCandidate>& candidates) {
  const auto best = std::min_element(candidates.begin(), candidates.end(), IsCheaper);
  const double temperature = query.temperature.value_or(config_.temperature);
  // The time to compute the whole prompt on a worker that holds no block of the prompt, times the
  // temperature.
  const double scale =
      temperature * forecast_.PromptSeconds(best->answer.model, query.prompt_tokens);
  if (scale <= 0) return static_cast<size_t>(best - candidates.begin());
  std::vector<double> cumulative;
  for (const RouteCandidate& candidate : candidates) {
    const double odds = candidate.eligible ? std::exp((best->cost - candidate.cost) / scale) : 0.0;
    cumulative.push_back((cumulative.empty() ? 0.0 : cumulative.back()) + odds);
  }
  const double drawn = random_() * cumulative.back();
  const auto it = std::upper_bound(cumulative.begin(), cumulative.end(), drawn);
  return std::min(static_cast<size_t>(it - cumulative.begin()), candidates.size() - 1);
}

size_t RequestRouter::NextInTurn(const std::vector<RouteCandidate>& candidates) {
  std::vector<Candidate> eligible;
  for (const RouteCandidate& candidate : candidates) {
    if (candidate.eligible) eligible.push_back({.worker = candidate.answer.match.worker});
  }
  const auto next = round_robin_.Next(eligible);
  const auto it = std::ranges::find_if(candidates, [&next](const RouteCandidate& candidate) {
    return candidate.answer.match.worker == next;
  });
  return static_cast<size_t>(it - candidates.begin());
}

static Query WithoutPrompt(const Query& asked, const std::vector<QueryAnswer>& answers) {
  Query query;
  query.prompt_tokens = asked.prompt_tokens;
  query.temperature = asked.temperature;
  query.ttft_slo_ms = asked.ttft_slo_ms;
  if (query.prompt_tokens == 0) {  // by hashes: the prompt continues after the last hash
    for (const QueryAnswer& answer : answers) {
      query.prompt_tokens =
          std::max(query.prompt_tokens, std::ssize(asked.hashes) * answer.hash_block_size + 1);
    }
  }
  query.prompt_tokens = std::min(query.prompt_tokens, kMaxPromptTokens);
  return query;
}

// Returns the first answer that names a prefix of the prompt. If there is none: the first answer.
static const QueryAnswer& FirstWithNames(const std::vector<QueryAnswer>& answers) {
  const auto it = std::ranges::find_if(answers, [](const QueryAnswer& answer) {
    return answer.prefixes != nullptr && !answer.prefixes->empty();
  });
  return it == answers.end() ? answers.front() : *it;
}

Result<RouteDecision> RequestRouter::Decide(const Query& asked, std::vector<QueryAnswer> answers,
                                            double now_ms) {
  if (answers.empty()) return Status(StatusCode::kUnavailable, "there is no worker");
  const Query query = WithoutPrompt(asked, answers);
  const MutexLock lock(mutex_);
  Expire(now_ms);
  RouteDecision decision;
  decision.prompt_tokens = query.prompt_tokens;
  std::vector<ExpectedOf> expected;
  // Two workers may have different names for one prefix, and prefixes of different lengths. The
  // forecast uses the prefixes of one worker.
  const QueryAnswer& named = FirstWithNames(answers);
  const SharedPrefixes prefixes = named.prefixes;
  const int64_t prefix_tokens = named.hash_block_size;
  forecast_.Begin(prefixes ? std::span<const PrefixName>(*prefixes) : std::span<const PrefixName>(),
                  now_ms / 1000);
  decision.candidates.reserve(answers.size());
  for (QueryAnswer& answer : answers) {
    const int64_t tokens = ExpectedTokens(answer, expected, now_ms);
    decision.candidates.emplace_back().answer = std::move(answer);
    Weigh(query, tokens, prefix_tokens, decision.candidates.back());
  }
  const bool any = std::ranges::any_of(decision.candidates, &RouteCandidate::eligible);
  for (RouteCandidate& candidate : decision.candidates) candidate.eligible |= !any;
  if (config_.policy == RoutingPolicy::kRoundRobin) {
    decision.chosen = NextInTurn(decision.candidates);
    decision.reason = "round robin";
  } else if (query.ttft_slo_ms) {
    bool kept = false;
    decision.chosen = ChooseWithin(decision.candidates, *query.ttft_slo_ms / 1000, kept);
    decision.keeps_slo = kept;
    decision.reason = ReasonOf(query, decision.candidates, decision.chosen) +
                      (kept ? "; keeps the limit" : "; no worker is predicted to keep the limit");
  } else {
    decision.chosen = Choose(query, decision.candidates);
    decision.reason = ReasonOf(query, decision.candidates, decision.chosen);
  }
  const FleetForecast::Facts facts =
      FactsOf(query, decision.candidates[decision.chosen], prefix_tokens);
  decision.keep_prefix_tokens = forecast_.KeepPrefixTokens(facts);
  decision.will_not_return_after = forecast_.WillNotReturnAfter(facts);
  if (peers_) decision.peers = PeersOfDecision::Of(*peers_, now_ms);
  decision.traceparent = asked.traceparent;
  decision.request_id = asked.request_id.empty() ? RandomRequestId() : asked.request_id;
  if (asked.book) Book(query, decision, facts, now_ms);
  return decision;
}

void RequestRouter::Book(const Query& query, const RouteDecision& decision,
                         const FleetForecast::Facts& facts, double now_ms) {
  const RouteCandidate& chosen = decision.candidates[decision.chosen];
  const WorkerMatch& match = chosen.answer.match;
  const int64_t hash_block_size = chosen.answer.hash_block_size;
  ++counters_.decisions;
  ++counters_.hits[static_cast<size_t>(match.hit)];
  if (match.hit == HitKind::kPartial) {
    ++counters_.partial_by_group[match.limiting_group.value_or(-1)];
  }
  counters_.speculative_choices += chosen.speculative_tokens > match.gpu_tokens;
  Release(decision.request_id, now_ms);
  Booking booking{.worker = match.worker,
                  .name = chosen.answer.name,
                  .predicted_tokens = match.gpu_tokens,
                  .next_seq = chosen.answer.next_seq,
                  .comparable = chosen.answer.exact || chosen.answer.reuse_contradicts,
                  .limiting_group = match.limiting_group};
  const int64_t reusable = std::max(match.gpu_tokens, chosen.speculative_tokens);
  booking.prefill_tokens = std::max<int64_t>(query.prompt_tokens - reusable, 0);
  booking.decode_blocks = CeilDiv(query.prompt_tokens, std::max<int64_t>(hash_block_size, 16));
  booking.routed_at_ms = now_ms;
  booking.first_token_s = FirstTokenSeconds(chosen.parts);
  booking.expires_at_ms = now_ms + static_cast<double>(config_.booking_lifetime_ms);
  booking.number = next_number_++;
  forecast_.Routed(booking.number, facts);
  NoteChange();
  loads_[match.worker].active_prefill_tokens += booking.prefill_tokens;
  order_.emplace_back(decision.request_id, booking.expires_at_ms);
  bookings_[decision.request_id] = booking;
  if (chosen.answer.prefixes && hash_block_size > 0) {
    const auto sample = Sample(*chosen.answer.prefixes, match.gpu_tokens / hash_block_size,
                               std::max<int64_t>(config_.speculative_hashes_max, 1));
    speculative_.Routed(match.worker, sample, static_cast<int64_t>(now_ms));
  }
}

void RequestRouter::BeginDecoding(Booking& booking) {
  if (std::exchange(booking.decoding, true)) return;
  WorkerLoad& load = loads_[booking.worker];
  load.active_prefill_tokens -= booking.prefill_tokens;
  load.decode_blocks += booking.decode_blocks;
}

void RequestRouter::Release(const std::string& request_id, double now_ms) {
  const auto it = bookings_.find(request_id);
  if (it == bookings_.end()) return;
  BeginDecoding(it->second);
  loads_[it->second.worker].decode_blocks -= it->second.decode_blocks;
  forecast_.Ended(it->second.number, now_ms / 1000);
  NoteChange();
  bookings_.erase(it);
}

void RequestRouter::Expire(double now_ms) {
  // A later booking with the same id has its own entry in `order_`.
  const auto is_booked = [this](const std::pair<std::string, double>& entry) KV_REQUIRES(mutex_) {
    const auto it = bookings_.find(entry.first);
    return it != bookings_.end() && it->second.expires_at_ms == entry.second;
  };
  while (!order_.empty() &&
         (order_.front().second <= now_ms || bookings_.size() > config_.bookings_max)) {
    const auto entry = std::move(order_.front());
    order_.pop_front();
    if (!is_booked(entry)) continue;
    ++counters_.expired_bookings;
    Release(entry.first, now_ms);
  }
  // Bounds the entries of finished requests. Such a pass removes at least half of all entries.
  if (order_.size() > 2 * config_.bookings_max + 1) {
    std::erase_if(order_, [&](const auto& entry) KV_REQUIRES(mutex_) { return !is_booked(entry); });
  }
}

Status RequestRouter::Take(const Feedback& feedback, double now_ms) {
  const MutexLock lock(mutex_);
  Expire(now_ms);
  const auto it = bookings_.find(feedback.request_id);
  if (it == bookings_.end()) {
    return Status(StatusCode::kNotFound, "unknown request " + feedback.request_id);
  }
  if (feedback.event == Feedback::Event::kFinished) {
    Release(feedback.request_id, now_ms);
  } else if (feedback.event == Feedback::Event::kFirstToken && !it->second.decoding) {
    Booking& booking = it->second;
    BeginDecoding(booking);
    forecast_.FirstToken(booking.number, now_ms / 1000);
    NoteChange();
    const double taken_s = (now_ms - booking.routed_at_ms) / 1000;
    ++counters_.first_tokens;
    counters_.predicted_first_token_s += booking.first_token_s;
    counters_.first_token_s += taken_s;
    counters_.first_token_error_s += std::abs(booking.first_token_s - taken_s);
  }
  return Status();
}

Result<RequestRouter::Admission> RequestRouter::Admit(const std::string& request_id,
                                                      int64_t reused_tokens) {
  const MutexLock lock(mutex_);
  const auto it = bookings_.find(request_id);
  if (it == bookings_.end()) {
    return Status(StatusCode::kNotFound, "unknown request " + request_id);
  }
  Booking& booking = it->second;
  const Admission admission{booking.name,      booking.predicted_tokens,
                            booking.next_seq,  booking.comparable && !booking.compared,
                            !booking.compared, booking.limiting_group};
  if (std::exchange(booking.compared, true)) return admission;
  forecast_.Admitted(booking.number, reused_tokens);
  NoteChange();
  const int64_t error = booking.predicted_tokens - reused_tokens;
  ++counters_.compared;
  counters_.equal += error == 0;
  counters_.predicted_tokens += static_cast<uint64_t>(booking.predicted_tokens);
  counters_.reused_tokens += static_cast<uint64_t>(reused_tokens);
  counters_.over_tokens += static_cast<uint64_t>(std::max<int64_t>(error, 0));
  counters_.under_tokens += static_cast<uint64_t>(std::max<int64_t>(-error, 0));
  return admission;
}

void RequestRouter::SetQueue(WorkerId worker, int64_t queued_requests) {
  const MutexLock lock(mutex_);
  loads_[worker].queued_requests = queued_requests;
}

// Releases the mutex after each kNamesAtOnce names, because decisions wait for the mutex.
void RequestRouter::OnBatch(WorkerId worker, const EventBatch& batch) {
  constexpr size_t kNamesAtOnce = 1024;
  std::vector<PrefixName> names;
  // False: nothing is expected on the worker.
  const auto confirm = [&](bool cleared) {
    const MutexLock lock(mutex_);
    speculative_.Confirm(worker, names);
    names.clear();
    if (cleared) speculative_.Forget(worker);
    return speculative_.Expects(worker);
  };
  if (!confirm(/*cleared=*/false)) return;
  for (const Event& event : batch.events) {
    if (const auto* cleared = std::get_if<AllBlocksCleared>(&event)) {
      if (TierOf(cleared->medium) == Tier::kGpu && !confirm(/*cleared=*/true)) return;
    }
    const auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr || TierOf(stored->medium) != Tier::kGpu) continue;
    for (const BlockHash& hash : stored->block_hashes) {
      names.push_back(PrefixNameOf(hash));
      if (names.size() == kNamesAtOnce && !confirm(/*cleared=*/false)) return;
    }
  }
  confirm(/*cleared=*/false);
}

void RequestRouter::OnReset(WorkerId worker) {
  const MutexLock lock(mutex_);
  speculative_.Forget(worker);
}

void RequestRouter::OnRemoved(WorkerId worker) {
  const MutexLock lock(mutex_);
  speculative_.Forget(worker);
  std::erase_if(bookings_, [worker](const auto& entry) { return entry.second.worker == worker; });
  loads_.erase(worker);
  forecast_.Removed(worker);
  NoteChange();
}

void RequestRouter::ShareLoad(std::function<void()> on_change) {
  const MutexLock lock(mutex_);
  on_change_ = std::move(on_change);
  if (!peers_) peers_.emplace();
}

FleetInFlight RequestRouter::OwnLoad(double now_ms) {
  const MutexLock lock(mutex_);
  Expire(now_ms);
  return forecast_.Own(now_ms / 1000);
}

void RequestRouter::SetPeerLoads(FleetInFlight sum, double now_ms) {
  const MutexLock lock(mutex_);
  forecast_.SetOthers(std::move(sum), now_ms / 1000);
}

void RequestRouter::SetPeerView(const PeerView& view) {
  const MutexLock lock(mutex_);
  peers_ = view;
}

std::optional<PeersOfDecision> RequestRouter::peers(double now_ms) const {
  const MutexLock lock(mutex_);
  if (!peers_) return std::nullopt;
  return PeersOfDecision::Of(*peers_, now_ms);
}

WorkerLoad RequestRouter::LoadOf(WorkerId worker) const {
  const auto it = loads_.find(worker);
  WorkerLoad load = it == loads_.end() ? WorkerLoad() : it->second;
  const InFlight others = forecast_.others(worker);
  load.peer_requests = others.prompts + others.decodes;
  load.peer_prefill_tokens = others.prompt_tokens;
  return load;
}

WorkerLoad RequestRouter::load(WorkerId worker) const {
  const MutexLock lock(mutex_);
  return LoadOf(worker);
}

RoutingCounters RequestRouter::counters() const {
  const MutexLock lock(mutex_);
  RoutingCounters counters = counters_;
  counters.bookings = bookings_.size();
  counters.speculative_hashes = speculative_.entries();
  return counters;
}

}  // namespace kvcast::router
