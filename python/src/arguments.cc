// SPDX-License-Identifier: Apache-2.0
#include "python/src/arguments.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "python/src/errors.h"
#include "python/src/values.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

// The type of the elements of a buffer of integers.
struct IntegerType {
  bool is_signed = false;
  Py_ssize_t bytes = 0;
};

// nullopt: the elements are not integers in the byte order of the machine.
std::optional<IntegerType> TypeOf(const Py_buffer& view) {
  const char* format = view.format == nullptr ? "B" : view.format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  // Elements of one byte are text or raw bytes, so they are refused.
  if (std::strchr("hilq", format[0]) != nullptr) return IntegerType{true, view.itemsize};
  if (std::strchr("HILQ", format[0]) != nullptr) return IntegerType{false, view.itemsize};
  return std::nullopt;
}

const Py_buffer& CheckShape(const Py_buffer& view, const std::string& name) {
  if (view.ndim != 1) {
    ThrowInvalid(name + ": must have 1 dimension, not " + std::to_string(view.ndim));
  }
  return view;
}

IntegerType CheckType(const Py_buffer& view, const std::string& name) {
  const auto type = TypeOf(view);
  if (type) return *type;
  ThrowType(name + ": the elements must be integers of 16, 32 or 64 bits in native byte order, " +
            "not '" + (view.format == nullptr ? "B" : view.format) + "'");
}

template <typename Source, typename Target>
void CopyElements(const Py_buffer& view, std::vector<Target>& out) {
  const auto count = static_cast<size_t>(view.shape[0]);
  const Py_ssize_t stride = view.strides == nullptr ? view.itemsize : view.strides[0];
  const char* element = static_cast<const char*>(view.buf);
  out.resize(count);
  for (size_t i = 0; i < count; ++i, element += stride) {
    Source value;
    std::memcpy(&value, element, sizeof(value));
    out[i] = static_cast<Target>(value);
  }
}

template <typename Target>
void CopyIntegers(const Py_buffer& view, IntegerType type, std::vector<Target>& out) {
  if (type.bytes == 8) return CopyElements<uint64_t>(view, out);
  if (type.bytes == 4 && type.is_signed) return CopyElements<int32_t>(view, out);
  if (type.bytes == 4) return CopyElements<uint32_t>(view, out);
  if (type.is_signed) return CopyElements<int16_t>(view, out);
  return CopyElements<uint16_t>(view, out);
}

// True: the elements have 8 bytes, adjacent and aligned, so that C++ can read them in place.
bool IsInPlace(const Py_buffer& view) {
  return view.itemsize == 8 && PyBuffer_IsContiguous(&view, 'C') != 0 &&
         reinterpret_cast<uintptr_t>(view.buf) % alignof(uint64_t) == 0;
}

template <typename T>
std::span<const T> ReadIntegers(const Py_buffer& view, IntegerType type, std::vector<T>& owned) {
  if (IsInPlace(view)) return {static_cast<const T*>(view.buf), static_cast<size_t>(view.shape[0])};
  CopyIntegers(view, type, owned);
  return owned;
}

// True: each row of the buffer is a hash of bytes.
bool IsDigests(const Py_buffer& view) {
  const bool of_bytes = view.format == nullptr || std::strcmp(view.format, "B") == 0;
  return view.ndim == 2 && of_bytes && view.shape[1] <= 256;
}

void ReadDigests(const Py_buffer& view, std::vector<BlockHash>& out) {
  std::vector<uint8_t> row(static_cast<size_t>(view.shape[1]));
  for (Py_ssize_t i = 0; i < view.shape[0]; ++i) {
    const auto* source = static_cast<const uint8_t*>(view.buf) + i * view.strides[0];
    for (uint8_t& byte : row) {
      byte = *source;
      source += view.strides[1];
    }
    out.push_back(BlockHash::FromBytes(row));
  }
}

// The position of the first element below 0; -1: there is none. The first loop has no branch.
Py_ssize_t FirstNegative(std::span<const int64_t> values) {
  int64_t any = 0;
  for (const int64_t value : values) any |= value;
  if (any >= 0) return -1;
  Py_ssize_t i = 0;
  while (values[static_cast<size_t>(i)] >= 0) ++i;
  return i;
}

std::string ElementName(const std::string& name, Py_ssize_t i) {
  return name + "[" + std::to_string(i) + "]";
}

// Calls `read(i, item)` for each element. The Python code of an element may change the sequence. So
// the loop reads the size in each step, and holds a reference to the element.
template <typename Read>
void ForEach(py::handle object, const std::string& name, Read&& read) {
  if (PyUnicode_Check(object.ptr()) || PyBytes_Check(object.ptr())) {
    ThrowType(name + ": must be a buffer or a sequence of integers");
  }
  const std::string message = name + ": must be a buffer or a sequence of integers";
  const auto fast =
      py::reinterpret_steal<py::object>(PySequence_Fast(object.ptr(), message.c_str()));
  if (!fast) throw py::error_already_set();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.ptr()); ++i) {
    read(i, py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(fast.ptr(), i)));
  }
}

}  // namespace

bool Buffer::Open(py::handle object, int flags) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
  if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw py::error_already_set();
  held_ = true;
  return true;
}

TokenArgument::TokenArgument(py::handle object, const std::string& name) {
  if (buffer_.Open(object, PyBUF_STRIDED_RO | PyBUF_FORMAT)) {
    const IntegerType type = CheckType(buffer_.view(), name);
    tokens_ = ReadIntegers<TokenId>(CheckShape(buffer_.view(), name), type, owned_);
    // An unsigned element of 64 bits above 2^63 - 1 is negative here.
    if (const Py_ssize_t i = FirstNegative(tokens_); i >= 0) {
      ThrowInvalid(ElementName(name, i) + ": a token id must be from 0 to 2^63 - 1");
    }
    return;
  }
  ForEach(object, name, [&](Py_ssize_t i, const py::object& item) {
    const auto value = IntegerOf(item, ElementName(name, i));
    if (value.negative || value.magnitude > INT64_MAX) {
      ThrowInvalid(ElementName(name, i) + ": a token id must be from 0 to 2^63 - 1");
    }
    owned_.push_back(static_cast<TokenId>(value.magnitude));
  });
  tokens_ = owned_;
}

HashArgument::HashArgument(py::handle object, const std::string& name) {
  if (!buffer_.Open(object, PyBUF_STRIDED_RO | PyBUF_FORMAT)) {
    ReadSequence(object, name);
    return;
  }
  if (IsDigests(buffer_.view())) {
    ReadDigests(buffer_.view(), hashes_);
    return;
  }
  const IntegerType type = CheckType(buffer_.view(), name);
  integers_ = ReadIntegers<uint64_t>(CheckShape(buffer_.view(), name), type, owned_);
  if (!type.is_signed) return;
  const std::span<const int64_t> values(reinterpret_cast<const int64_t*>(integers_.data()),
                                        integers_.size());
  if (FirstNegative(values) < 0) return;
  for (const int64_t value : values) hashes_.push_back(BlockHash::FromSigned(value));
  integers_ = {};
}

void HashArgument::ReadSequence(py::handle object, const std::string& name) {
  bool only_unsigned = true;
  ForEach(object, name, [&](Py_ssize_t i, const py::object& item) {
    hashes_.push_back(HashOf(item, ElementName(name, i)));
    only_unsigned &= hashes_.back().form() == BlockHash::Form::kUnsigned;
  });
  if (!only_unsigned) return;
  for (const BlockHash& hash : hashes_) owned_.push_back(hash.integer());
  integers_ = owned_;
  hashes_.clear();
}

std::vector<BlockHash> HashArgument::Copy() const {
  if (integers_.empty()) return hashes_;
  std::vector<BlockHash> copy;
  copy.reserve(integers_.size());
  for (const uint64_t value : integers_) copy.emplace_back(value);
  return copy;
}

PayloadArgument::PayloadArgument(py::handle object, const std::string& name) {
  if (!buffer_.Open(object, PyBUF_SIMPLE)) ThrowType(name + ": must be bytes or a buffer");
}

}  // namespace kvcast::python
