// Message: one ZeroMQ frame. Multipart: one received message of several frames.
// Not thread-safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zmq.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "src/stream/net/frames.h"
#include "src/stream/net/payload.h"

namespace kvcast::stream {

// A received frame. Its bytes are not copied, and stay valid as long as this object exists.
class Message {
 public:
  Message() { zmq_msg_init(&message_); }
  ~Message() { zmq_msg_close(&message_); }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  zmq_msg_t* get() { return &message_; }
  const zmq_msg_t* get() const { return &message_; }
  Frame bytes() const {
    auto* message = const_cast<zmq_msg_t*>(&message_);  // the C API has no const
    return {static_cast<const uint8_t*>(zmq_msg_data(message)), zmq_msg_size(message)};
  }

 private:
  zmq_msg_t message_;
};

// The frames of one message. A valid message has at most kMaxFrames - 1 frames. If a message is
// longer, Multipart keeps only kMaxFrames frames. Their count shows that the message is too long.
class Multipart {
 public:
  static constexpr size_t kMaxFrames = 8;

  // Valid until the next Receive into this object.
  Frames frames() const { return {views_.data(), count_}; }
  // The public key of the peer that the Guard has admitted. Empty: the connection has no CURVE.
  std::string_view user_id() const {
    const char* const id =
        count_ > 0 ? zmq_msg_gets(messages_[count_ - 1].get(), "User-Id") : nullptr;
    return id == nullptr ? std::string_view() : std::string_view(id);
  }

  // The descriptor of the connection. -1: inproc, or no message.
  int connection() const {
    return count_ > 0 ? zmq_msg_get(messages_[count_ - 1].get(), ZMQ_SRCFD) : -1;
  }

 private:
  friend class Socket;
  std::array<Message, kMaxFrames> messages_;
  std::array<Frame, kMaxFrames> views_;
  size_t count_ = 0;
};

}  // namespace kvcast::stream
