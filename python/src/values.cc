// SPDX-License-Identifier: Apache-2.0
#include "python/src/values.h"

#include <utility>

#include "python/src/errors.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

// The limit ends the recursion for a list that contains itself. The limit of the encoder is lower.
constexpr int kMaxDepth = 16;
constexpr Py_ssize_t kMaxHashBytes = 256;

std::string BytesOf(py::handle object) {
  return {PyBytes_AS_STRING(object.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(object.ptr()))};
}

bool IsList(py::handle object) { return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()); }

ExtraKeyList ListOf(py::handle object, const std::string& argument, int depth) {
  ExtraKeyList list;
  for (const py::handle item : object) list.items.push_back(ExtraKeyOf(item, argument, depth + 1));
  return list;
}

}  // namespace

Integer IntegerOf(py::handle object, const std::string& argument) {
  if (PyBool_Check(object.ptr())) ThrowType(argument + ": must be an integer, not a bool");
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!number) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw py::error_already_set();
    PyErr_Clear();
    ThrowType(argument + ": must be an integer");
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0) return {value < 0, static_cast<uint64_t>(value)};
  if (overflow > 0) {
    const unsigned long long large = PyLong_AsUnsignedLongLong(number.ptr());
    if (PyErr_Occurred() == nullptr) return {false, large};
    PyErr_Clear();
  }
  ThrowInvalid(argument + ": must be from -2^63 to 2^64 - 1");
}

BlockHash HashOf(py::handle object, const std::string& argument) {
  if (PyBytes_Check(object.ptr())) {
    const Py_ssize_t size = PyBytes_GET_SIZE(object.ptr());
    if (size > kMaxHashBytes) ThrowInvalid(argument + ": a hash must have at most 256 bytes");
    const char* const data = PyBytes_AS_STRING(object.ptr());
    return BlockHash::FromBytes(
        {reinterpret_cast<const uint8_t*>(data), static_cast<size_t>(size)});
  }
  const Integer value = IntegerOf(object, argument);
  return value.negative ? BlockHash::FromSigned(static_cast<int64_t>(value.magnitude))
                        : BlockHash::FromUnsigned(value.magnitude);
}

py::object ToPython(const BlockHash& hash) {
  if (hash.is_bytes()) {
    return py::bytes(reinterpret_cast<const char*>(hash.bytes().data()), hash.bytes().size());
  }
  if (hash.form() == BlockHash::Form::kNegative) {
    return py::int_(static_cast<int64_t>(hash.integer()));
  }
  return py::int_(hash.integer());
}

py::list ToPython(const std::vector<BlockHash>& hashes) {
  py::list list(hashes.size());
  for (size_t i = 0; i < hashes.size(); ++i) list[i] = ToPython(hashes[i]);
  return list;
}

ExtraKey ExtraKeyOf(py::handle object, const std::string& argument, int depth) {
  if (depth > kMaxDepth) ThrowInvalid(argument + ": lists are nested too deep");
  if (object.is_none()) return {std::monostate()};
  if (PyBool_Check(object.ptr())) return {object.ptr() == Py_True};
  if (PyFloat_Check(object.ptr())) return {PyFloat_AS_DOUBLE(object.ptr())};
  if (PyUnicode_Check(object.ptr())) return ExtraKey::Text(TextOf(object, argument));
  if (PyBytes_Check(object.ptr())) return ExtraKey::Binary(BytesOf(object));
  if (IsList(object)) return {ListOf(object, argument, depth)};
  const Integer value = IntegerOf(object, argument);
  if (value.negative || value.magnitude <= INT64_MAX) {
    return ExtraKey::Int(static_cast<int64_t>(value.magnitude));
  }
  return {value.magnitude};
}

py::object ToPython(const ExtraKey& key) {
  struct Visitor {
    py::object operator()(std::monostate) const { return py::none(); }
    py::object operator()(bool value) const { return py::bool_(value); }
    py::object operator()(int64_t value) const { return py::int_(value); }
    py::object operator()(uint64_t value) const { return py::int_(value); }
    py::object operator()(double value) const { return py::float_(value); }
    py::object operator()(const std::string& value) const { return py::str(value); }
    py::object operator()(const Bytes& value) const { return py::bytes(value.data); }
    py::object operator()(const ExtraKeyList& value) const {
      py::list list;
      for (const ExtraKey& item : value.items) list.append(ToPython(item));
      return list;
    }
  };
  return std::visit(Visitor(), key.value);
}

std::optional<ExtraKeys> ExtraKeysOf(py::handle object, const std::string& argument) {
  if (object.is_none()) return std::nullopt;
  if (!IsList(object)) ThrowType(argument + ": must be a list or None");
  ExtraKeys keys;
  for (const py::handle item : object) keys.push_back(ExtraKeyOf(item, argument));
  return keys;
}

std::string TextOf(py::handle object, const std::string& argument) {
  if (!PyUnicode_Check(object.ptr())) ThrowType(argument + ": must be a str");
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (text == nullptr) throw py::error_already_set();
  return {text, static_cast<size_t>(size)};
}

py::dict ToPython(const SourceStatus& status) {
  py::dict dict;
  dict["state"] = std::string(SourceStateName(status.state));
  dict["reason"] = std::string(SourceReasonName(status.reason));
  dict["next_seq"] = status.next_seq;
  dict["batches"] = status.batches;
  dict["gaps"] = status.gaps;
  dict["lost"] = status.lost;
  dict["duplicates"] = status.duplicates;
  dict["resets"] = status.resets;
  return dict;
}

}  // namespace kvcast::python
