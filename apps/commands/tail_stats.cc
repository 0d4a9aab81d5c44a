// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/tail_stats.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <variant>

#include "apps/support/printable.h"

namespace kvcast::tools {

void TailStats::Note(std::string_view topic, uint64_t seq, const EventBatch& batch,
                     size_t payload_bytes) {
  auto it = rows_.find(topic);
  if (it == rows_.end()) {
    it = rows_.emplace(rows_.size() < kTopicsMax ? std::string(topic) : "(others)", Row()).first;
  }
  Row& row = it->second;
  if (row.batches > 0 && seq > row.next_seq) ++row.gaps;
  row.next_seq = seq + 1;
  ++row.batches;
  row.bytes += payload_bytes;
  for (const Event& event : batch.events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      row.stored_blocks += stored->block_hashes.size();
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      row.removed_blocks += removed->block_hashes.size();
    } else {
      ++row.clears;
    }
  }
}

std::string TailStats::Table(double seconds) {
  char line[256];
  std::snprintf(line, sizeof(line), "%-44s %10s %9s %11s %11s %7s %5s\n", "topic", "batches",
                "per s", "stored", "removed", "clears", "gaps");
  std::string table = line;
  for (auto& [topic, row] : rows_) {
    const auto new_batches = static_cast<double>(row.batches - row.shown_batches);
    row.shown_batches = row.batches;
    std::snprintf(
        line, sizeof(line), "%-44.44s %10llu %9.0f %11llu %11llu %7llu %5llu\n",
        topic.empty() ? "(empty)" : Printable(topic).c_str(),
        static_cast<unsigned long long>(row.batches), new_batches / std::max(seconds, 1e-3),
        static_cast<unsigned long long>(row.stored_blocks),
        static_cast<unsigned long long>(row.removed_blocks),
        static_cast<unsigned long long>(row.clears), static_cast<unsigned long long>(row.gaps));
    table += line;
  }
  return table;
}

std::string TailStats::Json() const {
  nlohmann::json topics = nlohmann::json::object();
  uint64_t batches = 0;
  for (const auto& [topic, row] : rows_) {
    batches += row.batches;
    topics[topic] = {{"batches", row.batches},
                     {"stored_blocks", row.stored_blocks},
                     {"removed_blocks", row.removed_blocks},
                     {"clears", row.clears},
                     {"bytes", row.bytes},
                     {"gaps", row.gaps}};
  }
  const nlohmann::json all = {{"topics", std::move(topics)}, {"batches", batches}};
  return all.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace kvcast::tools
