// SPDX-License-Identifier: Apache-2.0
#include "router/service/join/state_stream.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "router/service/state/state_file.h"
#include "src/base/byte_fields.h"
#include "src/base/check.h"

namespace kvcast::router {
namespace {

constexpr std::string_view kStreamMagic = "kvpeer";
constexpr size_t kMaxHeadBytes = 4096;
constexpr size_t kMaxPartBytes = size_t{1} << 24;

Status DamagedStream() { return {StatusCode::kMalformed, "the state is damaged"}; }

template <typename T>
std::string RawBytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

uint32_t SizeIn(std::string_view field) {
  uint32_t size = 0;
  std::memcpy(&size, field.data(), sizeof(size));
  return size;
}

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

std::string StateStreamWriter::Hashed(std::string bytes) {
  hash_.Add(bytes);
  return bytes;
}

std::string StateStreamWriter::Begin(const StateStreamHead& head) {
  FieldWriter to;
  to.Text(head.version);
  to.Fixed(head.secret);
  to.Int(head.shards);
  const std::vector<uint8_t> fields = to.Take();
  return Hashed(RawBytes(StateMagicOf(kStreamMagic)) +
                RawBytes(static_cast<uint32_t>(fields.size())) +
                std::string(fields.begin(), fields.end()));
}

std::string StateStreamWriter::Part(std::string_view bytes) {
  KV_DCHECK(!bytes.empty() && bytes.size() <= kMaxPartBytes);
  return Hashed(RawBytes(static_cast<uint32_t>(bytes.size())).append(bytes));
}

std::string StateStreamWriter::EndShard() { return Hashed(RawBytes(uint32_t{0})); }

std::string StateStreamWriter::End() { return RawBytes(hash_.checksum()); }

Status StateStreamReader::Add(std::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes_ > max_bytes_) return {StatusCode::kLimit, "the state is too large"};
  while (!bytes.empty()) {
    if (complete()) return DamagedStream();
    const std::string_view more = bytes.substr(0, wanted() - field_.size());
    bytes.remove_prefix(more.size());
    if (next_ != Next::kChecksum) hash_.Add(more);
    Status status;
    if (next_ == Next::kPart) {
      status = TakePart(more);
    } else {
      field_ += more;
      if (field_.size() == wanted()) status = TakeField();
    }
    if (!status.ok()) return status;
  }
  return Status();
}

size_t StateStreamReader::wanted() const {
  switch (next_) {
    case Next::kMagic:
      return sizeof(StateMagic);
    case Next::kHeadSize:
    case Next::kPartSize:
      return sizeof(uint32_t);
    case Next::kHead:
      return head_bytes_;
    case Next::kPart:
      return part_bytes_;
    case Next::kChecksum:
      return sizeof(StreamHash::Checksum);
    case Next::kNothing:
      break;
  }
  return 0;
}

Status StateStreamReader::TakeField() {
  Status status;
  if (next_ == Next::kMagic) {
    StateMagic magic;
    std::memcpy(magic.data(), field_.data(), magic.size());
    status = CheckStateMagic(kStreamMagic, magic);
    next_ = Next::kHeadSize;
  } else if (next_ == Next::kHeadSize) {
    head_bytes_ = SizeIn(field_);
    next_ = Next::kHead;
    if (head_bytes_ == 0 || head_bytes_ > kMaxHeadBytes) status = DamagedStream();
  } else if (next_ == Next::kHead) {
    status = TakeHead();
  } else if (next_ == Next::kPartSize) {
    status = TakePartSize();
  } else {
    next_ = Next::kNothing;
    if (field_ != RawBytes(hash_.checksum())) status = DamagedStream();
  }
  field_.clear();
  return status;
}

Status StateStreamReader::TakeHead() {
  FieldReader from(AsBytes(field_));
  StateStreamHead head;
  head.version = from.Text();
  head.secret = from.Fixed();
  head.shards = from.Int(kMaxShards);
  if (!from.AtEnd()) return DamagedStream();
  shards_left_ = head.shards;
  next_ = shards_left_ == 0 ? Next::kChecksum : Next::kPartSize;
  return on_head_(head);
}

Status StateStreamReader::TakePartSize() {
  part_bytes_ = SizeIn(field_);
  if (part_bytes_ > kMaxPartBytes) return DamagedStream();
  if (part_bytes_ == 0) {
    if (!in_shard_) return DamagedStream();
    in_shard_ = false;
    if (--shards_left_ == 0) next_ = Next::kChecksum;
    return Status();
  }
  next_ = Next::kPart;
  if (in_shard_) return Status();
  in_shard_ = true;
  shards_.emplace_back(memfd_create("kvcast-peer-state", MFD_CLOEXEC));
  if (shards_.back().get() >= 0) return Status();
  return {StatusCode::kUnavailable, std::string("no memory: ") + std::strerror(errno)};
}

Status StateStreamReader::TakePart(std::string_view bytes) {
  part_bytes_ -= bytes.size();
  if (part_bytes_ == 0) next_ = Next::kPartSize;
  while (!bytes.empty()) {
    const ssize_t written = write(shards_.back().get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return {StatusCode::kUnavailable, std::string("no memory: ") + std::strerror(errno)};
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return Status();
}

}  // namespace kvcast::router
