// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/tail_filter.h"

#include <algorithm>
#include <variant>

#include "kvcast/core/tier.h"
#include "router/service/api/state_json.h"
#include "router/service/relay/relay_topic.h"

namespace kvcast::tools {
namespace {

std::string UpperCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

std::string_view TierOfEvent(const Event& event) {
  return std::visit([](const auto& e) { return TierName(TierOf(e.medium)); }, event);
}

std::optional<int64_t> GroupOfEvent(const Event& event) {
  if (const auto* stored = std::get_if<BlockStored>(&event)) return stored->group_idx.value_or(0);
  if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
    return removed->group_idx.value_or(0);
  }
  return std::nullopt;
}

}  // namespace

std::string TailFilter::Prefix() const {
  if (model.empty()) return worker.empty() ? "" : "kv.";
  std::string prefix = "kv." + router::TopicName(model) + ".";
  if (worker.empty()) return prefix;
  prefix += router::TopicName(worker) + ".";
  return rank ? prefix + std::to_string(*rank) + "." : prefix;
}

bool TailFilter::Keep(std::string_view topic, EventBatch& batch) const {
  const auto parsed = router::ParseTopic(topic);
  if (!model.empty() && (!parsed || parsed->model != model)) return false;
  if (!worker.empty() && (!parsed || parsed->worker != worker)) return false;
  const int64_t batch_rank = parsed ? parsed->rank : batch.data_parallel_rank.value_or(0);
  if (rank && batch_rank != *rank) return false;
  const std::string wanted = UpperCase(tier);
  std::erase_if(batch.events, [&](const Event& event) {
    if (!wanted.empty() && TierOfEvent(event) != wanted) return true;
    const auto of = GroupOfEvent(event);
    return group && of && *of != *group;
  });
  return !batch.events.empty() || empty();
}

}  // namespace kvcast::tools
