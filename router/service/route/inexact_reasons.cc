// SPDX-License-Identifier: Apache-2.0
#include "router/service/route/inexact_reasons.h"

#include <cstdlib>

namespace kvcast::router {
namespace {

// Returns the reason. If a member of the source's configuration can remove the reason, the text
// names this member.
std::string WhyUnknown(UnknownProperty property) {
  switch (property) {
    case UnknownProperty::kKinds:
      return "the kinds of the groups are neither sent nor registered: set groups";
    case UnknownProperty::kWindow:
      return "the window of a group is not known: set groups";
    case UnknownProperty::kChunkSize:
      return "the chunk size of a group is not known: set chunk_size";
    case UnknownProperty::kGroups:
      return "no reuse has shown yet that all groups were announced: set groups";
    case UnknownProperty::kEagle:
      return "not known which groups drop a block for a draft head: set eagle, or groups if the "
             "groups differ";
    case UnknownProperty::kReplay:
      return "not known whether the engine ignores short hits: set replay_tokens";
    case UnknownProperty::kBlockSize:
      return "not known whether a group has larger blocks than its stores, or whether a Mamba "
             "group has hits inside blocks of other groups: set groups and alignment";
    case UnknownProperty::kAlignment:
      return "not known whether hits end inside Mamba blocks: set alignment, or release";
    case UnknownProperty::kOffloadRule:
      return "not known how the engine looks up blocks on lower tiers: set offload_rule";
    case UnknownProperty::kLoadEnd:
      return "not known where a load ends: the cause is bounded replay, an end inside a block, "
             "a draft head of vLLM before v0.32, or a mirrored pool beside Mamba or chunked groups";
    case UnknownProperty::kConflict:
      return "events contradict the groups or the lookahead that are registered or were announced "
             "before: set groups and lookahead";
    case UnknownProperty::kRelease:
      break;
  }
  return "not known how many blocks a lookup reads if it drops a block: set release";
}

}  // namespace

std::string WhyNoProofOfLoads(const QueryAnswer& answer, bool by_chain) {
  const WorkerMatch& match = answer.match;
  if (match.unknown_with_cpu != 0) {
    return WhyUnknown(
        static_cast<UnknownProperty>(match.unknown_with_cpu & -match.unknown_with_cpu));
  }
  const bool hidden = answer.named_by == NamedBy::kContent && !by_chain && match.has_unnamed;
  return hidden ? "blocks whose content is not known" : "";
}

std::string WhyNoProof(const QueryAnswer& answer, bool by_chain, const IndexCounters& counters) {
  const WorkerMatch& match = answer.match;
  if (match.ambiguous)
    return "ambiguous: the worker used a hash for two contents, or two hashes for a content";
  if (match.unknown != 0) {
    return WhyUnknown(static_cast<UnknownProperty>(match.unknown & -match.unknown));
  }
  const bool hidden = answer.named_by == NamedBy::kContent && !by_chain && match.unnamed_gpu > 0 &&
                      match.hit != HitKind::kFull;
  if (hidden) {
    std::string reasons;
    for (size_t i = 0; i < kUnnamedReasons; ++i) {
      if (counters.unnamed_blocks[i] == 0) continue;
      reasons += (reasons.empty() ? "" : ", ") +
                 std::string(UnnamedReasonName(static_cast<UnnamedReason>(i)));
    }
    return "blocks whose content is not known: " + reasons;
  }
  return match.certain ? "" : "hit reports may count as copies";
}

std::string WhyContradicted(int64_t difference, int64_t block) {
  std::string text =
      "feedback: requests reuse " + std::to_string(std::abs(difference)) +
      (difference < 0 ? " tokens fewer than predicted" : " tokens more than predicted");
  if (difference == -block) {
    text += ", as if a block is dropped for a draft head: set eagle";
  } else if (difference < 0) {
    text += ", as if a group announces nothing: set groups, or replay_tokens";
  } else {
    text += ", as if the engine has a release that looks up more blocks: set release";
  }
  return text;
}

std::string WhyNoScheme(const SchemeVerdict& verdict, const HashInputs& inputs) {
  if (verdict.state != SchemeState::kMatched) return "hash scheme: " + verdict.reason;
  const std::string kinds = WhyUnprovenForm(verdict, inputs);
  return kinds.empty() ? "" : "hash scheme: " + kinds;
}

}  // namespace kvcast::router
