// SPDX-License-Identifier: Apache-2.0
#include "src/hash/preimage.h"

#include "src/hash/cbor_writer.h"
#include "src/hash/pickle_writer.h"

namespace kvcast::internal {
namespace {

// The texts "lora", "mm", "cache_salt", "prompt_embeds" are constants of the engine's code. All
// occurrences of such a text are the same object.
constexpr uint32_t kConstantTag = UINT32_MAX;

template <typename Writer>
void WriteKey(Writer& writer, const ExtraKey& key, uint32_t object_tag);

// Writes the alternative that an ExtraKey holds. A tag belongs to the key's text, or to the first
// text of a list.
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

// A tagged key is a list: the constant name of the source, then the key itself. `object_tag`
// belongs to the key.
template <typename Writer>
void WriteTaggedKey(Writer& writer, const ExtraKey& key, uint32_t object_tag) {
  const auto* list = std::get_if<ExtraKeyList>(&key.value);
  if (list == nullptr) return WriteKey(writer, key, object_tag);
  writer.BeginTuple(list->items.size());
  for (size_t i = 0; i < list->items.size(); ++i) {
    WriteKey(writer, list->items[i], i == 0 ? kConstantTag : i == 1 ? object_tag : 0);
  }
  writer.EndTuple(list->items.size());
}

template <typename Writer>
void WriteKeys(Writer& writer, const BlockExtra& extra) {
  const ExtraKeys& keys = extra.keys;
  if (keys.empty()) return writer.WriteNone();
  const bool tagged = extra.form.extra_keys == ExtraKeyScheme::kTagged;
  writer.BeginTuple(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t tag = i < extra.object_tags.size() ? extra.object_tags[i] : 0;
    tagged ? WriteTaggedKey(writer, keys[i], tag) : WriteKey(writer, keys[i], tag);
  }
  writer.EndTuple(keys.size());
}

template <typename Writer>
PreimageParts WriteBlock(ByteBuffer& out, std::span<const uint8_t> parent,
                         std::span<const TokenId> tokens, const BlockExtra& extra) {
  const std::span<const TokenId> lookahead = extra.form.lookahead;
  PreimageParts parts;
  Writer writer(out);
  writer.BeginTuple(3);
  writer.WriteBytes(parent);
  writer.WriteInts(tokens);
  parts.tokens_end = out.size();
  if (!lookahead.empty()) writer.BeginTuple(1 + lookahead.size());
  WriteKeys(writer, extra);
  parts.lookahead_begin = out.size();
  for (const TokenId token : lookahead) writer.WriteInt(token);
  parts.lookahead_end = out.size();
  if (!lookahead.empty()) writer.EndTuple(1 + lookahead.size());
  writer.EndTuple(3);
  writer.Finish();
  return parts;
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

PreimageParts WriteBlockPreimage(Serialisation serialisation, std::span<const uint8_t> parent,
                                 std::span<const TokenId> tokens, const BlockExtra& extra,
                                 ByteBuffer& out) {
  out.Clear();
  return serialisation == Serialisation::kPickle
             ? WriteBlock<PickleWriter>(out, parent, tokens, extra)
             : WriteBlock<CborWriter>(out, parent, tokens, extra);
}

}  // namespace kvcast::internal
