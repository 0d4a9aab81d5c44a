// SPDX-License-Identifier: Apache-2.0
#include "src/hash/pickle_writer.h"

#include <algorithm>
#include <bit>

#include "src/hash/pickle_int.h"
#include "src/hash/store.h"

namespace kvcast::internal {
namespace {

constexpr size_t kFrameHeaderSize = 9;
constexpr size_t kFrameSizeMin = 4;

enum Opcode : uint8_t {
  kProto = 0x80,
  kFrame = 0x95,
  kStop = '.',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinFloat = 'G',
  kShortText = 0x8c,
  kText = 'X',
  kText8 = 0x8d,
  kShortBytes = 'C',
  kBytes = 'B',
  kBytes8 = 0x8e,
  kMark = '(',
  kTupleFromMark = 't',
  kEmptyTuple = ')',
  kTuple1 = 0x85,
  kMemoize = 0x94,
  kBinGet = 'h',
  kLongBinGet = 'j',
};

// Opcode and length of a string or byte string. The length has 1, 4 or 8 bytes.
struct BlobHeader {
  uint8_t bytes[9];
  size_t size;
};

BlobHeader MakeBlobHeader(size_t length, Opcode with1, Opcode with4, Opcode with8) {
  BlobHeader header{};
  if (length <= 0xff) {
    header.bytes[0] = with1;
    header.bytes[1] = static_cast<uint8_t>(length);
    header.size = 2;
  } else if (length <= 0xffffffff) {
    header.bytes[0] = with4;
    StoreLittle<uint32_t>(header.bytes + 1, static_cast<uint32_t>(length));
    header.size = 5;
  } else {
    header.bytes[0] = with8;
    StoreLittle<uint64_t>(header.bytes + 1, length);
    header.size = 9;
  }
  return header;
}

// True if the text is empty, one ASCII character, or one character of U+0080..U+00FF.
bool IsSingletonText(std::string_view utf8) {
  if (utf8.size() <= 1) return true;
  const auto lead = static_cast<uint8_t>(utf8[0]);
  return utf8.size() == 2 && (lead == 0xc2 || lead == 0xc3);
}

}  // namespace

PickleWriter::PickleWriter(ByteBuffer& out) : out_(out) {
  out_.Put(kProto);
  out_.Put(5);
}

void PickleWriter::WriteNone() {
  BeginObject();
  PutOpcode(kNone);
}

void PickleWriter::WriteBool(bool value) {
  BeginObject();
  PutOpcode(value ? kNewTrue : kNewFalse);
}

void PickleWriter::WriteInt(int64_t value) {
  BeginObject();
  OpenFrame();
  out_.SetEnd(PutPickleInts(out_.Room(kPickleIntMax), {&value, 1}));
}

void PickleWriter::WriteUnsigned(uint64_t value) {
  BeginObject();
  OpenFrame();
  out_.SetEnd(PutPickleUnsigned(out_.Room(kPickleIntMax), value));
}

void PickleWriter::WriteFloat(double value) {
  BeginObject();
  PutOpcode(kBinFloat);
  uint8_t* at = out_.Room(8);
  StoreBig<uint64_t>(at, std::bit_cast<uint64_t>(value));
  out_.SetEnd(at + 8);
}

void PickleWriter::WriteText(std::string_view utf8, uint32_t object_tag) {
  BeginObject();
  // CPython has one object for each singleton text, so the tag does not matter.
  const Object object{utf8, true, IsSingletonText(utf8) ? 0 : object_tag, memo_size_};
  const bool shared = object.tag != 0 || IsSingletonText(utf8);
  if (shared && WriteReference(object)) return;
  const BlobHeader header = MakeBlobHeader(utf8.size(), kShortText, kText, kText8);
  PutBlob({header.bytes, header.size}, utf8);
  if (shared) objects_.push_back(object);
  Memoize();
}

void PickleWriter::WriteBytes(std::span<const uint8_t> bytes) {
  BeginObject();
  const std::string_view data(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Object object{data, false, 0, memo_size_};
  const bool shared = data.size() <= 1;
  if (shared && WriteReference(object)) return;
  const BlobHeader header = MakeBlobHeader(data.size(), kShortBytes, kBytes, kBytes8);
  PutBlob({header.bytes, header.size}, data);
  if (shared) objects_.push_back(object);
  Memoize();
}

void PickleWriter::WriteInts(std::span<const TokenId> values) {
  BeginTuple(values.size());
  if (frame_length() + values.size() * kPickleIntMax < kPickleFrameTarget) {
    // No frame can end inside the tuple, so the boundary check per integer is left out.
    OpenFrame();
    out_.SetEnd(PutPickleInts(out_.Room(values.size() * kPickleIntMax), values));
  } else {
    for (TokenId value : values) WriteInt(value);
  }
  EndTuple(values.size());
}

void PickleWriter::BeginTuple(size_t size) {
  BeginObject();
  if (size > 3) PutOpcode(kMark);
}

void PickleWriter::EndTuple(size_t size) {
  if (size == 0) return PutOpcode(kEmptyTuple);
  const auto from_stack = static_cast<uint8_t>(kTuple1 + size - 1);
  PutOpcode(size > 3 ? uint8_t{kTupleFromMark} : from_stack);
  Memoize();
}

void PickleWriter::Finish() {
  PutOpcode(kStop);
  CommitFrame();
}

void PickleWriter::BeginObject() {
  if (frame_start_ != kNoFrame && frame_length() >= kPickleFrameTarget) CommitFrame();
}

void PickleWriter::OpenFrame() {
  if (frame_start_ != kNoFrame) return;
  frame_start_ = out_.size();
  out_.SetEnd(out_.Room(kFrameHeaderSize) + kFrameHeaderSize);
}

void PickleWriter::CommitFrame() {
  if (frame_start_ == kNoFrame) return;
  const size_t length = frame_length();
  uint8_t* header = out_.at(frame_start_);
  if (length < kFrameSizeMin) {
    std::memmove(header, header + kFrameHeaderSize, length);
    out_.Truncate(out_.size() - kFrameHeaderSize);
  } else {
    header[0] = kFrame;
    StoreLittle<uint64_t>(header + 1, length);
  }
  frame_start_ = kNoFrame;
}

size_t PickleWriter::frame_length() const {
  return frame_start_ == kNoFrame ? 0 : out_.size() - frame_start_ - kFrameHeaderSize;
}

void PickleWriter::PutOpcode(uint8_t opcode) {
  OpenFrame();
  out_.Put(opcode);
}

void PickleWriter::Memoize() {
  PutOpcode(kMemoize);
  ++memo_size_;
}

bool PickleWriter::WriteReference(const Object& object) {
  const auto seen = std::find_if(objects_.begin(), objects_.end(), [&](const Object& other) {
    return other.is_text == object.is_text && other.tag == object.tag && other.data == object.data;
  });
  if (seen == objects_.end()) return false;
  if (seen->memo_index <= 0xff) {
    PutOpcode(kBinGet);
    out_.Put(static_cast<uint8_t>(seen->memo_index));
  } else {
    PutOpcode(kLongBinGet);
    uint8_t* at = out_.Room(4);
    StoreLittle<uint32_t>(at, seen->memo_index);
    out_.SetEnd(at + 4);
  }
  return true;
}

void PickleWriter::PutBlob(std::span<const uint8_t> header, std::string_view data) {
  if (data.size() >= kPickleFrameTarget) {
    CommitFrame();
  } else {
    OpenFrame();
  }
  out_.Put(header.data(), header.size());
  out_.Put(data.data(), data.size());
}

}  // namespace kvcast::internal
