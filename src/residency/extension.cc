// SPDX-License-Identifier: Apache-2.0
#include "src/residency/extension.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/residency/mirror.h"

namespace kvcast {

ResidencyTotals PublisherStatus::Totals() const {
  ResidencyTotals totals;
  for (const GroupTierStatus& group : groups) totals.push_back(group.digest);
  return totals;
}

namespace residency {
namespace {

constexpr std::string_view kMagic = "KVX1";
constexpr std::string_view kLegacySnapshot = "snapshot";
constexpr size_t kBucketsPerBit = kDigestBuckets / 64;
// Flags of a status.
constexpr uint8_t kHasDigests = 1;
constexpr uint8_t kAnswersChallenges = 2;
constexpr uint8_t kStatusFlags = kHasDigests | kAnswersChallenges;
constexpr uint8_t kHasBuckets = 1;  // flag of a group on a tier
constexpr size_t kMaxGroupTiers = static_cast<size_t>(kTiers) * (kMaxGroup + 1);

bool StartsWith(std::span<const uint8_t> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::equal(text.begin(), text.end(), bytes.begin());
}

class Out {
 public:
  void Text(std::string_view text) { bytes_.insert(bytes_.end(), text.begin(), text.end()); }
  void Number(uint64_t value, int size) {
    for (int i = size - 1; i >= 0; --i) bytes_.push_back(static_cast<uint8_t>(value >> (8 * i)));
  }
  void Sum(const DigestSum& sum) {
    Number(sum.high, 8);
    Number(sum.low, 8);
    Number(sum.copies, 8);
  }
  std::vector<uint8_t> Take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

// A read past the end returns 0 and sets failed().
class In {
 public:
  explicit In(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  uint64_t Number(size_t size) {
    if (bytes_.size() < size) {
      failed_ = true;
      bytes_ = {};
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value = value << 8 | bytes_[i];
    bytes_ = bytes_.subspan(size);
    return value;
  }
  DigestSum Sum() {
    DigestSum sum;
    sum.high = Number(8);
    sum.low = Number(8);
    sum.copies = Number(8);
    return sum;
  }
  bool failed() const { return failed_; }
  bool empty() const { return bytes_.empty(); }

 private:
  std::span<const uint8_t> bytes_;
  bool failed_ = false;
};

// The order is strict, so that no group occurs twice on a tier.
bool InOrder(const GroupTierDigest& a, const GroupTierDigest& b) {
  return std::pair(a.tier, a.group) < std::pair(b.tier, b.group);
}

GroupTierStatus ReadGroupTier(In& in, bool& valid) {
  GroupTierStatus group_tier;
  const uint64_t tier = in.Number(1);
  const uint64_t group = in.Number(1);
  const uint64_t flags = in.Number(1);
  valid = tier < kTiers && group <= kMaxGroup && flags <= kHasBuckets;
  group_tier.digest.tier = static_cast<Tier>(valid ? tier : 0);
  group_tier.digest.group = static_cast<uint8_t>(group);
  group_tier.digest.total = in.Sum();
  if (flags != kHasBuckets || in.failed()) return group_tier;
  DigestSum sum;
  for (DigestSum& bucket : group_tier.buckets.emplace()) {
    bucket = in.Sum();
    sum.Add(bucket);
  }
  valid = valid && sum == group_tier.digest.total;
  return group_tier;
}

}  // namespace

ExtensionRequestFrame EncodeRequest(const ExtensionRequest& request) {
  Out out;
  out.Text(kMagic);
  out.Number(static_cast<uint64_t>(request.verb), 1);
  out.Number(request.count, 3);
  out.Number(request.argument, 8);
  const std::vector<uint8_t> bytes = out.Take();
  ExtensionRequestFrame frame{};
  std::copy(bytes.begin(), bytes.end(), frame.begin());
  return frame;
}

std::optional<ExtensionRequest> ParseRequest(std::span<const uint8_t> frame) {
  if (frame.size() != std::tuple_size_v<ExtensionRequestFrame>) return std::nullopt;
  if (!StartsWith(frame, kMagic)) return std::nullopt;
  In in(frame.subspan(kMagic.size()));
  const uint64_t verb = in.Number(1);
  if (verb < static_cast<uint64_t>(Verb::kStatus) ||
      verb > static_cast<uint64_t>(Verb::kChallenge)) {
    return std::nullopt;
  }
  ExtensionRequest request;
  request.verb = static_cast<Verb>(verb);
  request.count = static_cast<uint32_t>(in.Number(3));
  request.argument = in.Number(8);
  return request;
}

bool IsLegacySnapshotRequest(std::span<const uint8_t> frame) {
  return frame.size() == kLegacySnapshot.size() && StartsWith(frame, kLegacySnapshot);
}

uint64_t ArgumentOf(const BucketMask& buckets) {
  uint64_t argument = 0;
  for (size_t i = 0; i < kDigestBuckets; ++i) {
    if (buckets.test(i)) argument |= uint64_t{1} << (i / kBucketsPerBit);
  }
  return argument;
}

BucketMask BucketsOf(uint64_t argument) {
  BucketMask buckets;
  for (size_t i = 0; i < kDigestBuckets; ++i) {
    buckets.set(i, (argument >> (i / kBucketsPerBit) & 1) != 0);
  }
  return buckets;
}

std::vector<uint8_t> EncodeStatus(const PublisherStatus& status) {
  Out out;
  out.Text(kMagic);
  out.Number(
      (status.has_digests ? kHasDigests : 0) | (status.answers_challenges ? kAnswersChallenges : 0),
      1);
  out.Number(status.groups.size(), 1);
  out.Number(status.epoch.high, 8);
  out.Number(status.epoch.low, 8);
  out.Number(status.first_held, 8);
  out.Number(status.next_seq, 8);
  for (const GroupTierStatus& group : status.groups) {
    out.Number(static_cast<uint64_t>(group.digest.tier), 1);
    out.Number(group.digest.group, 1);
    out.Number(group.buckets ? kHasBuckets : 0, 1);
    out.Sum(group.digest.total);
    if (!group.buckets) continue;
    for (const DigestSum& bucket : *group.buckets) out.Sum(bucket);
  }
  return out.Take();
}

Result<PublisherStatus> ParseStatus(std::span<const uint8_t> payload) {
  const Status malformed(StatusCode::kMalformed, "not a KVX1 status");
  if (!StartsWith(payload, kMagic)) return malformed;
  In in(payload.subspan(kMagic.size()));
  PublisherStatus status;
  const uint64_t flags = in.Number(1);
  const uint64_t groups = in.Number(1);
  if (flags > kStatusFlags || groups > kMaxGroupTiers) return malformed;
  status.has_digests = (flags & kHasDigests) != 0;
  status.answers_challenges = (flags & kAnswersChallenges) != 0;
  if (!status.has_digests && groups > 0) return malformed;
  status.epoch.high = in.Number(8);
  status.epoch.low = in.Number(8);
  status.first_held = in.Number(8);
  status.next_seq = in.Number(8);
  if (status.next_seq >> 63 != 0 || status.first_held > status.next_seq) return malformed;
  for (uint64_t i = 0; i < groups; ++i) {
    bool valid = true;
    status.groups.push_back(ReadGroupTier(in, valid));
    if (!valid || in.failed()) return malformed;
    if (i > 0 && !InOrder(status.groups[i - 1].digest, status.groups[i].digest)) return malformed;
  }
  if (in.failed() || !in.empty()) return malformed;
  return status;
}

}  // namespace residency
}  // namespace kvcast
