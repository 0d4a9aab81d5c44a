// SPDX-License-Identifier: Apache-2.0
#include "python/src/events.h"

#include <pybind11/stl.h>

#include <utility>

#include "python/src/arguments.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/values.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

std::optional<int64_t> OptionalInteger(py::handle object, const std::string& argument) {
  if (object.is_none()) return std::nullopt;
  const Integer value = IntegerOf(object, argument);
  if (!value.negative && value.magnitude > INT64_MAX)
    ThrowInvalid(argument + ": must be below 2^63");
  return static_cast<int64_t>(value.magnitude);
}

std::optional<std::string> OptionalText(py::handle object, const std::string& argument) {
  if (object.is_none()) return std::nullopt;
  return TextOf(object, argument);
}

void ReadExtraKeys(py::handle object, BlockStored& event) {
  if (object.is_none()) return;
  event.extra_keys.emplace();
  for (const py::handle item : object) {
    event.extra_keys->push_back(
        ExtraKeysOf(item, "extra_keys[" + std::to_string(event.extra_keys->size()) + "]"));
  }
}

void ReadLookahead(py::handle object, BlockStored& event) {
  if (object.is_none()) return;
  LookaheadTokens lookahead;
  const std::string name = "lookahead_token_ids";
  size_t lists = 0;
  for (const py::handle item : object) {
    const TokenArgument tokens(item, name + "[" + std::to_string(lists) + "]");
    if (lists == 0) lookahead.width = std::ssize(tokens.tokens());
    if (std::ssize(tokens.tokens()) != lookahead.width) {
      ThrowInvalid(name + ": all lists must have the same length");
    }
    lookahead.token_ids.insert(lookahead.token_ids.end(), tokens.tokens().begin(),
                               tokens.tokens().end());
    ++lists;
  }
  if (lists != event.block_hashes.size()) {
    ThrowInvalid(name + ": must have one list per block hash");
  }
  event.lookahead = std::move(lookahead);
}

void ReadMember(const std::string& name, py::handle value, BlockStored& event) {
  if (name == "medium")
    event.medium = OptionalText(value, name);
  else if (name == "lora_name")
    event.lora_name = OptionalText(value, name);
  else if (name == "lora_id")
    event.lora_id = OptionalInteger(value, name);
  else if (name == "group_idx")
    event.group_idx = OptionalInteger(value, name);
  else if (name == "kv_cache_spec_kind")
    event.kv_cache_spec_kind = OptionalText(value, name);
  else if (name == "kv_cache_spec_sliding_window")
    event.kv_cache_spec_sliding_window = OptionalInteger(value, name);
  else if (name == "extra_keys")
    ReadExtraKeys(value, event);
  else if (name == "locality")
    event.locality = OptionalText(value, name);
  else if (name == "ownership")
    event.ownership = OptionalText(value, name);
  else if (name == "session_id")
    event.session_id = OptionalText(value, name);
  else if (name == "cache_salt")
    event.cache_salt = OptionalText(value, name);
  else if (name == "token_offset")
    event.token_offset = OptionalInteger(value, name);
  else if (name == "lookahead_token_ids")
    ReadLookahead(value, event);
  else
    ThrowType("BlockStored: unexpected keyword argument '" + name + "'");
}

BlockRemoved MakeRemoved(const py::object& block_hashes, const std::optional<std::string>& medium,
                         const py::object& group_idx, const std::optional<std::string>& locality,
                         const std::optional<std::string>& ownership) {
  return {.block_hashes = HashArgument(block_hashes, "block_hashes").Copy(),
          .medium = medium,
          .group_idx = OptionalInteger(group_idx, "group_idx"),
          .locality = locality,
          .ownership = ownership};
}

py::object TokensToPython(const std::optional<std::vector<TokenId>>& tokens) {
  if (!tokens) return py::none();
  py::list list(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) list[i] = py::int_((*tokens)[i]);
  return list;
}

py::object ExtraKeysToPython(const BlockStored& event) {
  if (!event.extra_keys) return py::none();
  py::list list;
  for (const auto& keys : *event.extra_keys) {
    if (!keys) {
      list.append(py::none());
      continue;
    }
    py::list of_block;
    for (const ExtraKey& key : *keys) of_block.append(ToPython(key));
    list.append(std::move(of_block));
  }
  return list;
}

py::object LookaheadToPython(const BlockStored& event) {
  if (!event.lookahead) return py::none();
  py::list lists;
  const auto width = static_cast<size_t>(event.lookahead->width);
  const std::vector<TokenId>& tokens = event.lookahead->token_ids;
  for (size_t i = 0; width > 0 && i + width <= tokens.size(); i += width) {
    py::list one;
    for (size_t j = 0; j < width; ++j) one.append(py::int_(tokens[i + j]));
    lists.append(std::move(one));
  }
  return lists;
}

py::object MetadataToPython(const BlockStored& event) {
  if (!event.metadata) return py::none();
  py::dict dict;
  for (const auto& [name, value] : *event.metadata) dict[py::str(name)] = ToPython(value);
  return dict;
}

py::object ParentToPython(const BlockStored& event) {
  return event.parent_block_hash ? ToPython(*event.parent_block_hash) : py::none();
}

constexpr char kStoredDoc[] =
    R"(Blocks that became reusable. Immutable; it owns its values.

block_hashes: the hashes, in order of position: a buffer of 64-bit integers, or a sequence of int
    (-2^63 to 2^64 - 1) or bytes (at most 256 bytes).
token_ids: the tokens of the whole span, or None. A buffer or a sequence of int.
block_size: tokens per block. parent_block_hash: hash of the block before the span, or None.
Keyword arguments: medium ("GPU", "CPU", "STORAGE", ...), lora_name, lora_id, group_idx,
kv_cache_spec_kind, kv_cache_spec_sliding_window (tokens), extra_keys, locality, ownership,
session_id, cache_salt, token_offset, lookahead_token_ids (one list per hash). None: not sent.
Raises TypeError for a wrong type, and InvalidArgumentError for a wrong value.)";

void AddStored(py::module_& module) {
  py::class_<BlockStored>(module, "BlockStored", kStoredDoc)
      .def(py::init(&MakeStored), py::arg("block_hashes"), py::arg("token_ids"),
           py::arg("block_size"), py::arg("parent_block_hash") = py::none())
      .def_property_readonly("block_hashes",
                             [](const BlockStored& e) { return ToPython(e.block_hashes); })
      .def_property_readonly("parent_block_hash", &ParentToPython)
      .def_property_readonly("token_ids",
                             [](const BlockStored& e) { return TokensToPython(e.token_ids); })
      .def_readonly("tokens_per_position", &BlockStored::tokens_per_position)
      .def_readonly("block_size", &BlockStored::block_size)
      .def_readonly("lora_id", &BlockStored::lora_id)
      .def_readonly("medium", &BlockStored::medium)
      .def_readonly("lora_name", &BlockStored::lora_name)
      .def_property_readonly("extra_keys", &ExtraKeysToPython)
      .def_readonly("group_idx", &BlockStored::group_idx)
      .def_readonly("kv_cache_spec_kind", &BlockStored::kv_cache_spec_kind)
      .def_readonly("kv_cache_spec_sliding_window", &BlockStored::kv_cache_spec_sliding_window)
      .def_readonly("locality", &BlockStored::locality)
      .def_readonly("ownership", &BlockStored::ownership)
      .def_readonly("session_id", &BlockStored::session_id)
      .def_readonly("cache_salt", &BlockStored::cache_salt)
      .def_property_readonly("metadata", &MetadataToPython)
      .def_readonly("token_offset", &BlockStored::token_offset)
      .def_property_readonly("lookahead_token_ids", &LookaheadToPython)
      .def(
          "__eq__", [](const BlockStored& a, const BlockStored& b) { return a == b; },
          py::is_operator());
}

void AddRemoved(py::module_& module) {
  py::class_<BlockRemoved>(module, "BlockRemoved",
                           R"(Blocks that each lost one reusable copy. Immutable.

block_hashes: as in BlockStored. medium: the tier; None means the GPU. group_idx: the KV-cache
group, or None.)")
      .def(py::init(&MakeRemoved), py::arg("block_hashes"), py::kw_only(),
           py::arg("medium") = py::none(), py::arg("group_idx") = py::none(),
           py::arg("locality") = py::none(), py::arg("ownership") = py::none())
      .def_property_readonly("block_hashes",
                             [](const BlockRemoved& e) { return ToPython(e.block_hashes); })
      .def_readonly("medium", &BlockRemoved::medium)
      .def_readonly("group_idx", &BlockRemoved::group_idx)
      .def_readonly("locality", &BlockRemoved::locality)
      .def_readonly("ownership", &BlockRemoved::ownership)
      .def(
          "__eq__", [](const BlockRemoved& a, const BlockRemoved& b) { return a == b; },
          py::is_operator());
}

void AddCleared(py::module_& module) {
  py::class_<AllBlocksCleared>(module, "AllBlocksCleared",
                               "The publisher reset its prefix cache. medium: the tier; None: the "
                               "GPU. Immutable.")
      .def(py::init([](const std::optional<std::string>& medium) {
             return AllBlocksCleared{.medium = medium};
           }),
           py::kw_only(), py::arg("medium") = py::none())
      .def_readonly("medium", &AllBlocksCleared::medium)
      .def(
          "__eq__", [](const AllBlocksCleared& a, const AllBlocksCleared& b) { return a == b; },
          py::is_operator());
}

void AddBatch(py::module_& module) {
  py::class_<EventBatch>(module, "EventBatch",
                         R"(One published batch: the events of one engine step, in order. Immutable.

events: BlockStored, BlockRemoved and AllBlocksCleared objects; they are copied. ts: seconds since
the Unix epoch; 0 means unknown. data_parallel_rank: the rank, or None.)")
      .def(py::init([](const py::object& events, double ts, std::optional<int64_t> rank) {
             return EventBatch{.ts = ts, .events = EventsOf(events), .data_parallel_rank = rank};
           }),
           py::arg("events") = py::tuple(), py::arg("ts") = 0.0,
           py::arg("data_parallel_rank") = py::none())
      .def_readonly("ts", &EventBatch::ts)
      .def_readonly("data_parallel_rank", &EventBatch::data_parallel_rank)
      .def_property_readonly(
          "events",
          [](const EventBatch& batch) {
            py::list list;
            for (const Event& event : batch.events) {
              std::visit([&](const auto& e) { list.append(py::cast(e)); }, event);
            }
            return list;
          },
          "Copies of the events, as a new list.")
      .def(
          "__eq__", [](const EventBatch& a, const EventBatch& b) { return a == b; },
          py::is_operator());
}

}  // namespace

BlockStored MakeStored(const py::object& block_hashes, const py::object& token_ids,
                       int64_t block_size, const py::object& parent_block_hash,
                       const py::kwargs& more) {
  BlockStored event;
  event.block_hashes = HashArgument(block_hashes, "block_hashes").Copy();
  if (!token_ids.is_none()) event.token_ids = TokenArgument(token_ids, "token_ids").Copy();
  if (block_size < 0) ThrowInvalid("block_size: must be at least 0");
  event.block_size = block_size;
  if (!parent_block_hash.is_none()) {
    event.parent_block_hash = HashOf(parent_block_hash, "parent_block_hash");
  }
  for (const auto& [name, value] : more) ReadMember(TextOf(name, "name"), value, event);
  return event;
}

Event EventOf(py::handle object, const std::string& argument) {
  if (py::isinstance<BlockStored>(object)) return object.cast<const BlockStored&>();
  if (py::isinstance<BlockRemoved>(object)) return object.cast<const BlockRemoved&>();
  if (py::isinstance<AllBlocksCleared>(object)) return object.cast<const AllBlocksCleared&>();
  ThrowType(argument + ": must be a BlockStored, BlockRemoved or AllBlocksCleared");
}

std::vector<Event> EventsOf(py::handle events) {
  std::vector<Event> read;
  for (const py::handle event : events) {
    read.push_back(EventOf(event, "events[" + std::to_string(read.size()) + "]"));
  }
  return read;
}

void AddEvents(py::module_& module) {
  AddStored(module);
  AddRemoved(module);
  AddCleared(module);
  AddBatch(module);
}

}  // namespace kvcast::python
