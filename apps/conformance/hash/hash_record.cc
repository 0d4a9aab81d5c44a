// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/hash/hash_record.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace kvcast::tools {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kEmbeddingsPrefix = "prompt_embeds_";
constexpr std::string_view kEmbeddingsSuffix = "_rows_hex";
constexpr int kNestingMax = 8;

// Reads the fields of one record. Keeps the first failure. A failed read returns an empty value, so
// callers need no check after each field.
class FieldReader {
 public:
  explicit FieldReader(const Json& record) : record_(record) {}

  const std::string& failure() const { return failure_; }
  void Fail(std::string_view field, std::string_view problem) {
    if (failure_.empty()) failure_ = std::string(field) + ": " + std::string(problem);
  }
  // nullptr: the field is absent or null.
  const Json* Find(const char* field) const {
    const auto it = record_.find(field);
    return it == record_.end() || it->is_null() ? nullptr : &*it;
  }
  const Json* Require(const char* field) {
    const Json* value = Find(field);
    if (!value) Fail(field, "missing");
    return value;
  }

  std::string Text(std::string_view field, const Json& value) {
    if (value.is_string()) return value.get<std::string>();
    Fail(field, "not a string");
    return {};
  }
  int64_t Int(std::string_view field, const Json& value) {
    if (value.is_number_integer() &&
        (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX)) {
      return value.get<int64_t>();
    }
    Fail(field, "not an integer of 64 bits");
    return 0;
  }
  // A negative number gives its two's complement bits.
  uint64_t Bits(std::string_view field, const Json& value) {
    return value.is_number_unsigned() ? value.get<uint64_t>()
                                      : static_cast<uint64_t>(Int(field, value));
  }
  std::string Hex(std::string_view field, const Json& value) {
    const std::string digits = Text(field, value);
    std::string bytes;
    if (digits.size() % 2 != 0) Fail(field, "odd number of hex digits");
    for (size_t i = 0; i + 1 < digits.size(); i += 2) {
      const int high = HexDigit(digits[i]);
      const int low = HexDigit(digits[i + 1]);
      if (high < 0 || low < 0) Fail(field, "not hex");
      bytes.push_back(static_cast<char>(high << 4 | low));
    }
    return bytes;
  }
  // Reads each item of a list with `read(field, item)`.
  template <typename Read>
  auto List(std::string_view field, const Json& value, Read read) {
    std::vector<decltype(read(field, value))> items;
    if (!value.is_array()) {
      Fail(field, "not a list");
      return items;
    }
    items.reserve(value.size());
    for (const Json& item : value) items.push_back(read(field, item));
    return items;
  }

 private:
  static int HexDigit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }

  const Json& record_;
  std::string failure_;
};

ExtraKey ReadExtraKey(FieldReader& reader, const Json& value, int depth) {
  if (value.is_string()) return ExtraKey::Text(value.get<std::string>());
  if (value.is_number_integer()) return ExtraKey::Int(reader.Int("extra_keys", value));
  if (value.is_object() && value.contains("bytes")) {
    return ExtraKey::Binary(reader.Hex("extra_keys", value["bytes"]));
  }
  if (value.is_array() && depth < kNestingMax) {
    ExtraKeyList list;
    for (const Json& item : value) list.items.push_back(ReadExtraKey(reader, item, depth + 1));
    return {std::move(list)};
  }
  reader.Fail("extra_keys", "expected text, an integer, bytes or a list");
  return {};
}

ExtraKeys ReadExtraKeys(FieldReader& reader, const Json& block) {
  if (block.is_null()) return {};
  return reader.List("extra_keys", block, [&](std::string_view, const Json& key) {
    return ReadExtraKey(reader, key, 0);
  });
}

MultimodalItem ReadMultimodalItem(FieldReader& reader, const Json& value) {
  if (!value.is_object()) {
    reader.Fail("mm", "not an object");
    return {};
  }
  FieldReader fields(value);
  MultimodalItem item;
  if (const Json* identifier = fields.Require("identifier")) {
    item.identifier = fields.Text("identifier", *identifier);
  }
  if (const Json* offset = fields.Require("offset")) item.offset = fields.Int("offset", *offset);
  if (const Json* length = fields.Require("length")) item.length = fields.Int("length", *length);
  if (!fields.failure().empty()) reader.Fail("mm", fields.failure());
  return item;
}

// Items with equal identifiers get the same object tag.
void TagEqualIdentifiers(std::vector<MultimodalItem>& items) {
  std::map<std::string, uint32_t> tags;
  for (MultimodalItem& item : items) {
    const auto next = static_cast<uint32_t>(tags.size() + 1);
    item.object_tag = tags.emplace(item.identifier, next).first->second;
  }
}

void ReadMultimodal(FieldReader& reader, HashInputs& inputs) {
  const Json* items = reader.Find("mm");
  if (!items) return;
  inputs.mm_items = reader.List("mm", *items, [&](std::string_view, const Json& item) {
    return ReadMultimodalItem(reader, item);
  });
  for (const char* field : {"mm_identifiers_are_one_python_object", "mm_same_object"}) {
    const Json* shared = reader.Find(field);
    if (shared && shared->is_boolean() && shared->get<bool>()) TagEqualIdentifiers(inputs.mm_items);
  }
}

void ReadEmbeddings(FieldReader& reader, const Json& record, HashInputs& inputs) {
  for (const auto& [key, value] : record.items()) {
    if (!key.starts_with(kEmbeddingsPrefix) || !key.ends_with(kEmbeddingsSuffix)) continue;
    if (value.is_null()) continue;
    PromptEmbeddings embeddings;
    const auto rows = reader.List(key, value, [&](std::string_view field, const Json& row) {
      return reader.Hex(field, row);
    });
    for (const std::string& row : rows) {
      if (row.size() != rows[0].size()) reader.Fail(key, "rows differ in size");
      embeddings.data += row;
    }
    if (!rows.empty()) embeddings.row_bytes = rows[0].size();
    if (embeddings.row_bytes == 0) reader.Fail(key, "there are no rows, or the rows are empty");
    inputs.prompt_embeddings = std::move(embeddings);
  }
}

void ReadTokens(FieldReader& reader, HashRecord& out) {
  if (const Json* tokens = reader.Find("tokens")) {
    out.tokens = reader.List("tokens", *tokens, [&](std::string_view field, const Json& token) {
      return TokenId{reader.Int(field, token)};
    });
  } else if (const auto& embeddings = out.inputs.prompt_embeddings) {
    // In a prompt of embeddings only, every position has token 0.
    if (embeddings->row_bytes > 0) {
      out.tokens.assign(embeddings->data.size() / embeddings->row_bytes, TokenId{0});
    }
  } else {
    reader.Fail("tokens", "missing");
  }
}

void ReadForm(FieldReader& reader, ChainForm& form) {
  if (const Json* name = reader.Find("extra_key_scheme")) {
    const auto scheme = ParseExtraKeyScheme(reader.Text("extra_key_scheme", *name));
    if (!scheme) reader.Fail("extra_key_scheme", "expected bare or tagged");
    form.extra_keys = scheme.value_or(ExtraKeyScheme::kBare);
  }
  if (const Json* tokens = reader.Find("hash_lookahead_tokens")) {
    form.lookahead = reader.Int("hash_lookahead_tokens", *tokens);
    if (form.lookahead < 0 || form.lookahead > kMaxHashLookahead) {
      reader.Fail("hash_lookahead_tokens", "out of range");
    }
  }
}

void ReadInputs(FieldReader& reader, const Json& record, HashRecord& out) {
  if (const Json* name = reader.Find("name")) out.name = reader.Text("name", *name);
  if (const Json* algo = reader.Require("algo")) out.algorithm = reader.Text("algo", *algo);
  if (const Json* seed = reader.Find("pythonhashseed")) {
    out.seed = seed->is_number_integer() ? seed->dump() : reader.Text("pythonhashseed", *seed);
  }
  if (const Json* size = reader.Require("block_size")) {
    out.block_size = reader.Int("block_size", *size);
    if (out.block_size <= 0) reader.Fail("block_size", "not positive");
  }
  if (const Json* lora = reader.Find("lora")) out.inputs.lora_name = reader.Text("lora", *lora);
  if (const Json* path = reader.Find("lora_path")) {
    out.inputs.lora_path = reader.Text("lora_path", *path);
  }
  if (const Json* salt = reader.Find("salt")) out.inputs.cache_salt = reader.Text("salt", *salt);
  ReadMultimodal(reader, out.inputs);
  ReadEmbeddings(reader, record, out.inputs);
  ReadTokens(reader, out);
  ReadForm(reader, out.form);
}

std::optional<std::vector<ExtraKeys>> ReadKeysOfBlocks(FieldReader& reader, const char* field) {
  const Json* blocks = reader.Find(field);
  if (!blocks) return std::nullopt;
  return reader.List(field, *blocks, [&](std::string_view, const Json& block) {
    return ReadExtraKeys(reader, block);
  });
}

void ReadResults(FieldReader& reader, HashRecord& out) {
  const auto hex = [&](std::string_view field, const Json& value) {
    return reader.Hex(field, value);
  };
  if (const Json* none = reader.Require("none_hash")) out.none_hash = hex("none_hash", *none);
  if (const Json* hashes = reader.Require("block_hashes")) {
    out.block_hashes = reader.List("block_hashes", *hashes, hex);
  }
  if (const Json* numbers = reader.Require("int64")) {
    out.int64 = reader.List("int64", *numbers, [&](std::string_view field, const Json& value) {
      return reader.Bits(field, value);
    });
  }
  out.extra_keys = ReadKeysOfBlocks(reader, "extra_keys");
  out.event_extra_keys = ReadKeysOfBlocks(reader, "event_extra_keys");
  if (const Json* blocks = reader.Find("lookahead_token_ids")) {
    const auto token = [&](std::string_view field, const Json& value) {
      return TokenId{reader.Int(field, value)};
    };
    out.lookahead_token_ids = reader.List("lookahead_token_ids", *blocks,
                                          [&](std::string_view field, const Json& tokens) {
                                            return reader.List(field, tokens, token);
                                          });
  }
  if (const Json* preimages = reader.Find("preimages_hex")) {
    out.preimages = reader.List("preimages_hex", *preimages, hex);
  }
  if (const Json* preimage = reader.Find("none_hash_preimage_hex")) {
    out.none_hash_preimage = hex("none_hash_preimage_hex", *preimage);
  }
}

}  // namespace

Result<HashRecord> ParseHashRecord(std::string_view line) {
  const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (record.is_discarded()) return Status(StatusCode::kMalformed, "not JSON");
  if (!record.is_object()) return Status(StatusCode::kMalformed, "not a JSON object");
  FieldReader reader(record);
  HashRecord out;
  ReadInputs(reader, record, out);
  ReadResults(reader, out);
  if (!reader.failure().empty()) return Status(StatusCode::kMalformed, reader.failure());
  return out;
}

bool LooksLikeHashRecord(std::string_view line) {
  const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  return record.is_object() && record.contains("algo") && record.contains("none_hash") &&
         record.contains("block_hashes");
}

}  // namespace kvcast::tools
