// Captures of event streams: `kvcast tail --record` writes them and `kvcast replay` publishes them.
//
// File: "kvcast-capture-1\n", then one record per message, numbers little-endian:
//   [f64 seconds since the Unix epoch][u32 topic bytes][u64 sequence number][u32 payload bytes]
//   [topic][payload]
// A file that ends inside a record was not written completely. The records before the incomplete
// record are valid.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"

namespace kvcast::tools {

struct CapturedMessage {
  double time = 0;  // of reception, in seconds since the Unix epoch
  std::string topic;
  uint64_t seq = 0;
  std::string payload;
};

// The bytes before the first record.
inline constexpr std::string_view kCaptureMagic = "kvcast-capture-1\n";
std::string EncodeRecord(const CapturedMessage& message);

// Thread-compatible: one thread at a time may use a writer or a reader.
class CaptureWriter {
 public:
  // Replaces an existing file. Only the owner of the file may read it. kUnavailable: the file
  // cannot be opened.
  static Result<CaptureWriter> Create(const std::string& path);
  // Ok: the record was passed to the kernel. kUnavailable: the write failed.
  Status Write(const CapturedMessage& message);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  explicit CaptureWriter(std::FILE* file) : file_(file) {}
  std::unique_ptr<std::FILE, Close> file_;
};

class CaptureReader {
 public:
  // Reads the whole file, which may be compressed. Errors: see ReadFile (file.h); kMalformed if the
  // file is not a capture.
  static Result<CaptureReader> Open(const std::string& path);
  // The same for the uncompressed bytes of a file.
  static Result<CaptureReader> Parse(std::string bytes);
  // nullopt: no more complete records.
  std::optional<CapturedMessage> Next();

 private:
  explicit CaptureReader(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string bytes_;
  size_t at_ = 0;
};

// The time from the replay of the first message to the replay of a message, in nanoseconds. The
// times in a file may have any value, so the result is limited to [0, kMaxReplayOffsetNs].
// REQUIRES: speed > 0.
inline constexpr int64_t kMaxReplayOffsetNs = int64_t{1} << 61;  // 73 years
int64_t ReplayOffsetNs(double first_time, double time, double speed);

}  // namespace kvcast::tools
