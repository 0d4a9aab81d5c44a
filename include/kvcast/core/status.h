// Status and Result<T>: the error report of every kvcast call that can fail.
//
// No kvcast call throws on bad input. An ok Status allocates nothing.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvcast {

enum class StatusCode : uint8_t {
  kOk,
  // The value of an argument is invalid in every state of the object.
  kInvalidArgument,
  // Input bytes do not follow the format.
  kMalformed,
  // A named limit was exceeded.
  kLimit,
  // A file, an endpoint or an entry does not exist.
  kNotFound,
  // The call is valid, but not in the current state.
  kFailedPrecondition,
  // No free block, no free memory, or no space in a queue.
  kExhausted,
  // A resource outside kvcast cannot be used: a socket, an address, a process, a file, a driver or
  // a GPU.
  kUnavailable,
  // A bug in kvcast.
  kInternal,
};

// The name of a code in lower_case, for messages and metric labels.
std::string_view StatusCodeName(StatusCode code);

// A code and one line of text. The text of an ok Status is empty.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "invalid_argument: window must be positive", or "ok".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// Holds either a value, or a Status that is not ok.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace kvcast
