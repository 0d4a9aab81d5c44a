// Status and Result<T>: how every fallible kvcast call reports failure.
//
// No kvcast call throws on bad input. A Status that is ok carries no allocation.
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
  kInvalidArgument,     // the caller's value is wrong whatever the state
  kMalformed,           // bytes from outside do not follow the format
  kLimit,               // a named limit was passed
  kNotFound,            // a file, endpoint or entry does not exist
  kFailedPrecondition,  // right call, wrong state
  kExhausted,           // no free block, no queue space
  kUnavailable,         // socket or process is gone, or an address is in use
  kInternal,            // a bug in kvcast
};

// The lower_case name of a code, for messages and metrics labels.
std::string_view StatusCodeName(StatusCode code);

// A code and one line of text. Ok has an empty text.
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

// Either a value or a Status that is not ok.
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
