// StateFile: the saved state of the workers of one shard.
//
// Layout: the magic (16 bytes), the size of the head (8 bytes), the head, the runs of blocks (see
// run_image.h), and a checksum (16 bytes, XXH3) of all preceding bytes. The head has the fields of
// StateHead and of each worker, as FieldWriter writes them. Integers of fixed size have the byte
// order of the machine. A machine with the other byte order does not accept the magic.
//
// The checksum detects errors of a disk. The checksum does not detect forged files: only the owner
// of the folder may read and write the folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/stream/saved_position.h"
#include "router/index/index_image.h"
#include "src/base/descriptor.h"

namespace kvcast::router {

// The version of the layout of saved states.
inline constexpr uint32_t kStateVersion = 4;

// The first bytes of a saved state: `name`, zero bytes up to byte 8, the version (4 bytes), and the
// byte order of this machine (4 bytes). REQUIRES: `name` has at most 8 bytes.
using StateMagic = std::array<char, 16>;
StateMagic StateMagicOf(std::string_view name);
// kMalformed: another name. kFailedPrecondition: another version or another byte order.
Status CheckStateMagic(std::string_view name, const StateMagic& magic);

struct StateHead {
  // A digest of the secret of the content keys. The saved names belong to this secret.
  uint64_t secret_check = 0;
  int64_t saved_at_ms = 0;  // since the Unix epoch
};

// A digest that does not reveal the secret.
uint64_t SecretCheck(uint64_t secret);

struct SavedWorker {
  std::string registration;  // equal texts: equal registrations
  SavedPosition position;
  std::vector<uint8_t> source;   // see WorkerIngest::Save
  std::vector<uint8_t> learned;  // see FrozenShard::learned
};

// The bytes of a file before the runs.
std::vector<uint8_t> EncodeHead(const StateHead& head, std::span<const SavedWorker> workers);

// Writes one file, or its bytes to a pipe. The memory is allocated by the constructor, so that
// Write may run in a forked child.
class StateFileWriter {
 public:
  // `fd`: an empty file or a pipe, which must be open during Write. `head`: see EncodeHead.
  StateFileWriter(int fd, std::vector<uint8_t> head);
  ~StateFileWriter();
  // Writes the head, the runs and the checksum, and waits until the bytes of a file have reached
  // the disk.
  // Returns 0, or the error number of the system. Allocates no memory and takes no lock.
  int Write(const FrozenShard& frozen);

 private:
  class File;
  const std::vector<uint8_t> head_;
  const std::unique_ptr<File> file_;
};

// A file that was read and checked. Thread-compatible.
class StateFile {
 public:
  // Errors are one line that names the file. kMalformed: the file is damaged, or is not complete.
  // kFailedPrecondition: another version, another byte order, or another secret. kUnavailable: the
  // file cannot be read.
  static Result<StateFile> Open(const std::string& path, uint64_t secret_check);
  // As Open. `name`: of the file, for errors.
  static Result<StateFile> Read(const Descriptor& file, const std::string& name,
                                uint64_t secret_check);

  int64_t saved_at_ms() const { return head_.saved_at_ms; }
  const std::vector<SavedWorker>& workers() const { return workers_; }
  // The size of the blocks of all workers.
  const ImageSize& size() const { return size_; }
  // Restores the blocks of worker number `number` of workers(); see IndexImage::Restore.
  Status Restore(PrefixIndex& index, WorkerId worker, uint32_t number) const;

 private:
  struct Unmap {
    size_t size;
    void operator()(const uint8_t* data) const;
  };
  using Mapping = std::unique_ptr<const uint8_t, Unmap>;

  StateFile() = default;
  std::span<const uint8_t> bytes() const { return {data_.get(), data_.get_deleter().size}; }
  Status Parse(uint64_t secret_check);
  bool ReadHead(FieldReader& from);
  bool ReadRuns(std::span<const uint8_t> runs);

  Mapping data_;
  StateHead head_;
  std::vector<SavedWorker> workers_;
  ImageSize size_;
  // By worker: the places in the file of all runs that have blocks of the worker.
  std::vector<std::vector<uint64_t>> runs_of_;
};

}  // namespace kvcast::router
