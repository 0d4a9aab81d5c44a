// SPDX-License-Identifier: Apache-2.0
#include "src/spec/fixed_point.h"

#include <algorithm>
#include <vector>

namespace kvcast::internal {
namespace {

class Iteration {
 public:
  Iteration(std::span<const SpecGroup> groups, int64_t alignment, int64_t max_tokens,
            int64_t eagle_limit, const GroupSearch& search)
      : groups_(groups),
        alignment_(alignment),
        max_tokens_(max_tokens),
        eagle_limit_(eagle_limit),
        search_(search),
        full_hits_(groups.size(), kNotSearched),
        eagle_verified_(groups.size(), false) {}

  FixedPoint Run() {
    FixedPoint point{max_tokens_, 0};
    while (true) {
      const int64_t shortened = Round(point);
      if (shortened >= point.tokens) return point;
      point.tokens = shortened;
      if (OneRoundSuffices()) return point;
    }
  }

 private:
  static constexpr int64_t kNotSearched = -1;

  bool OneRoundSuffices() const {
    return groups_.size() == 1 || (groups_.size() == 2 && IsFullKind(groups_[0].spec.kind));
  }

  int64_t Round(FixedPoint& point) {
    int64_t tokens = point.tokens;
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (full_hits_[i] != kNotSearched) {
        // Every prefix of a full-attention hit is also a hit, so no second search is needed.
        tokens = std::min(tokens, full_hits_[i]);
        continue;
      }
      tokens = SearchGroup(i, tokens);
      if (IsFullKind(groups_[i].spec.kind)) full_hits_[i] = tokens;
      point.longest = std::max(point.longest, tokens);
    }
    return tokens;
  }

  int64_t SearchGroup(size_t index, int64_t tokens) {
    const GroupSpec& spec = groups_[index].spec;
    const bool drop = spec.eagle && !eagle_verified_[index];
    const int64_t limit = drop ? DropLimit(spec, alignment_, tokens, eagle_limit_) : tokens;
    const int64_t hit = search_(index, limit, drop);
    if (drop) {
      eagle_verified_[index] = true;
    } else if (hit < tokens) {
      eagle_verified_.assign(eagle_verified_.size(), false);
    }
    return hit;
  }

  std::span<const SpecGroup> groups_;
  const int64_t alignment_;
  const int64_t max_tokens_;
  const int64_t eagle_limit_;
  const GroupSearch& search_;
  std::vector<int64_t> full_hits_;
  std::vector<bool> eagle_verified_;
};

}  // namespace

FixedPoint FindFixedPoint(std::span<const SpecGroup> groups, int64_t alignment, int64_t max_tokens,
                          int64_t eagle_limit, const GroupSearch& search) {
  if (groups.empty() || max_tokens <= 0) return {};
  return Iteration(groups, alignment, max_tokens, std::max(eagle_limit, max_tokens), search).Run();
}

}  // namespace kvcast::internal
