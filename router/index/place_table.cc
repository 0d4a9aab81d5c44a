// SPDX-License-Identifier: Apache-2.0
#include "router/index/place_table.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace kvcast::router {

PlaceTable::~PlaceTable() { delete[] places_.load(std::memory_order_relaxed); }

void PlaceTable::Grow() {
  Word* const old = places_.load(std::memory_order_relaxed);
  const size_t capacity = std::max<size_t>(8, 2 * capacity_);
  Word* const places = new Word[capacity];
  for (size_t i = 0; i < capacity; ++i) {
    // No reader sees the new array before the release store below (I8).
    places[i].store(i < used_ ? old[i].load(std::memory_order_relaxed) : kClosed,
                    std::memory_order_relaxed);
  }
  places_.store(places, std::memory_order_release);  // I8
  capacity_ = capacity;
  if (old == nullptr) return;
  epochs_.Retire([](void*, uintptr_t words) { delete[] reinterpret_cast<Word*>(words); }, nullptr,
                 reinterpret_cast<uintptr_t>(old));
}

PlaceId PlaceTable::Open(const Place& place) {
  if (free_.empty()) {
    if (used_ == capacity_) Grow();
    free_.push_back(static_cast<PlaceId>(used_++));
  }
  const PlaceId id = free_.back();
  free_.pop_back();
  const uint64_t word =
      uint64_t{place.slot} << 16 | uint64_t{place.group} << 8 | static_cast<uint64_t>(place.tier);
  // I8: no run has a bit of a place with this number.
  places_.load(std::memory_order_relaxed)[id].store(word, std::memory_order_release);
  return id;
}

void PlaceTable::Close(PlaceId id) {
  // I1, I8: the caller has made the worker's version odd.
  places_.load(std::memory_order_relaxed)[id].store(kClosed, std::memory_order_release);
  closed_.push_back(id);
}

void PlaceTable::SetVersion(WorkerSlot slot, std::atomic<uint64_t>* version) {
  if (slot >= versions_.size()) versions_.resize(slot + size_t{1}, nullptr);
  versions_[slot] = version;
}

void PlaceTable::BeginMove(PlaceId id) {
  const std::optional<Place> place = Read(id);
  KV_CHECK(place && place->slot < versions_.size() && versions_[place->slot] != nullptr);
  std::atomic<uint64_t>& version = *versions_[place->slot];
  const uint64_t before = version.load(std::memory_order_relaxed);  // I0
  // A worker may hold the blocks in several places.
  if (before % 2 != 0) return;
  changes_.Begin(place->slot);
  version.store(before + 1, std::memory_order_release);  // I1
  moving_.push_back(&version);
}

void PlaceTable::EndMove() {
  for (std::atomic<uint64_t>* const version : moving_) {
    version->store(version->load(std::memory_order_relaxed) + 1, std::memory_order_release);  // I1
  }
  moving_.clear();
  changes_.End();
}

bool PlaceTable::BeginSweep() {
  swept_.swap(closed_);
  return !swept_.empty();
}

void PlaceTable::EndSweep() {
  free_.insert(free_.end(), swept_.begin(), swept_.end());
  swept_.clear();
}

void OwnPlaces::Add(Tier tier, uint8_t group, PlaceId place) {
  std::vector<PlaceId>& of_tier = by_tier_[static_cast<size_t>(tier)];
  if (of_tier.size() <= group) of_tier.resize(group + size_t{1}, kNoPlace);
  of_tier[group] = place;
  all_.push_back(place);
}

void OwnPlaces::Clear(Tier tier) {
  by_tier_[static_cast<size_t>(tier)].clear();
  all_.clear();
  for (const std::vector<PlaceId>& of_tier : by_tier_) {
    for (const PlaceId place : of_tier) {
      if (place != kNoPlace) all_.push_back(place);
    }
  }
}

}  // namespace kvcast::router
