// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/saved_workers.h"

#include <set>
#include <string_view>
#include <utility>

namespace kvcast::router {
namespace {

std::string_view OriginName(StateOrigin origin) {
  return origin == StateOrigin::kPeer ? "peer" : "state";
}

constexpr std::string_view kKept = "kept-";

// Files of different saves have different times, so no file replaces another.
std::string KeptName(const std::string& name, int64_t saved_at_ms) {
  if (name.starts_with(kKept)) return name;
  return std::string(kKept) + std::to_string(saved_at_ms) + "-" + name;
}

}  // namespace

void SavedWorkers::Load(const StateFolder& folder) {
  for (const std::string& name : folder.Names(".state")) {
    auto file = StateFile::Open(folder.PathOf(name), SecretCheck(folder.secret()));
    if (file.ok()) {
      Add(std::make_shared<const StateFile>(std::move(file).value()), name);
      continue;
    }
    if (log_ != nullptr) {
      log_->Write(log_events::kStateRefused, "", {{"reason", file.status().message()}});
    }
    const MutexLock lock(mutex_);
    ++CountersOf(StateOrigin::kFolder).files_refused;
  }
  DropOldFiles(folder);
}

void SavedWorkers::Add(const std::shared_ptr<const StateFile>& file, const std::string& name) {
  const MutexLock lock(mutex_);
  const auto from = std::make_shared<FolderFile>(FolderFile{name, file->saved_at_ms()});
  files_.push_back(from);
  for (size_t i = 0; i < file->workers().size(); ++i) {
    Place& place = by_registration_[file->workers()[i].registration];
    if (place.file != nullptr && place.file->saved_at_ms() > file->saved_at_ms()) continue;
    place = {file, static_cast<uint32_t>(i), StateOrigin::kFolder, from};
  }
}

// A router that restarts again and again before its first save is complete keeps more files each
// time. So kept files without a use are removed here, and not only after a complete save.
void SavedWorkers::DropOldFiles(const StateFolder& folder) {
  const MutexLock lock(mutex_);
  std::set<const FolderFile*> used;
  for (const auto& [registration, place] : by_registration_) used.insert(place.from.get());
  std::erase_if(files_, [&](const auto& file) {
    if (used.contains(file.get())) return false;
    if (file->name.starts_with(kKept)) folder.Remove(file->name);
    return true;
  });
}

void SavedWorkers::AddFromPeer(std::shared_ptr<const StateFile> file) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < file->workers().size(); ++i) {
    const std::string& registration = file->workers()[i].registration;
    Place& place = by_registration_[registration];
    if (place.file != nullptr && place.origin == StateOrigin::kFolder) {
      replaced_[registration] = std::move(place);
    }
    place = {file, static_cast<uint32_t>(i), StateOrigin::kPeer};
  }
}

// The shard of a worker can differ from its shard before the restart. So the old file of a shard
// can have the only state of a restored worker that now belongs to another shard.
std::set<std::string> SavedWorkers::KeepFiles(const StateFolder& folder) {
  const MutexLock lock(mutex_);
  for (const auto& file : files_) {
    const std::string kept = KeptName(file->name, file->saved_at_ms);
    if (file->name != kept && folder.Rename(file->name, kept).ok()) file->name = kept;
  }
  std::set<std::string> names;
  for (auto* places : {&by_registration_, &replaced_}) {
    for (const auto& [registration, place] : *places) {
      if (place.from != nullptr) names.insert(place.from->name);
    }
  }
  return names;
}

void SavedWorkers::DropFolder() {
  const MutexLock lock(mutex_);
  for (auto* places : {&by_registration_, &replaced_}) {
    std::erase_if(*places,
                  [](const auto& entry) { return entry.second.origin == StateOrigin::kFolder; });
  }
}

bool SavedWorkers::empty() const {
  const MutexLock lock(mutex_);
  return by_registration_.empty();
}

size_t SavedWorkers::DropPeer() {
  const MutexLock lock(mutex_);
  const size_t dropped = std::erase_if(by_registration_, [](const auto& entry) {
    return entry.second.origin == StateOrigin::kPeer;
  });
  by_registration_.merge(replaced_);
  return dropped;
}

void SavedWorkers::Reserve(PrefixIndex& index) {
  ImageSize size;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(reserved_, true)) return;
    std::set<std::shared_ptr<const StateFile>> files;
    for (const auto& [registration, place] : by_registration_) files.insert(place.file);
    for (const auto& file : files) size.Add(file->size());
  }
  IndexImage::Reserve(index, size);
}

std::optional<RestoredWorker> SavedWorkers::Restore(PrefixIndex& index,
                                                    const WorkerRegistration& registration,
                                                    WorkerIngest& source) {
  std::string text;
  Place place;
  {
    const MutexLock lock(mutex_);
    const auto it = by_registration_.find(text_of_(registration));
    if (it == by_registration_.end()) return std::nullopt;
    text = it->first;
    place = it->second;
  }
  Reserve(index);
  const SavedWorker& saved = place.file->workers()[place.number];
  // CanSave needs no check, because a worker with an equal registration was saved.
  const Status status = source.Restore(saved.source, saved.position.next_seq, [&] {
    return place.file->Restore(index, source.id(), place.number);
  });
  if (!status.ok()) {
    DropAndCount(text, place.origin, &RestoreCounters::workers_refused);
    if (log_ != nullptr) {
      log_->Write(log_events::kStateRefused, source.name(), {{"reason", status.message()}});
    }
    return std::nullopt;
  }
  const uint64_t residencies = index.counters(source.id()).residencies;
  return RestoredWorker{
      saved.position, [this, text, origin = place.origin, name = source.name(), residencies,
                       next_seq = saved.position.next_seq] {
        DropAndCount(text, origin, &RestoreCounters::workers_restored);
        if (log_ == nullptr) return;
        log_->Write(
            log_events::kSourceRestored, name,
            {{"by", OriginName(origin)}, {"residencies", residencies}, {"next_seq", next_seq}});
      }};
}

void SavedWorkers::DropAndCount(const std::string& registration, StateOrigin origin,
                                uint64_t RestoreCounters::*counter) {
  const MutexLock lock(mutex_);
  by_registration_.erase(registration);
  replaced_.erase(registration);
  ++(CountersOf(origin).*counter);
}

RestoreCounters SavedWorkers::counters(StateOrigin origin) const {
  const MutexLock lock(mutex_);
  return counters_[static_cast<size_t>(origin)];
}

}  // namespace kvcast::router
