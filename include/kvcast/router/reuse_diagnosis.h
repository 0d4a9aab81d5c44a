// ReuseDiagnosis: the reason why the prefixes of a worker are not reused, as one of six causes.
//
// The index keeps a sample of the prompts that a worker stores. The index tests each sampled prompt
// up to the longest prefix that later requests to this worker needed again. A prefix was needed
// again if a group stored it twice, or if stores continued it with different tokens. If there is no
// such prefix, the index tests the whole prompt. A prompt is lost if the reuse rule serves no part
// of the tested prefix from the blocks that the worker holds now. Exception:
// ReuseCause::kKeyDiffers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kvcast/spec/cache_spec.h"

namespace kvcast {

// The cause of a lost prompt.
//
//   L                 length in tokens of the tested prefix
//   A                 alignment of hits in use
//   G                 alignment that follows from the block sizes of the groups
//   limiting group    the first group that serves no prefix even without the other groups; if
//                     there is no such group: the group without which the other groups serve the
//                     longest prefix
//   prediction        an answer of the index with more than 0 reusable tokens
enum class ReuseCause : uint8_t {
  // No store on any tier has named the limiting group, or a group of equal spec. (Or: groups are
  // learned, and for most predictions, the feedback reports that the engine reused nothing.)
  kNeverAnnounced,
  // The limiting group is known from events, but never stored a block that a hit of at most L
  // tokens needs. Even the held and the removed blocks of the group together do not serve such a
  // hit.
  kNeverStored,
  // The limiting group stored the blocks that a hit needs, and then removed these blocks. Another
  // group still holds blocks.
  kEvictedFirst,
  // L < A. Or the blocks serve a prefix on the grid of hash_block_size, and no prefix on the grid
  // of A.
  kAlignmentTooCoarse,
  // `alignment` is registered and differs from G. The blocks serve a prefix on the grid of G, and
  // no prefix on the grid of A. (Or: for most predictions, the reused tokens in the feedback were
  // the prediction rounded down to G.)
  kToldAlignmentWrong,
  // Another sampled prompt begins with the same tokens under a different salt or adapter. No
  // request needed a prefix of the lost prompt again with the salt and adapter of the lost prompt.
  // Such a prompt counts as lost even if the reuse rule serves a part of it.
  kKeyDiffers,
};
inline constexpr size_t kReuseCauses = 6;
// "never_announced", "never_stored", "evicted_first", "alignment_too_coarse",
// "told_alignment_wrong", "key_differs".
std::string_view ReuseCauseName(ReuseCause cause);

// Minimum number of tested prompts for a cause. A cause also requires that more than half of the
// tested prompts are lost. At least three prompts are then lost. The sampled prompts are chosen
// independently of each other.
inline constexpr int64_t kMinTestedPrompts = 4;

// The diagnosis of one worker.
struct ReuseDiagnosis {
  // GPU blocks of the sampled prompts, by group_idx. A block is usable if it serves a boundary that
  // each group serves by its own rule.
  struct GroupUse {
    int64_t held = 0;
    int64_t usable = 0;
  };
  std::vector<GroupUse> groups;
  // `tested`: sampled prompts with a block that at least one group still holds. A prompt whose
  // later blocks are not in the sample counts only if a prefix of it was needed again. `lost`: the
  // lost prompts among the tested prompts.
  int64_t tested = 0;
  int64_t lost = 0;
  std::array<int64_t, kReuseCauses> lost_by_cause{};
  // The most frequent cause of the lost prompts. It has a value only if at least kMinTestedPrompts
  // prompts are tested, and more than half of them are lost.
  std::optional<ReuseCause> cause;
  std::optional<int64_t> group;  // group_idx; nullopt: several groups, or not known
  int64_t alignment = 0;         // A; 0: not known yet
  int64_t group_alignment = 0;   // G
  // True: `alignment` is registered.
  bool alignment_told = false;
  // groups_learned: the groups are learned from events, so there may be groups that no event has
  // named yet. unannounced_group: the lowest group_idx without a store that is below a group_idx
  // with stores.
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
