// SPDX-License-Identifier: Apache-2.0
#include "src/transfer/transfer_lanes.h"

#include <algorithm>
#include <climits>
#include <string>
#include <utility>
#include <vector>

#include "src/base/clock.h"

namespace kvcast::transfer {
namespace {

Status InvalidGroup(const JobState::Group& group, const char* problem) {
  return {StatusCode::kInvalidArgument,
          "group " + std::to_string(group.group.value) + ": " + problem};
}

BatchLimits LimitsOf(const TransferConfig& config) {
  return {.bytes = config.max_batch_bytes, .ops = config.max_batch_ops};
}

}  // namespace

void JobState::Assign(const TransferJob& job) {
  id = job.id;
  direction = job.direction;
  after = job.after;
  groups.clear();
  blocks.clear();
  slots.clear();
  for (const TransferGroup& group : job.groups) {
    blocks.insert(blocks.end(), group.blocks.begin(), group.blocks.end());
    slots.insert(slots.end(), group.slots.begin(), group.slots.end());
    groups.push_back({group.group, group.first_block, blocks.size(), slots.size(), 0});
  }
  prepared = false;
  moves.clear();
  groups_planned = 0;
  batches_running = 0;
  status = {};
}

TransferLanes::TransferLanes(const TransferConfig& config, CopyBackend& backend)
    : config_(config), backend_(backend), lanes_{Lane(LimitsOf(config)), Lane(LimitsOf(config))} {}

void TransferLanes::Add(std::unique_ptr<JobState> job) {
  Lane& lane = lanes_[static_cast<size_t>(job->direction)];
  if (lane.jobs.empty()) lane.busy_since_ns = SteadyNs();
  lane.jobs.push_back(std::move(job));
}

bool TransferLanes::Pump(std::vector<std::unique_ptr<JobState>>& ended) {
  bool changed = false;
  for (Lane& lane : lanes_) changed |= Reap(lane);
  Lane& loads = lanes_[static_cast<size_t>(CopyDirection::kLoad)];
  Lane& stores = lanes_[static_cast<size_t>(CopyDirection::kStore)];
  while (Start(loads, config_.batches_in_flight)) changed = true;
  const bool loads_wait = std::any_of(loads.jobs.begin(), loads.jobs.end(),
                                      [](const auto& job) { return job->has_work(); });
  const int max_stores = loads_wait ? config_.store_batches_beside_loads : INT_MAX;
  while (Start(stores, std::min(config_.batches_in_flight, max_stores))) changed = true;
  const size_t ended_before = ended.size();
  for (Lane& lane : lanes_) End(lane, ended);
  return changed || ended.size() > ended_before;
}

bool TransferLanes::Reap(Lane& lane) {
  bool changed = false;
  for (Running& running : lane.running) {
    if (running.state == CopyState::kRunning) running.state = backend_.Poll(running.ticket);
    if (running.state == CopyState::kRunning) continue;
    changed = true;
    --running.job->batches_running;
    if (running.state == CopyState::kFailed) {
      running.job->status = {StatusCode::kUnavailable, "the copy backend failed"};
    }
  }
  std::erase_if(lane.running, [](const Running& r) { return r.state != CopyState::kRunning; });
  return changed;
}

bool TransferLanes::Start(Lane& lane, int max_batches) {
  if (lane.running.size() >= static_cast<size_t>(max_batches)) return false;
  for (const auto& job : lane.jobs) {
    if (!job->has_work()) continue;
    if (!job->prepared) {
      job->prepared = true;
      job->status = Prepare(*job);
      if (job->has_work()) StartPlanner(lane, *job);
    }
    if (job->has_work()) StartBatch(lane, *job);
    return true;
  }
  return false;
}

void TransferLanes::StartPlanner(Lane& lane, const JobState& job) {
  const JobState::Group& group = job.groups[job.groups_planned];
  const size_t begin = job.groups_planned == 0 ? 0 : job.groups[job.groups_planned - 1].moves_end;
  lane.planner.Start(job.direction, config_.groups[group.group.value].layout, config_.host.base,
                     std::span(job.moves).subspan(begin, group.moves_end - begin),
                     config_.host.region_bytes);
}

void TransferLanes::StartBatch(Lane& lane, JobState& job) {
  batch_.Clear();
  while (lane.planner.Fill(batch_) && ++job.groups_planned < job.groups.size()) {
    StartPlanner(lane, job);
  }
  if (batch_.size() == 0) return;
  const auto ticket = backend_.Submit(job.direction, batch_.ops(), job.after);
  if (!ticket.ok()) {
    job.status = {StatusCode::kUnavailable, ticket.status().message()};
    return;
  }
  TransferStats::Lane& stats = StatsOf(job);
  ++stats.batches;
  stats.ops += batch_.size();
  stats.bytes += batch_.bytes();
  ++job.batches_running;
  lane.running.push_back({.ticket = *ticket, .job = &job, .since = batches_started_++});
}

void TransferLanes::End(Lane& lane, std::vector<std::unique_ptr<JobState>>& ended) {
  const auto has_ended = [](const std::unique_ptr<JobState>& job) {
    return !job->has_work() && job->batches_running == 0;
  };
  if (std::none_of(lane.jobs.begin(), lane.jobs.end(), has_ended)) return;
  const int64_t now_ns = SteadyNs();
  StatsOf(*lane.jobs.front()).busy_seconds +=
      static_cast<double>(now_ns - lane.busy_since_ns) * 1e-9;
  lane.busy_since_ns = now_ns;
  for (auto& job : lane.jobs) {
    if (!has_ended(job)) continue;
    TransferStats::Lane& stats = StatsOf(*job);
    ++stats.jobs;
    if (!job->status.ok()) ++stats.failed_jobs;
    ended.push_back(std::move(job));
  }
  std::erase(lane.jobs, nullptr);
}

bool TransferLanes::WaitForOldest() {
  Running* oldest = nullptr;
  for (Lane& lane : lanes_) {
    for (Running& running : lane.running) {
      if (oldest == nullptr || running.since < oldest->since) oldest = &running;
    }
  }
  if (oldest == nullptr) return false;
  oldest->state = backend_.Wait(oldest->ticket);
  return true;
}

void TransferLanes::Abandon() {
  for (Lane& lane : lanes_) {
    for (const Running& running : lane.running) {
      if (running.state == CopyState::kRunning) (void)backend_.Wait(running.ticket);
    }
    lane.running.clear();
    lane.jobs.clear();
  }
}

bool TransferLanes::idle() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.jobs.empty(); });
}

Status TransferLanes::Prepare(JobState& job) {
  uint64_t blocks = 0;
  for (size_t i = 0; i < job.groups.size(); ++i) {
    const size_t begin = job.moves.size();
    if (Status status = AddMoves(job, i); !status.ok()) return status;
    job.groups[i].moves_end = job.moves.size();
    const auto moves = std::span(job.moves).subspan(begin);
    const GroupLayout& layout = config_.groups[job.groups[i].group.value].layout;
    Status status = sorter_.Prepare(job.direction, layout, config_.host, moves);
    if (!status.ok()) return status;
    blocks += static_cast<uint64_t>(std::count_if(
        moves.begin(), moves.end(), [](const BlockMove& move) { return move.offset == 0; }));
  }
  if (Status status = CheckDestinations(job); !status.ok()) return status;
  StatsOf(job).blocks += blocks;
  return {};
}

namespace {

std::span<const BlockId> BlocksOfEntry(const JobState& job, size_t entry) {
  const size_t begin = entry == 0 ? 0 : job.groups[entry - 1].blocks_end;
  return std::span<const BlockId>(job.blocks).subspan(begin, job.groups[entry].blocks_end - begin);
}

// Returns the blocks of this entry and of all earlier entries of its group. If there are earlier
// entries, the result points into `several`.
std::span<const BlockId> BlocksOfGroup(const JobState& job, size_t entry,
                                       std::vector<BlockId>& several) {
  several.clear();
  for (size_t i = 0; i < entry; ++i) {
    if (job.groups[i].group.value != job.groups[entry].group.value) continue;
    const std::span<const BlockId> earlier = BlocksOfEntry(job, i);
    several.insert(several.end(), earlier.begin(), earlier.end());
  }
  const std::span<const BlockId> own = BlocksOfEntry(job, entry);
  if (several.empty()) return own;
  several.insert(several.end(), own.begin(), own.end());
  return several;
}

}  // namespace

// The copies of a batch run in any order. The positions in a chunk are disjoint, so two copies can
// write the same bytes only if an id occurs twice.
Status TransferLanes::CheckDestinations(const JobState& job) {
  const auto twice = [](const char* kind, uint64_t id) {
    return Status(StatusCode::kInvalidArgument,
                  kind + std::to_string(id) + ": is a destination twice");
  };
  if (job.direction == CopyDirection::kStore) {
    const std::span<const SlotId> slots = job.slots;
    const size_t index = repeated_.Find(slots, 0, config_.host.bytes / config_.host.slot_bytes);
    return index == slots.size() ? Status() : twice("slot ", slots[index].value);
  }
  std::vector<BlockId> several;
  for (size_t i = 0; i < job.groups.size(); ++i) {
    const std::span<const BlockId> blocks = BlocksOfGroup(job, i, several);
    const int64_t num_blocks = config_.groups[job.groups[i].group.value].layout.num_blocks;
    const size_t index = repeated_.Find(blocks, 1, static_cast<size_t>(num_blocks));
    if (index < blocks.size()) return twice("block ", blocks[index].value);
  }
  return {};
}

// The bytes of a block in its chunk may cover several slots, which need not be adjacent.
Status TransferLanes::AddMoves(JobState& job, size_t index) {
  const JobState::Group& group = job.groups[index];
  if (group.group.value >= config_.groups.size()) return InvalidGroup(group, "does not exist");
  const TransferGroupConfig& config = config_.groups[group.group.value];
  const size_t blocks_begin = index == 0 ? 0 : job.groups[index - 1].blocks_end;
  const size_t slots_begin = index == 0 ? 0 : job.groups[index - 1].slots_end;
  const size_t num_blocks = group.blocks_end - blocks_begin;
  const size_t block_bytes = config.layout.block_bytes();
  const size_t slot_bytes = config_.host.slot_bytes;
  const size_t slots_per_chunk =
      (config.blocks_per_chunk * block_bytes + slot_bytes - 1) / slot_bytes;
  const size_t chunks =
      (group.first_block + num_blocks + config.blocks_per_chunk - 1) / config.blocks_per_chunk;
  if (group.first_block >= config.blocks_per_chunk) {
    return InvalidGroup(group, "first_block is not in the first chunk");
  }
  if (group.slots_end - slots_begin != chunks * slots_per_chunk) {
    return InvalidGroup(group, "the numbers of slots and blocks do not match");
  }
  for (size_t i = 0; i < num_blocks; ++i) {
    const BlockId block = job.blocks[blocks_begin + i];
    if (block.value == 0) continue;
    const size_t place = group.first_block + i;
    const size_t first_slot = slots_begin + place / config.blocks_per_chunk * slots_per_chunk;
    size_t chunk_offset = place % config.blocks_per_chunk * block_bytes;  // in bytes
    for (size_t offset = 0; offset < block_bytes;) {
      const size_t bytes = std::min(block_bytes - offset, slot_bytes - chunk_offset % slot_bytes);
      const size_t slot = job.slots[first_slot + chunk_offset / slot_bytes].value;
      // The product below could exceed 64 bits. MoveSorter::Prepare checks the exact end of memory.
      if (slot > config_.host.bytes / slot_bytes) {
        return {StatusCode::kInvalidArgument,
                "block " + std::to_string(block.value) + ": its slot is not in host memory"};
      }
      job.moves.push_back({block, offset, bytes, slot * slot_bytes + chunk_offset % slot_bytes});
      offset += bytes;
      chunk_offset += bytes;
    }
  }
  return {};
}

TransferStats::Lane& TransferLanes::StatsOf(const JobState& job) {
  return job.direction == CopyDirection::kLoad ? stats_.loads : stats_.stores;
}

}  // namespace kvcast::transfer
