// KVX1, the extension of the replay protocol: its requests, and the status at the end of its
// answers.
//
// A request has 16 bytes: "KVX1", a verb, a 24-bit count and a 64-bit argument, big-endian. The
// request is sent in the place of the start number of a replay request. A server without the
// extension reads the request as a sequence number after all batches, and its answer is only the
// END message. The END of an answer to a KVX1 request carries a status as its payload. Other
// clients never get a status. The byte format is in schemas/README.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/residency/publisher_status.h"
#include "src/residency/snapshot_writer.h"

namespace kvcast::residency {

using kvcast::Epoch;
using kvcast::GroupTierStatus;
using kvcast::PublisherStatus;

enum class Verb : uint8_t {
  kStatus = 1,    // argument: 0, or 1 for the digests of all buckets
  kSnapshot = 2,  // argument: bit i requests the buckets 4i to 4i + 3
  kReplay = 3,    // argument: first sequence number; count: maximum number of batches, 0: all
  // argument: the nonce of a challenge; see kvcast/hash/chain_challenge.h. Only for publishers with
  // PublisherStatus::answers_challenges.
  kChallenge = 4,
};
// Count of a STATUS request: the client knows PublisherStatus::answers_challenges. Without this
// count, the server never sets the flag, because older clients reject a status with the flag.
inline constexpr uint32_t kKnowsChallenges = 1;

struct ExtensionRequest {
  Verb verb = Verb::kStatus;
  uint32_t count = 0;  // < 2^24
  uint64_t argument = 0;
  friend bool operator==(const ExtensionRequest&, const ExtensionRequest&) = default;
};
using ExtensionRequestFrame = std::array<uint8_t, 16>;

ExtensionRequestFrame EncodeRequest(const ExtensionRequest& request);
// nullopt: the frame is not a KVX1 request, or its verb is unknown.
std::optional<ExtensionRequest> ParseRequest(std::span<const uint8_t> frame);
// True for the 8 bytes "snapshot". The answer is a snapshot, then an END without a status. All
// batches of the snapshot have the resume number, which is the number of the first batch after the
// snapshot.
bool IsLegacySnapshotRequest(std::span<const uint8_t> frame);

// The argument of a SNAPSHOT request has one bit for every four buckets.
uint64_t ArgumentOf(const BucketMask& buckets);
BucketMask BucketsOf(uint64_t argument);

std::vector<uint8_t> EncodeStatus(const PublisherStatus& status);
// Not ok: the payload is not a status, is cut short, has extra bytes, or has values that are out of
// range or contradict each other.
Result<PublisherStatus> ParseStatus(std::span<const uint8_t> payload);

}  // namespace kvcast::residency
