// PickleWriter: writes pickle protocol 5 for the types of a block-hash preimage. The bytes are
// equal to those of CPython's C pickler.
//
// Two features of pickle go beyond a plain encoding of the values:
// - frames: opcodes are grouped in frames. A frame closes at the first object boundary at or
//   after 64 KiB. A string of 64 KiB or more is outside the frames. A frame of less than 4 bytes
//   has no header;
// - memo: strings, bytes and non-empty tuples are numbered when they are completed. A second
//   occurrence of the same object is written as a reference to that number. The bytes of two
//   strings do not show whether they are one object, so callers state it with a tag.
//
// The memory of all texts and byte strings must stay valid until Finish.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvcast/core/ids.h"
#include "src/hash/byte_buffer.h"

namespace kvcast::internal {

// A frame ends at the first object boundary at or after this number of bytes.
inline constexpr size_t kPickleFrameTarget = 64 * 1024;

class PickleWriter {
 public:
  // Starts a pickle at the end of `out`, which must outlive the writer.
  explicit PickleWriter(ByteBuffer& out);

  void WriteNone();
  void WriteBool(bool value);
  void WriteInt(int64_t value);
  void WriteUnsigned(uint64_t value);
  void WriteFloat(double value);
  // Writes UTF-8 text. Two equal texts with an equal, non-zero tag are the same Python object.
  // Equal texts that are empty or have one character below U+0100 are always the same object,
  // because CPython keeps one object of each.
  void WriteText(std::string_view utf8, uint32_t object_tag = 0);
  // Equal byte strings of at most one byte are always the same object.
  void WriteBytes(std::span<const uint8_t> bytes);
  // Writes a tuple of integers. The bytes are equal to those of BeginTuple, WriteInt for each
  // value, and EndTuple. This function is faster.
  void WriteInts(std::span<const TokenId> values);

  // Writes a tuple of `size` items. Call BeginTuple, write the items, call EndTuple with the same
  // size.
  void BeginTuple(size_t size);
  void EndTuple(size_t size);

  // Ends the pickle. No call may follow.
  void Finish();

 private:
  // A text or byte string that may occur again.
  struct Object {
    std::string_view data;
    bool is_text;
    uint32_t tag;
    uint32_t memo_index;
  };
  static constexpr size_t kNoFrame = static_cast<size_t>(-1);

  void BeginObject();
  void OpenFrame();
  void CommitFrame();
  size_t frame_length() const;
  void PutOpcode(uint8_t opcode);
  void Memoize();
  bool WriteReference(const Object& object);
  void PutBlob(std::span<const uint8_t> header, std::string_view data);

  ByteBuffer& out_;
  size_t frame_start_ = kNoFrame;
  uint32_t memo_size_ = 0;
  std::vector<Object> objects_;
};

}  // namespace kvcast::internal
