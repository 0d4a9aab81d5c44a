// AmbiguousNames: the hashes and contents for which a source contradicted itself.
//
// A source must give one content to a hash, and one hash to a content and block size. If a source
// contradicts itself, the index does not use the names: the hash has no content, and an answer that
// reaches the content is not exact.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "kvcast/router/content_key.h"
#include "src/base/byte_fields.h"

namespace kvcast::router {

// Thread-compatible. A published object must not change.
class AmbiguousNames {
 public:
  // From this number of entries on, all hashes of the source stay unnamed, and none of its answers
  // is exact.
  static constexpr size_t kMax = 1024;

  void AddHash(uint64_t hash) {
    if (!Overflows()) hashes_.insert(hash);
  }
  void AddContent(ContentKey content) {
    if (!Overflows()) contents_.insert(content);
  }
  // Has the effect of kMax entries.
  void AddEverything() { everything_ = true; }
  bool HasHash(uint64_t hash) const { return Overflows() || hashes_.contains(hash); }
  bool HasContent(ContentKey content) const { return Overflows() || contents_.contains(content); }
  void AddAll(const AmbiguousNames& other) {
    everything_ = everything_ || other.everything_;
    for (const uint64_t hash : other.hashes_) AddHash(hash);
    for (const ContentKey content : other.contents_) AddContent(content);
  }
  void Save(FieldWriter& to) const {
    to.Bool(everything_);
    SaveSet(hashes_, to);
    SaveSet(contents_, to);
  }
  void Restore(FieldReader& from) {
    everything_ = from.Bool();
    for (size_t n = from.Int(kMax); n > 0; --n) AddHash(from.Fixed());
    for (size_t n = from.Int(kMax); n > 0; --n) AddContent(from.Fixed());
  }
  bool empty() const { return !everything_ && hashes_.empty() && contents_.empty(); }
  bool Overflows() const { return everything_ || hashes_.size() + contents_.size() >= kMax; }

 private:
  static void SaveSet(const absl::flat_hash_set<uint64_t>& set, FieldWriter& to) {
    to.Int(set.size());
    for (const uint64_t value : set) to.Fixed(value);
  }

  bool everything_ = false;               // AddEverything was called
  absl::flat_hash_set<uint64_t> hashes_;  // fingerprints, as in IdleNames
  absl::flat_hash_set<ContentKey> contents_;
};

}  // namespace kvcast::router
