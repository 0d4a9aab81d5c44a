// TransferLanes: starts the copies of jobs and detects their ends. It has two queues: loads and
// stores.
//
// Thread-compatible.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "kvcast/transfer/transfer_engine.h"
#include "src/transfer/copy_planner.h"
#include "src/transfer/repeated_id.h"

namespace kvcast::transfer {

// A job and its progress. After the end of the job, the object is reused, so that its lists keep
// their memory.
struct JobState {
  struct Group {
    GroupIdx group;
    uint32_t first_block = 0;
    size_t blocks_end = 0;  // end of the group in `blocks` below
    size_t slots_end = 0;   // in `slots`
    size_t moves_end = 0;   // in `moves`
  };

  TransferJobId id;
  CopyDirection direction = CopyDirection::kStore;
  void* after = nullptr;
  std::vector<Group> groups;
  std::vector<BlockId> blocks;
  std::vector<SlotId> slots;

  bool prepared = false;
  std::vector<BlockMove> moves;
  size_t groups_planned = 0;  // groups whose copies have all started
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
  // Detects ended copies and starts copies that may start. Appends the jobs that ended. True:
  // anything changed.
  bool Pump(std::vector<std::unique_ptr<JobState>>& ended);
  // Blocks until the oldest running batch has ended. False: no batch runs.
  bool WaitForOldest();
  // Waits until the running copies end, and drops all jobs.
  void Abandon();
  bool idle() const;

  const TransferStats& stats() const { return stats_; }

 private:
  struct Running {
    CopyTicket ticket;
    JobState* job;
    uint64_t since;  // number of batches that had started before this batch
    CopyState state = CopyState::kRunning;
  };
  struct Lane {
    explicit Lane(const BatchLimits& limits) : planner(limits) {}

    std::vector<std::unique_ptr<JobState>> jobs;  // in order of submission
    int64_t busy_since_ns;  // start of the time that busy_seconds lacks; valid while there are jobs
    std::vector<Running> running;
    CopyPlanner planner;  // plans the first job that has work
  };

  Status Prepare(JobState& job);
  Status AddMoves(JobState& job, size_t group);
  Status CheckDestinations(const JobState& job);
  void StartPlanner(Lane& lane, const JobState& job);
  bool Reap(Lane& lane);
  // If fewer than `max_batches` batches run, prepares the first job with work if needed, and starts
  // its next batch. False: `max_batches` batches run, or no job has work.
  bool Start(Lane& lane, int max_batches);
  void StartBatch(Lane& lane, JobState& job);
  void End(Lane& lane, std::vector<std::unique_ptr<JobState>>& ended);
  TransferStats::Lane& StatsOf(const JobState& job);

  const TransferConfig& config_;
  CopyBackend& backend_;
  std::array<Lane, 2> lanes_;  // by direction: loads, then stores
  MoveSorter sorter_;
  RepeatedId repeated_;
  CopyBatch batch_;  // scratch memory
  uint64_t batches_started_ = 0;
  TransferStats stats_;
};

}  // namespace kvcast::transfer
