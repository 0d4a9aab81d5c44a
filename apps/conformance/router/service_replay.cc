// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/router/service_replay.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "apps/conformance/scenario/scenario_wire.h"
#include "src/base/check.h"
#include "src/residency/snapshot_writer.h"

namespace kvcast::tools {
namespace {

constexpr WorkerId kReplayed{0};

// Reasons are counted by their text, without the numbers that vary from answer to answer.
std::string WithoutNumbers(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isdigit(c) != 0; });
  return text;
}

// Returns the digests of whole blocks of embeddings. A client that has the rows sends these
// digests.
PromptEmbeddingDigests DigestsOf(const PromptEmbeddings& rows, int64_t hash_block_size,
                                 int64_t lookahead) {
  PromptEmbeddingDigests digests{.hash_block_size = hash_block_size, .digests = {}};
  HashInputs inputs;
  inputs.prompt_embeddings = rows;
  const auto count = static_cast<int64_t>(rows.data.size() / rows.row_bytes);
  for (int64_t i = 0; i < HashedUnits(count, hash_block_size, lookahead); ++i) {
    for (const ExtraKey& key :
         ExtraKeysFor(inputs, i * hash_block_size, (i + 1) * hash_block_size + lookahead)) {
      const auto& bytes = std::get<Bytes>(key.value).data;
      auto& digest = digests.digests.emplace_back();
      std::copy_n(bytes.begin(), digest.size(), digest.begin());
    }
  }
  return digests;
}

bool IsProvenFor(const SchemeVerdict& verdict, const HashInputs& inputs) {
  const auto proven = [&](KeyKind kind) { return IsProven(verdict.of(kind).proof); };
  if (verdict.state != SchemeState::kMatched) return false;
  if (!proven(verdict.lookahead > 0 ? KeyKind::kLookahead : KeyKind::kPlain)) return false;
  return (inputs.cache_salt.empty() || proven(KeyKind::kSalt)) &&
         (inputs.lora_name.empty() || proven(KeyKind::kLora)) &&
         (inputs.mm_items.empty() || proven(KeyKind::kImages)) &&
         (!inputs.prompt_embeddings || proven(KeyKind::kEmbeddings));
}

}  // namespace

void ServiceFigures::Add(const ServiceFigures& other) {
  probes += other.probes;
  equal += other.equal;
  over += other.over;
  under += other.under;
  exact += other.exact;
  exact_wrong += other.exact_wrong;
  for (const auto& [reason, count] : other.not_exact) not_exact[reason] += count;
  proven_not_exact += other.proven_not_exact;
  proven_not_equal += other.proven_not_equal;
  settled += other.settled;
  settled_equal += other.settled_equal;
  settled_exact += other.settled_exact;
}

router::WorkerRegistration SourceOf(const ToldProperties& told, const ServiceReplayOptions& options,
                                    const std::string& name) {
  router::WorkerRegistration source;
  if (options.scheme == Scheme::kFound) source.candidate_none_hashes = {told.none_hash};
  source.worker.name = name;
  // A snapshot requires a replay endpoint; the state is then compared by digests.
  if (options.snapshot) source.replay_endpoint = "tcp://127.0.0.1:1";
  if (options.told == Told::kNothing) return source;
  source.worker = RegistrationOf(told, name);
  source.worker.sparse_rule =
      SparseRule{told.release, told.scheduler_block_size, told.retention_interval};
  if (options.scheme == Scheme::kFound) {
    source.algorithm = told.algorithm;
    source.none_hash = told.none_hash;
  }
  for (const auto& [adapter, paths] : told.lora_paths) {
    if (paths.size() == 1) source.lora_paths[adapter] = *paths.begin();
  }
  return source;
}

Result<std::unique_ptr<ServiceReplay>> ServiceReplay::Create(const Scenario& scenario,
                                                             const ServiceReplayOptions& options,
                                                             Check check) {
  const auto told = ToldPropertiesOf(scenario);
  if (!told.ok()) return told.status();
  std::unique_ptr<ServiceReplay> replay(new ServiceReplay(scenario, options, std::move(check)));
  const router::WorkerRegistration config = SourceOf(*told, options, scenario.config.name);
  auto source = router::WorkerIngest::Create(kReplayed, config, replay->index_);
  if (!source.ok()) return source.status();
  replay->source_ = std::move(source).value();
  return replay;
}

Status ServiceReplay::Send(const ScenarioStep& step) {
  std::vector<uint8_t> payload(step.payload.begin(), step.payload.end());
  if (payload.empty()) {
    const Status encoded = EncodeBatch(BatchOf(scenario_.config, step, step.events),
                                       DialectOf(scenario_.config, step.events), payload);
    if (!encoded.ok()) return encoded;
  }
  const BatchResult result = source_->OnBatch(payload, Seq(static_cast<uint64_t>(step.step)));
  if (result == BatchResult::kUndecodable || result == BatchResult::kDoubtful) {
    return Status(StatusCode::kMalformed, "a batch was refused");
  }
  if (result == BatchResult::kComplete) state_ = SourceState::kSynced;
  return Status();
}

// Joins by the snapshot that a KVX1 publisher sends.
Status ServiceReplay::JoinBySnapshot() {
  PublisherStatus status;
  status.next_seq = static_cast<uint64_t>(scenario_.steps[options_.join_at].step);
  status.has_digests = true;
  for (const GroupTierDigest& digest : held_.digest().Totals()) {
    status.groups.push_back({digest, std::nullopt});
  }
  source_->BeginSnapshot();
  for (const residency::Payload& part : residency::WriteSnapshot(held_, {})) {
    if (!source_->AddToSnapshot(*part)) {
      return Status(StatusCode::kMalformed, "a part of the snapshot was refused");
    }
  }
  if (!source_->CommitSnapshot(status)) {
    return Status(StatusCode::kMalformed, "the snapshot was refused");
  }
  state_ = SourceState::kSynced;
  return Status();
}

Status ServiceReplay::Run() {
  if (options_.join_at > 0) state_ = SourceState::kCleared;
  for (size_t i = 0; i < scenario_.steps.size(); ++i) {
    const ScenarioStep& step = scenario_.steps[i];
    for (const ScenarioOp& op : step.ops) prompts_.Follow(op);
    if (i < options_.join_at) {
      held_.Apply(BatchOf(scenario_.config, step, step.events));
      continue;
    }
    Status status;
    if (i == options_.join_at && options_.join_at > 0 && options_.snapshot) {
      status = JoinBySnapshot();
    }
    if (status.ok()) status = Send(step);
    if (!status.ok()) {
      return {status.code(), "step " + std::to_string(step.step) + ": " + status.message()};
    }
    for (const ScenarioProbe& probe : step.probes) RunProbe(step.step, probe);
  }
  if (scenario_.final_state && options_.join_at == 0) CheckFinal(*scenario_.final_state);
  return Status();
}

void ServiceReplay::RunProbe(int64_t step, const ScenarioProbe& probe) {
  router::Query query;
  query.tokens = prompts_.TokensOf(probe.prompt);
  query.prompt_tokens = std::ssize(query.tokens);
  query.inputs = probe.prompt.inputs;
  const int64_t length = query.prompt_tokens;
  if (query.inputs.prompt_embeddings) {
    const PromptShape shape = index_.ShapeOf(kReplayed);
    if (shape.hash_block_size > 0) {
      query.inputs.embedding_digests = {
          DigestsOf(*query.inputs.prompt_embeddings, shape.hash_block_size, shape.lookahead)};
    }
    query.inputs.prompt_embeddings.reset();
  }
  // The router has the path of an adapter only if the path is configured.
  if (options_.told == Told::kNothing) query.inputs.lora_path.clear();
  const router::QueryEngine engine(index_, [this](WorkerId) {
    return SourceStatus{.state = state_, .replacements = source_->replacements()};
  });
  const auto answers = engine.Answer(query, {source_});
  KV_CHECK(answers.ok());
  const router::QueryAnswer& answer = answers->front();
  const WorkerMatch& match = answer.match;
  const int64_t predicted = match.gpu_tokens;
  // If replay_tokens is not configured, the router cannot predict how many tokens of a hit are
  // computed again.
  const bool same_replay = options_.told == Told::kNothing || match.replay_tokens == probe.replay;
  const bool equal = predicted == probe.hit && same_replay && length == probe.prompt.length;
  ++figures_.probes;
  figures_.equal += equal;
  figures_.over += predicted > probe.hit;
  figures_.under += predicted < probe.hit;
  figures_.exact += answer.exact;
  figures_.exact_wrong += answer.exact && !equal;
  const bool proven = IsProvenFor(*answer.scheme, probe.prompt.inputs);
  // A snapshot counts hit reports as copies. The match is then not certain.
  figures_.proven_not_equal += proven && match.certain && !equal;
  if (!answer.exact) {
    ++figures_.not_exact[WithoutNumbers(answer.reason)];
    figures_.proven_not_exact += proven;
  }
  if (hits_ >= kSettledHits) {
    ++figures_.settled;
    figures_.settled_equal += equal;
    figures_.settled_exact += answer.exact;
  }
  hits_ += probe.hit > 0;
  check_(equal, "step " + std::to_string(step) + ": prompt of " +
                    std::to_string(probe.prompt.length) + " tokens: predicted " +
                    std::to_string(predicted) + (answer.exact ? ", exact" : "") + ", recorded " +
                    std::to_string(probe.hit) +
                    (answer.reason.empty() ? "" : " (" + answer.reason + ")"));
}

void ServiceReplay::CheckFinal(const ScenarioFinal& recorded) {
  uint64_t held = 0;
  for (const auto& group : recorded) held += group.size();
  const uint64_t indexed = index_.counters(kReplayed).residencies;
  check_(indexed == held, "final: " + std::to_string(indexed) + " blocks in the index, recorded " +
                              std::to_string(held));
}

}  // namespace kvcast::tools
