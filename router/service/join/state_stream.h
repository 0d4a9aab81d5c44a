// The state of a router as a stream of bytes, which another router reads when it starts.
//
// Layout: the magic "kvpeer" (see StateMagicOf), the size of the head (4 bytes), the head, the
// shards, and a checksum (16 bytes, XXH3) of all preceding bytes. The head has the fields of
// StateStreamHead, as FieldWriter writes them. A shard is a saved state (see state_file.h) in
// parts. The size of a part (4 bytes) precedes the part, and a size of 0 ends the shard. Integers
// of fixed size have the byte order of the machine.
//
// The checksum detects damage. The checksum does not detect forged streams.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcast/core/status.h"
#include "router/service/join/stream_hash.h"
#include "src/base/descriptor.h"

namespace kvcast::router {

struct StateStreamHead {
  std::string version;  // of kvcast
  uint64_t secret = 0;  // of the content keys in the saved state
  size_t shards = 0;
};

// Makes the bytes of a stream. Thread-compatible.
class StateStreamWriter {
 public:
  // The bytes before the first shard. Call it once, first.
  std::string Begin(const StateStreamHead& head);
  // The bytes of one part of a shard. REQUIRES: the part has 1 byte to 16 MiB.
  std::string Part(std::string_view bytes);
  std::string EndShard();
  // The bytes after the last shard.
  std::string End();

 private:
  std::string Hashed(std::string bytes);

  StreamHash hash_;
};

// Reads a stream that may be damaged. The shards are files in memory. Thread-compatible.
class StateStreamReader {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 32;
  static constexpr size_t kMaxShards = 1024;

  // `on_head` gets the head before any shard is read. If `on_head` returns an error, Add returns
  // this error. `max_bytes`: maximum size of the stream.
  explicit StateStreamReader(std::function<Status(const StateStreamHead&)> on_head,
                             uint64_t max_bytes = kMaxBytes)
      : on_head_(std::move(on_head)), max_bytes_(max_bytes) {}

  // Takes the next bytes of the stream, at any length. kMalformed: the bytes are damaged, or follow
  // the end of the stream. kFailedPrecondition: another version or byte order. kLimit: the stream
  // is longer than max_bytes. kUnavailable: no memory. The reader cannot be used after an error.
  Status Add(std::string_view bytes);
  uint64_t bytes() const { return bytes_; }
  // True: the stream is complete, and its checksum is right.
  bool complete() const { return next_ == Next::kNothing; }
  // The shards, as files to read. REQUIRES: complete().
  std::vector<Descriptor> Take() { return std::move(shards_); }

 private:
  enum class Next : uint8_t { kMagic, kHeadSize, kHead, kPartSize, kPart, kChecksum, kNothing };

  // The number of bytes of the next field.
  size_t wanted() const;
  Status TakeField();
  Status TakeHead();
  Status TakePartSize();
  Status TakePart(std::string_view bytes);

  const std::function<Status(const StateStreamHead&)> on_head_;
  const uint64_t max_bytes_;
  StreamHash hash_;
  Next next_ = Next::kMagic;
  std::string field_;      // the first bytes of the next field
  size_t head_bytes_ = 0;  // of the head
  size_t part_bytes_ = 0;  // that the current part still needs
  bool in_shard_ = false;
  size_t shards_left_ = 0;
  uint64_t bytes_ = 0;
  std::vector<Descriptor> shards_;
};

}  // namespace kvcast::router
