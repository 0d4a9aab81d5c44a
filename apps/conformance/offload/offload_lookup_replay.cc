// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/offload/offload_lookup_replay.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "apps/conformance/offload/offload_layout_json.h"
#include "apps/conformance/offload/offload_rule_replay.h"
#include "apps/support/or_null.h"

namespace kvcast::tools {

using Json = nlohmann::json;

namespace {

// Returns the group and the key of a boundary. The key of the end of a chunk is the number of the
// chunk. The key of a boundary inside a chunk is the negative boundary.
Json TailName(const OffloadLayout& layout, size_t group, int64_t boundary) {
  const int64_t chunk = layout.groups[group].tokens_per_chunk;
  return {group, boundary % chunk == 0 ? boundary / chunk - 1 : -boundary};
}

// Answers the lookups of one case with the recorded results, and lists the lookups in the order of
// the calls.
class RecordedAnswers {
 public:
  RecordedAnswers(const OffloadLayout& layout, const Json& record)
      : layout_(layout),
        chunks_(record.at("answers")),
        tails_(record.value("tail_answers", Json::object())),
        being_loaded_(record.value("being_loaded", Json::array())) {}

  LookupResult Chunk(size_t group, int64_t chunk) {
    calls_.push_back({group, chunk});
    const std::string answers = chunks_.at(group);
    return ParseAnswer(answers.at(static_cast<size_t>(chunk)));
  }
  LookupResult Tail(size_t group, int64_t boundary) {
    calls_.push_back(TailName(layout_, group, boundary));
    const int64_t chunk = layout_.groups[group].tokens_per_chunk;
    if (boundary % chunk == 0) {
      return ParseAnswer(
          chunks_.at(group).get<std::string>().at(static_cast<size_t>(boundary / chunk - 1)));
    }
    const auto found = tails_.find(std::to_string(boundary));
    if (found == tails_.end()) return LookupResult::kMiss;
    return ParseAnswer(found->get<std::string>().at(group));
  }
  bool BeingLoaded(size_t group, int64_t chunk) {
    return std::find(being_loaded_.begin(), being_loaded_.end(), Json{group, chunk}) !=
           being_loaded_.end();
  }
  OffloadAnswers AsFunctions() {
    return {[this](size_t group, int64_t chunk) { return Chunk(group, chunk); },
            [this](size_t group, int64_t boundary) { return Tail(group, boundary); },
            [this](size_t group, int64_t chunk) { return BeingLoaded(group, chunk); }};
  }
  const Json& calls() const { return calls_; }

 private:
  const OffloadLayout& layout_;
  const Json chunks_;
  const Json tails_;
  const Json being_loaded_;
  Json calls_ = Json::array();
};

Json Touched(const OffloadLayout& layout, const Json& num_keys, const Json& hit_chunks,
             const OffloadAnswer& answer) {
  Json touched = Json::array();
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const int64_t from = FirstTouchedChunk(layout.groups[g], hit_chunks[g]);
    const int64_t to = num_keys[g];
    touched.push_back(from < to ? Json{{"g", g}, {"from", from}, {"to", to}}
                                : Json{{"empty", true}});
  }
  if (!answer.tail_boundary) return touched;
  Json keys = Json::array();
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    keys.push_back(TailName(layout, g, *answer.tail_boundary));
  }
  touched.push_back({{"keys", keys}});
  return touched;
}

}  // namespace

void OffloadLookupReplay::Run(const Json& record) {
  if (record.contains("rule")) return RunOffloadRule(record, checks_);
  if (record.contains("scan")) return RunOffloadScan(record, checks_);
  if (record.contains("answers")) return RunLookup(record);
  const auto layout = OffloadLayout::Derive(AsInVllm(ParseLayoutConfig(record)));
  if (!layout.ok()) throw std::runtime_error(layout.status().ToString());
  checks_.Expect(LayoutJson(*layout), record.at("derived"), "derived");
  layouts_.insert_or_assign(record.at("cfg").get<int64_t>(), *layout);
}

void OffloadLookupReplay::RunLookup(const Json& record) {
  const OffloadLayout& layout = layouts_.at(record.at("cfg").get<int64_t>());
  OffloadQuestion question;
  question.num_tokens = question.prompt_tokens = record.at("num_tokens");
  question.local_tokens = record.at("local");
  question.num_hashes = question.num_tokens / layout.tokens_per_hash;
  RecordedAnswers answers(layout, record);
  const OffloadAnswer answer = LookupOffloaded(layout, question, answers.AsFunctions());

  Json num_keys = Json::array();
  Json hit_chunks = Json::array();
  const int64_t end = question.local_tokens + answer.tokens.value_or(0);
  for (const OffloadGroup& group : layout.groups) {
    num_keys.push_back(question.num_hashes / group.hashes_per_chunk);
    hit_chunks.push_back(end / group.tokens_per_chunk);
  }
  checks_.Expect(OrNull(answer.tokens), record.at("result"), "result");
  checks_.Expect(answer.tokens.value_or(0) > 0, record.at("async"), "async");
  checks_.Expect(num_keys, record.at("num_keys"), "num_keys");
  checks_.Expect(hit_chunks, record.at("hit_chunks"), "hit_chunks");
  checks_.Expect(OrNull(answer.tail_boundary), record.value("partial_tail_boundary", Json()),
                 "partial_tail_boundary");
  checks_.Expect(answers.calls(), record.at("calls"), "calls");
  checks_.Expect(Touched(layout, num_keys, hit_chunks, answer), record.at("touch"), "touch");
}

}  // namespace kvcast::tools
