// KVX1: the extension of the replay protocol, its requests and the status that answers end with.
//
// A request is 16 bytes in the place of the start number: "KVX1", a verb, a 24-bit count and a
// 64-bit argument, big-endian. A server that does not know it sees a number past all batches, and
// answers with END alone. The answer's END carries a status as its payload, which a client that did
// not ask for it never sees. schemas/README.md has the bytes.
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
using kvcast::PlaceStatus;
using kvcast::PublisherStatus;

enum class Verb : uint8_t {
  kStatus = 1,    // argument: 0, or 1 for the digests of all buckets
  kSnapshot = 2,  // argument: bit i asks for the buckets 4i to 4i + 3
  kReplay = 3,    // argument: first number; count: batches, 0 for all
};

struct ExtensionRequest {
  Verb verb = Verb::kStatus;
  uint32_t count = 0;  // < 2^24
  uint64_t argument = 0;
  friend bool operator==(const ExtensionRequest&, const ExtensionRequest&) = default;
};
using ExtensionRequestFrame = std::array<uint8_t, 16>;

ExtensionRequestFrame EncodeRequest(const ExtensionRequest& request);
// nullopt: not an extension request, or an unknown verb.
std::optional<ExtensionRequest> ParseRequest(std::span<const uint8_t> frame);
// 8 bytes "snapshot": stores with the resume number, then a plain END.
bool IsLegacySnapshotRequest(std::span<const uint8_t> frame);

// The mask of a SNAPSHOT: whole fours of buckets.
uint64_t ArgumentOf(const BucketMask& buckets);
BucketMask BucketsOf(uint64_t argument);

std::vector<uint8_t> EncodeStatus(const PublisherStatus& status);
// Not ok: not a status, cut short, bytes left over, or values out of range.
Result<PublisherStatus> ParseStatus(std::span<const uint8_t> payload);

}  // namespace kvcast::residency
