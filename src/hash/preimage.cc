// SPDX-License-Identifier: Apache-2.0
#include "src/hash/preimage.h"

#include "src/hash/cbor_writer.h"
#include "src/hash/pickle_writer.h"

namespace kvcast::internal {
namespace {

template <typename Writer>
void WriteKey(Writer& writer, const ExtraKey& key, uint32_t object_tag);

// Writes the alternative that an ExtraKey holds. A tag belongs to the key's text, or to the first
// text of a pair.
template <typename Writer>
struct KeyVisitor {
  Writer& writer;
  uint32_t object_tag;

  void operator()(std::monostate) { writer.WriteNone(); }
  void operator()(bool value) { writer.WriteBool(value); }
  void operator()(int64_t value) { writer.WriteInt(value); }
  void operator()(uint64_t value) { writer.WriteUnsigned(value); }
  void operator()(double value) { writer.WriteFloat(value); }
  void operator()(const std::string& text) { writer.WriteText(text, object_tag); }
  void operator()(const Bytes& bytes) {
    writer.WriteBytes({reinterpret_cast<const uint8_t*>(bytes.data.data()), bytes.data.size()});
  }
  void operator()(const ExtraKeyList& list) {
    writer.BeginTuple(list.items.size());
    for (size_t i = 0; i < list.items.size(); ++i) {
      WriteKey(writer, list.items[i], i == 0 ? object_tag : 0);
    }
    writer.EndTuple(list.items.size());
  }
};

template <typename Writer>
void WriteKey(Writer& writer, const ExtraKey& key, uint32_t object_tag) {
  std::visit(KeyVisitor<Writer>{writer, object_tag}, key.value);
}

template <typename Writer>
void WriteExtra(Writer& writer, const ExtraKeys& extra, std::span<const uint32_t> object_tags) {
  if (extra.empty()) return writer.WriteNone();
  writer.BeginTuple(extra.size());
  for (size_t i = 0; i < extra.size(); ++i) {
    WriteKey(writer, extra[i], i < object_tags.size() ? object_tags[i] : 0);
  }
  writer.EndTuple(extra.size());
}

template <typename Writer>
size_t WriteBlock(ByteBuffer& out, std::span<const uint8_t> parent, std::span<const TokenId> tokens,
                  const ExtraKeys& extra, std::span<const uint32_t> object_tags) {
  Writer writer(out);
  writer.BeginTuple(3);
  writer.WriteBytes(parent);
  writer.WriteInts(tokens);
  const size_t tokens_end = out.size();
  WriteExtra(writer, extra, object_tags);
  writer.EndTuple(3);
  writer.Finish();
  return tokens_end;
}

template <typename Writer>
void WriteSeed(Writer writer, std::string_view seed) {
  writer.WriteText(seed);
  writer.Finish();
}

}  // namespace

void WriteSeedPreimage(Serialisation form, std::string_view seed, ByteBuffer& out) {
  out.Clear();
  if (form == Serialisation::kPickle) {
    WriteSeed(PickleWriter(out), seed);
  } else {
    WriteSeed(CborWriter(out), seed);
  }
}

size_t WriteBlockPreimage(Serialisation form, std::span<const uint8_t> parent,
                          std::span<const TokenId> tokens, const ExtraKeys& extra,
                          std::span<const uint32_t> object_tags, ByteBuffer& out) {
  out.Clear();
  return form == Serialisation::kPickle
             ? WriteBlock<PickleWriter>(out, parent, tokens, extra, object_tags)
             : WriteBlock<CborWriter>(out, parent, tokens, extra, object_tags);
}

}  // namespace kvcast::internal
