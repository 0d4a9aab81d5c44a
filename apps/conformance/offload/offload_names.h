// OffloadNames: the short names in recorded offload runs. A hash has a number. A request has its
// recorded name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/offload/offload_manager.h"

namespace kvcast::tools {

// Throws std::runtime_error if `hex` is not a key.
OffloadKey OffloadKeyOf(const std::string& hex);

// The functions throw std::out_of_range for an unknown number, id or hash.
class OffloadNames {
 public:
  // Adds the digest of the next number. If `hex` is empty, the digest is derived from the number.
  void AddHash(const std::string& hex);
  int64_t num_hashes() const { return std::ssize(digests_); }
  const Digest& digest(int64_t number) const { return digests_.at(static_cast<size_t>(number)); }

  OffloadRequestId RequestId(const std::string& name);
  const std::string& RequestName(OffloadRequestId id) const {
    return request_names_.at(static_cast<size_t>(id.value));
  }

  // Returns [hash number, group].
  nlohmann::json Key(const OffloadKey& key) const;
  nlohmann::json Keys(std::span<const OffloadKey> keys) const;
  static nlohmann::json Slots(std::span<const SlotId> slots);
  // Returns an event in which each byte hash is replaced by its number. If `literal` is false, the
  // tokens are replaced by their count.
  nlohmann::json EventJson(const Event& event, bool literal) const;

 private:
  nlohmann::json Hash(const BlockHash& hash) const;
  nlohmann::json StoredJson(const BlockStored& event, bool literal) const;

  std::vector<Digest> digests_;
  std::unordered_map<std::string, int64_t> by_bytes_;
  std::unordered_map<std::string, OffloadRequestId> request_ids_;
  std::vector<std::string> request_names_;
};

}  // namespace kvcast::tools
