// PickleWriter: pickle protocol 5, byte for byte as CPython's C pickler writes it, for the types
// that a block-hash preimage is made of.
//
// What makes the bytes more than a plain encoding:
// - frames: opcodes travel in frames that close at the first object boundary past 64 KiB; a string
//   of 64 KiB or more stands outside the frames; a frame under 4 bytes loses its header;
// - memo: strings, bytes and non-empty tuples are numbered as they are completed, and a second
//   occurrence of the same object is written as a reference to that number. Which strings are one
//   object is not visible in their bytes, so callers say it with a tag.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvcast/core/ids.h"
#include "src/hash/byte_buffer.h"

namespace kvcast::internal {

// A frame ends at the first object boundary at or past this many bytes.
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
  // UTF-8. Equal text under an equal, non-zero tag is the same Python object, and so is equal text
  // of one character below U+0100 or none, which CPython keeps one object of.
  void WriteText(std::string_view utf8, uint32_t object_tag = 0);
  // Up to one byte is the same object, too.
  void WriteBytes(std::span<const uint8_t> bytes);
  // Same as BeginTuple, WriteInt for each, EndTuple, but fast.
  void WriteInts(std::span<const TokenId> values);

  // A tuple of `size` items: BeginTuple, the items, EndTuple with the same size.
  void BeginTuple(size_t size);
  void EndTuple(size_t size);

  // Ends the pickle. Nothing may follow.
  void Finish();

 private:
  // A text or byte string that may come again.
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
