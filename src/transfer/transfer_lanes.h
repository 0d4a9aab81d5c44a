// TransferLanes: starts the copies of jobs and sees them end; two queues, loads and stores.
//
// One thread drives it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "kvcast/transfer/transfer_engine.h"
#include "src/transfer/copy_planner.h"
#include "src/transfer/repeated_id.h"

namespace kvcast::transfer {

// A job, and how far it is. Kept for its lists' memory once it has ended.
struct JobState {
  struct Group {
    GroupIdx group;
    uint32_t first_block = 0;
    size_t blocks_end = 0;  // of blocks, slots and moves below
    size_t slots_end = 0;
    size_t moves_end = 0;
  };

  TransferJobId id;
  CopyDirection direction = CopyDirection::kStore;
  void* after = nullptr;
  std::vector<Group> groups;
  std::vector<BlockId> blocks;
  std::vector<SlotId> slots;

  bool prepared = false;
  std::vector<BlockMove> moves;
  size_t groups_planned = 0;  // of whose moves every copy has started
  size_t batches_running = 0;
  Status status;

  void Assign(const TransferJob& job);
  bool has_work() const { return !prepared || (status.ok() && groups_planned < groups.size()); }
};

class TransferLanes {
 public:
  // `config` and `backend` must outlive the lanes.
  TransferLanes(const TransferConfig& config, CopyBackend& backend);

  void Add(std::unique_ptr<JobState> job);
  // Sees what has ended and starts what may start. Appends the jobs that ended; true: anything
  // changed.
  bool Pump(std::vector<std::unique_ptr<JobState>>& ended);
  // Blocks until the batch that has run longest has ended; false: none runs.
  bool WaitForOldest();
  // Lets the running copies end, and forgets all jobs.
  void Abandon();
  bool idle() const;

  const TransferStats& stats() const { return stats_; }

 private:
  struct Running {
    CopyTicket ticket;
    JobState* job;
    uint64_t since;  // a number that grows
    CopyState state = CopyState::kRunning;
  };
  using Clock = std::chrono::steady_clock;

  struct Lane {
    explicit Lane(const BatchLimits& limits) : planner(limits) {}

    std::vector<std::unique_ptr<JobState>> jobs;  // in order of submission
    Clock::time_point busy_since;                 // while there are any
    std::vector<Running> running;
    CopyPlanner planner;  // of the first job that has work
  };

  Status Prepare(JobState& job);
  Status AddMoves(JobState& job, size_t group);
  Status CheckDestinations(const JobState& job);
  void StartPlanner(Lane& lane, const JobState& job);
  bool Reap(Lane& lane);
  // Starts a batch, of which `most` may be under way. False: nothing to do.
  bool Start(Lane& lane, int most);
  void StartBatch(Lane& lane, JobState& job);
  void End(Lane& lane, std::vector<std::unique_ptr<JobState>>& ended);
  TransferStats::Lane& StatsOf(const JobState& job);

  const TransferConfig& config_;
  CopyBackend& backend_;
  std::array<Lane, 2> lanes_;  // by direction: loads, then stores
  MoveSorter sorter_;
  RepeatedId repeated_;
  CopyBatch batch_;  // scratch
  uint64_t batches_started_ = 0;
  TransferStats stats_;
};

}  // namespace kvcast::transfer
