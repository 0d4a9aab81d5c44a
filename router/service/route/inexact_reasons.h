// The reasons why answers are not exact. If a member of the source's configuration can remove the
// reason, the text names this member. An empty reason: the property is proven.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "kvcast/hash/block_hash.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/router/scheme_detector.h"
#include "router/service/route/query.h"

namespace kvcast::router {

inline constexpr char kOtherHashes[] =
    "blocks of this LoRA name have other hashes than its path gives";
inline constexpr char kReplaced[] = "the worker's blocks were just dropped or replaced";

// Why the match is not proven. `by_chain`: the index was also queried by the engine's hash chain.
std::string WhyNoProof(const QueryAnswer& answer, bool by_chain, const IndexCounters& counters);
// Why the prefix with loads is not proven, although the match is proven.
std::string WhyNoProofOfLoads(const QueryAnswer& answer, bool by_chain);
// Why the engine's own chain is not proven.
std::string WhyNoScheme(const SchemeVerdict& verdict, const HashInputs& inputs);
// The reason for a repeated difference between reported and predicted tokens, with its likely
// cause. `block` is the smallest step of a hit, in tokens.
std::string WhyContradicted(int64_t difference, int64_t block);

}  // namespace kvcast::router
