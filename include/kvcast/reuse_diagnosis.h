// Why a worker's prefixes are not reused: six causes, each with a definition.
//
// The index follows a sample of the prompts that a worker stores. A prompt is tested up to its
// longest prefix that the worker was asked for again, or as a whole if it was not. It is lost if
// the reuse rule serves nothing of that prefix from what the worker holds now.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kvcast/cache_spec.h"

namespace kvcast {

// Why a prompt is lost. L: the tokens up to which it is tested. A: the alignment of hits in use.
// G: the alignment that follows from the block sizes of the groups. The limiting group is the one
// without which the others serve most.
enum class ReuseCause : uint8_t {
  // No store on any tier has named the limiting group. (Or: groups are learned, and most answers
  // with a promise were fed back as reusing nothing.)
  kNeverAnnounced,
  // The limiting group was announced, but never stored a block that a hit of at most L tokens
  // needs: neither its held nor its removed blocks would serve one.
  kNeverStored,
  // The limiting group stored what a hit needs, and removed it while another group holds blocks.
  kEvictedFirst,
  // L < A; or the blocks serve a prefix at the hash unit, and none on the grid of A.
  kAlignmentTooCoarse,
  // `alignment` is registered, differs from G, and the blocks serve a prefix on the grid of G and
  // none on that of A. (Or: most answers with a promise were fed back as that promise rounded down
  // to G.)
  kToldAlignmentWrong,
  // Another sampled prompt begins with the same tokens under another salt or adapter, and none was
  // asked for again under this prompt's own.
  kKeyDiffers,
};
inline constexpr size_t kReuseCauses = 6;
// "never_announced", "never_stored", "evicted_first", "alignment_too_coarse",
// "told_alignment_wrong", "key_differs".
std::string_view ReuseCauseName(ReuseCause cause);

// Prompts that are tested before a cause is named. A cause is named where more than half of them
// are lost: at least three, which were chosen independently of each other.
inline constexpr int64_t kMinTestedPrompts = 4;

// The diagnosis of one worker.
struct ReuseDiagnosis {
  // GPU blocks on the sampled prompts, by group_idx. A block is usable if it serves a boundary that
  // all groups serve, each alone.
  struct GroupUse {
    int64_t held = 0;
    int64_t usable = 0;
  };
  std::vector<GroupUse> groups;
  // Sampled prompts of which a group still holds a block, and those of them that are lost.
  int64_t tested = 0;
  int64_t lost = 0;
  std::array<int64_t, kReuseCauses> lost_by_cause{};
  // The cause of most lost prompts, if more than half of the tested are lost, and at least
  // kMinTestedPrompts are tested.
  std::optional<ReuseCause> cause;
  std::optional<int64_t> group;  // group_idx; nullopt: no single one, or not known
  int64_t alignment = 0;         // A; 0: not known yet
  int64_t group_alignment = 0;   // G
  bool alignment_told = false;
  // Groups are learned, so that there may be groups that no event has named; the lowest group_idx
  // without a store below one with stores.
  bool groups_learned = false;
  std::optional<int64_t> unannounced_group;

  bool enough_data() const { return tested >= kMinTestedPrompts; }
  GroupUse total() const {
    GroupUse sum;
    for (const GroupUse& use : groups) {
      sum.held += use.held;
      sum.usable += use.usable;
    }
    return sum;
  }
};

}  // namespace kvcast
