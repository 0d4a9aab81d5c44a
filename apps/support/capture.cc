// SPDX-License-Identifier: Apache-2.0
#include "apps/support/capture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "apps/support/file.h"

namespace kvcast::tools {
namespace {

constexpr size_t kHeaderBytes = 8 + 4 + 8 + 4;  // of a record

// Appends a number, little-endian.
void Append(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

uint64_t Read(std::string_view bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i) {
    value = value << 8 | static_cast<uint8_t>(bytes[at + static_cast<size_t>(i)]);
  }
  return value;
}

}  // namespace

Result<CaptureWriter> CaptureWriter::Create(const std::string& path) {
  // A capture contains the token ids of prompts, so only its owner may read it. O_NOFOLLOW: in a
  // folder that other users can write, a symbolic link could redirect the capture to another file.
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
  const int opened = ::open(path.c_str(), flags, S_IRUSR | S_IWUSR);
  // The mode argument of open has no effect on a file that exists.
  const bool is_private = opened >= 0 && ::fchmod(opened, S_IRUSR | S_IWUSR) == 0;
  std::FILE* const file = is_private ? ::fdopen(opened, "wb") : nullptr;
  if (file == nullptr) {
    const Status status(StatusCode::kUnavailable, path + ": " + std::strerror(errno));
    if (opened >= 0) ::close(opened);
    return status;
  }
  CaptureWriter writer(file);
  std::fwrite(kCaptureMagic.data(), 1, kCaptureMagic.size(), file);
  return writer;
}

std::string EncodeRecord(const CapturedMessage& message) {
  std::string record;
  Append(record, std::bit_cast<uint64_t>(message.time), 8);
  Append(record, message.topic.size(), 4);
  Append(record, message.seq, 8);
  Append(record, message.payload.size(), 4);
  record += message.topic;
  record += message.payload;
  return record;
}

Status CaptureWriter::Write(const CapturedMessage& message) {
  const std::string record = EncodeRecord(message);
  const bool written = std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size();
  if (written && std::fflush(file_.get()) == 0) return Status();
  return Status(StatusCode::kUnavailable,
                std::string("cannot write the capture: ") + std::strerror(errno));
}

Result<CaptureReader> CaptureReader::Parse(std::string bytes) {
  if (!bytes.starts_with(kCaptureMagic)) {
    return Status(StatusCode::kMalformed, "not a capture of kvcast tail --record");
  }
  CaptureReader reader(std::move(bytes));
  reader.at_ = kCaptureMagic.size();
  return reader;
}

Result<CaptureReader> CaptureReader::Open(const std::string& path) {
  auto bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  auto reader = Parse(std::move(bytes).value());
  if (reader.ok()) return reader;
  return Status(reader.status().code(), path + ": " + reader.status().message());
}

std::optional<CapturedMessage> CaptureReader::Next() {
  if (bytes_.size() - at_ < kHeaderBytes) return std::nullopt;
  CapturedMessage message;
  message.time = std::bit_cast<double>(Read(bytes_, at_, 8));
  const size_t topic_bytes = Read(bytes_, at_ + 8, 4);
  message.seq = Read(bytes_, at_ + 12, 8);
  const size_t payload_bytes = Read(bytes_, at_ + 20, 4);
  if (bytes_.size() - at_ - kHeaderBytes < topic_bytes + payload_bytes) return std::nullopt;
  message.topic = bytes_.substr(at_ + kHeaderBytes, topic_bytes);
  message.payload = bytes_.substr(at_ + kHeaderBytes + topic_bytes, payload_bytes);
  at_ += kHeaderBytes + topic_bytes + payload_bytes;
  return message;
}

int64_t ReplayOffsetNs(double first_time, double time, double speed) {
  const double ns = (time - first_time) / speed * 1e9;
  if (!(ns > 0)) return 0;  // also if `ns` is not a number
  if (ns >= static_cast<double>(kMaxReplayOffsetNs)) return kMaxReplayOffsetNs;
  return static_cast<int64_t>(ns);
}

}  // namespace kvcast::tools
