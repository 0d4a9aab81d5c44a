// SPDX-License-Identifier: Apache-2.0
#include "src/nats/nats_log.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/nats/nats_link.h"

namespace kvcast::nats {
namespace {

using event_log::Announcement;
using event_log::Appended;
using event_log::AppendResult;
using event_log::LogEnd;
using event_log::LogMessage;
using event_log::NewMessage;

constexpr const char* kRecordHeader = "Kvcast-Record";
constexpr int64_t kRequestMs = 3000;
// An append fails if no acknowledgement arrives for this time.
constexpr int64_t kAckMs = 3000;
// Space for the headers and the subject of a message, which count as part of the payload.
constexpr int64_t kHeaderBytes = 4096;
// Limits of one Read.
constexpr size_t kReadMessages = 1024;
constexpr size_t kReadBytes = 16u << 20;

std::string TokenOf(const std::string& name) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string token;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (plain) {
      token += c;
    } else {
      token += {'_', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return token;
}

std::string HeaderOf(natsMsg* message) {
  const char* value = nullptr;
  return natsMsgHeader_Get(message, kRecordHeader, &value) == NATS_OK ? value : std::string();
}

std::vector<uint8_t> PayloadOf(natsMsg* message) {
  const auto* data = reinterpret_cast<const uint8_t*>(natsMsg_GetData(message));
  const int size = natsMsg_GetDataLength(message);
  return data == nullptr ? std::vector<uint8_t>() : std::vector<uint8_t>(data, data + size);
}

Result<Message> MakeMessage(const std::string& subject, const std::string& reply,
                            const std::string& header, std::span<const uint8_t> payload) {
  natsMsg* made = nullptr;
  natsStatus s = natsMsg_Create(&made, subject.c_str(), reply.empty() ? nullptr : reply.c_str(),
                                reinterpret_cast<const char*>(payload.data()),
                                static_cast<int>(payload.size()));
  Message message(made);
  if (s == NATS_OK) s = natsMsgHeader_Set(made, kRecordHeader, header.c_str());
  if (s != NATS_OK) return Status(StatusCode::kUnavailable, ErrorText(s));
  return message;
}

uint64_t NumberOf(const nlohmann::json& object, const char* key) {
  const auto member = object.find(key);
  const bool found = member != object.end() && member->is_number_unsigned();
  return found ? member->get<uint64_t>() : 0;
}

// The server's answer to one stored message.
Appended ReadAck(natsMsg* ack, uint64_t position) {
  if (natsMsg_IsNoResponders(ack))
    return {AppendResult::kUnavailable, "no stream received the message (is JetStream enabled?)"};
  const std::vector<uint8_t> text = PayloadOf(ack);
  const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) return {AppendResult::kUnavailable, "an acknowledgement is not JSON"};
  if (const auto error = json.find("error"); error != json.end()) {
    const bool wrong_last = NumberOf(*error, "err_code") == JSStreamWrongLastSequenceErr;
    return {wrong_last ? AppendResult::kOutOfPlace : AppendResult::kUnavailable, error->dump()};
  }
  if (NumberOf(json, "seq") == position) return {};
  return {AppendResult::kOutOfPlace,
          "the server stored a message at another position than expected"};
}

class NatsLog final : public event_log::EventLog {
 public:
  NatsLog(std::shared_ptr<NatsConnectionImpl> connection, const NatsSource& source, int replicas)
      : connection_(std::move(connection)),
        stream_(source.stream()),
        subject_(source.subject()),
        status_subject_(source.status_subject()),
        replicas_(replicas) {}

  Result<LogEnd> End() override;
  Appended Append(uint64_t last, std::span<const NewMessage> messages) override;
  Status Purge(uint64_t position) override;
  Status Announce(const std::string& header, std::span<const uint8_t> payload) override;
  size_t max_payload() const override { return max_payload_; }
  Result<uint64_t> Read(uint64_t from, int64_t wait_ms, std::vector<LogMessage>& out) override;
  std::optional<Announcement> LatestAnnouncement() override;

 private:
  Status Connect();
  Status Open(std::shared_ptr<NatsLink> link);
  natsStatus Subscribe(const std::string& subject, Subscription& subscription);
  Result<uint64_t> StreamEnd();
  Status MakeStream();
  Status Send(const NewMessage& message, const std::string& reply, uint64_t last);
  Appended AwaitAcks(const std::string& inbox, uint64_t last, size_t messages);
  Status SubscribeFrom(uint64_t from);

  const std::shared_ptr<NatsConnectionImpl> connection_;
  const std::string stream_;
  const std::string subject_;
  const std::string status_subject_;
  const int replicas_;
  size_t max_payload_ = 512 << 10;
  // The members from link_ to read_next_ belong to one connection.
  std::shared_ptr<NatsLink> link_;
  JetStream js_;
  std::string inbox_;
  Subscription acks_;
  Subscription statuses_;
  Subscription messages_;
  uint64_t read_next_ = 0;  // position after the latest message of messages_
  uint64_t appends_ = 0;
  std::optional<Announcement> latest_;
};

natsStatus NatsLog::Subscribe(const std::string& subject, Subscription& subscription) {
  natsSubscription* made = nullptr;
  natsStatus s = natsConnection_SubscribeSync(&made, link_->get(), subject.c_str());
  subscription = Subscription(made, {link_});
  if (s == NATS_OK) s = natsSubscription_SetPendingLimits(made, -1, -1);
  return s;
}

Status NatsLog::Connect() {
  auto link = connection_->Get();
  if (!link.ok()) return link.status();
  if (*link == link_) return Status();
  Status opened = Open(std::move(link).value());
  if (!opened.ok()) link_.reset();
  return opened;
}

Status NatsLog::Open(std::shared_ptr<NatsLink> link) {
  messages_ = Subscription();
  statuses_ = Subscription();
  acks_ = Subscription();
  js_.reset();
  link_ = std::move(link);
  jsOptions options;
  jsOptions_Init(&options);
  options.Wait = kRequestMs;
  jsCtx* js = nullptr;
  natsStatus s = natsConnection_JetStream(&js, link_->get(), &options);
  js_.reset(js);
  natsInbox* inbox = nullptr;
  if (s == NATS_OK) s = natsInbox_Create(&inbox);
  if (s == NATS_OK) {
    inbox_ = inbox;
    natsInbox_Destroy(inbox);
    s = Subscribe(inbox_ + ".>", acks_);
  }
  if (s == NATS_OK) s = Subscribe(status_subject_, statuses_);
  if (s != NATS_OK) return {StatusCode::kUnavailable, ErrorText(s)};
  const int64_t limit = natsConnection_GetMaxPayload(link_->get());
  max_payload_ = static_cast<size_t>(std::max(kHeaderBytes, limit - kHeaderBytes));
  return Status();
}

Status NatsLog::MakeStream() {
  jsStreamConfig config;
  jsStreamConfig_Init(&config);
  std::array<const char*, 1> subjects = {subject_.c_str()};
  config.Name = stream_.c_str();
  config.Subjects = subjects.data();
  config.SubjectsLen = 1;
  config.Storage = js_FileStorage;
  // If an administrator limits the stream, a full stream must refuse messages instead of deleting
  // messages that no snapshot replaces.
  config.Discard = js_DiscardNew;
  config.Replicas = replicas_;
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus s = js_AddStream(nullptr, js_.get(), &config, nullptr, &code);
  if (s == NATS_OK) return Status();
  return {StatusCode::kUnavailable, "stream " + stream_ + ": " + ErrorText(s)};
}

// The position of the latest message that was ever stored. 0: none.
Result<uint64_t> NatsLog::StreamEnd() {
  jsStreamInfo* made = nullptr;
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus s = js_GetStreamInfo(&made, js_.get(), stream_.c_str(), nullptr, &code);
  const StreamInfo info(made);
  if (s == NATS_OK) return info->State.LastSeq;
  if (code != JSStreamNotFoundErr)
    return Status(StatusCode::kUnavailable, "stream " + stream_ + ": " + ErrorText(s));
  if (Status status = MakeStream(); !status.ok()) return status;
  return uint64_t{0};
}

Result<LogEnd> NatsLog::End() {
  if (Status status = Connect(); !status.ok()) return status;
  const Result<uint64_t> position = StreamEnd();
  if (!position.ok()) return position.status();
  LogEnd end{*position, std::nullopt};
  if (end.position == 0) return end;
  natsMsg* made = nullptr;
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus s = js_GetMsg(&made, js_.get(), stream_.c_str(), end.position, nullptr, &code);
  const Message message(made);
  if (s == NATS_OK) {
    end.header = HeaderOf(made);
  } else if (code != JSNoMessageFoundErr) {
    return Status(StatusCode::kUnavailable, "stream " + stream_ + ": " + ErrorText(s));
  }
  return end;
}

Status NatsLog::Send(const NewMessage& message, const std::string& reply, uint64_t last) {
  auto made = MakeMessage(subject_, reply, message.header, message.payload);
  if (!made.ok()) return made.status();
  natsMsg* const raw = made->get();
  natsStatus s = natsMsgHeader_Set(raw, "Nats-Msg-Id", message.id.c_str());
  // The server ignores an expected last sequence of 0.
  const char* const expected =
      last > 0 ? "Nats-Expected-Last-Sequence" : "Nats-Expected-Last-Subject-Sequence";
  if (s == NATS_OK) s = natsMsgHeader_Set(raw, expected, std::to_string(last).c_str());
  if (s == NATS_OK) s = natsConnection_PublishMsg(link_->get(), raw);
  return s == NATS_OK ? Status() : Status(StatusCode::kUnavailable, ErrorText(s));
}

Appended NatsLog::Append(uint64_t last, std::span<const NewMessage> messages) {
  if (Status status = Connect(); !status.ok())
    return {AppendResult::kUnavailable, status.message()};
  // Acknowledgements of an earlier call that failed have another inbox.
  const std::string inbox = inbox_ + '.' + std::to_string(++appends_) + '.';
  for (size_t i = 0; i < messages.size(); ++i) {
    const Status sent = Send(messages[i], inbox + std::to_string(i), last + i);
    if (!sent.ok()) return {AppendResult::kUnavailable, sent.message()};
  }
  return AwaitAcks(inbox, last, messages.size());
}

Appended NatsLog::AwaitAcks(const std::string& inbox, uint64_t last, size_t messages) {
  for (size_t stored = 0; stored < messages;) {
    natsMsg* made = nullptr;
    const natsStatus s = natsSubscription_NextMsg(&made, acks_.get(), kAckMs);
    const Message ack(made);
    if (s != NATS_OK) return {AppendResult::kUnavailable, "no acknowledgement: " + ErrorText(s)};
    const std::string_view subject = natsMsg_GetSubject(made);
    if (!subject.starts_with(inbox)) continue;
    const std::string_view number = subject.substr(inbox.size());
    uint64_t index = 0;
    std::from_chars(number.data(), number.data() + number.size(), index);
    Appended appended = ReadAck(made, last + index + 1);
    if (appended.result != AppendResult::kStored) return appended;
    ++stored;
  }
  return {};
}

Status NatsLog::Purge(uint64_t position) {
  if (Status status = Connect(); !status.ok()) return status;
  jsOptions options;
  jsOptions_Init(&options);
  options.Stream.Purge.Sequence = position;
  jsErrCode code = static_cast<jsErrCode>(0);
  const natsStatus s = js_PurgeStream(js_.get(), stream_.c_str(), &options, &code);
  return s == NATS_OK ? Status() : Status(StatusCode::kUnavailable, ErrorText(s));
}

Status NatsLog::Announce(const std::string& header, std::span<const uint8_t> payload) {
  if (Status status = Connect(); !status.ok()) return status;
  auto message = MakeMessage(status_subject_, "", header, payload);
  if (!message.ok()) return message.status();
  const natsStatus s = natsConnection_PublishMsg(link_->get(), message->get());
  return s == NATS_OK ? Status() : Status(StatusCode::kUnavailable, ErrorText(s));
}

std::optional<Announcement> NatsLog::LatestAnnouncement() {
  if (!Connect().ok()) return latest_;
  natsMsg* made = nullptr;
  while (natsSubscription_NextMsg(&made, statuses_.get(), 0) == NATS_OK) {
    const Message message(made);
    const uint64_t count = latest_ ? latest_->count + 1 : 1;
    latest_ = Announcement{count, HeaderOf(made), PayloadOf(made)};
  }
  return latest_;
}

Status NatsLog::SubscribeFrom(uint64_t from) {
  messages_.reset();
  jsSubOptions options;
  jsSubOptions_Init(&options);
  options.Ordered = true;
  options.Stream = stream_.c_str();
  options.Config.DeliverPolicy = js_DeliverByStartSequence;
  options.Config.OptStartSeq = std::max<uint64_t>(from, 1);
  natsSubscription* made = nullptr;
  jsErrCode code = static_cast<jsErrCode>(0);
  natsStatus s = js_SubscribeSync(&made, js_.get(), subject_.c_str(), nullptr, &options, &code);
  messages_ = Subscription(made, {link_});
  if (s == NATS_OK) s = natsSubscription_SetPendingLimits(made, -1, -1);
  if (s != NATS_OK) {
    messages_.reset();
    return {code == JSStreamNotFoundErr ? StatusCode::kNotFound : StatusCode::kUnavailable,
            "stream " + stream_ + ": " + ErrorText(s)};
  }
  read_next_ = from;
  return Status();
}

Result<uint64_t> NatsLog::Read(uint64_t from, int64_t wait_ms, std::vector<LogMessage>& out) {
  if (Status status = Connect(); !status.ok()) return status;
  if (messages_ == nullptr || from != read_next_) {
    if (Status status = SubscribeFrom(from); !status.ok()) return status;
  }
  uint64_t pending = 0;
  size_t bytes = 0;
  for (size_t count = 0; count < kReadMessages && bytes < kReadBytes; ++count) {
    natsMsg* made = nullptr;
    const natsStatus s = natsSubscription_NextMsg(&made, messages_.get(), count == 0 ? wait_ms : 0);
    const Message message(made);
    if (s == NATS_TIMEOUT) break;
    jsMsgMetaData* data = nullptr;
    const natsStatus read = s == NATS_OK ? natsMsg_GetMetaData(&data, made) : s;
    if (read != NATS_OK) {
      messages_.reset();
      return Status(StatusCode::kUnavailable, "stream " + stream_ + ": " + ErrorText(read));
    }
    const MetaData meta(data);
    pending = meta->NumPending;
    out.push_back({meta->Sequence.Stream, HeaderOf(made), PayloadOf(made)});
    bytes += out.back().payload.size();
    read_next_ = meta->Sequence.Stream + 1;
  }
  return pending;
}

}  // namespace

Result<NatsSource> NatsSource::Parse(const std::string& text) {
  const size_t slash = text.rfind('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size())
    return Status(StatusCode::kInvalidArgument, "not MODEL/WORKER: '" + text + "'");
  return NatsSource{text.substr(0, slash), text.substr(slash + 1)};
}

std::string NatsSource::stream() const {
  return "kvcast-" + TokenOf(model) + '-' + TokenOf(worker);
}
std::string NatsSource::subject() const {
  return "kvcast." + TokenOf(model) + '.' + TokenOf(worker);
}
std::string NatsSource::status_subject() const {
  return "kvcast-status." + TokenOf(model) + '.' + TokenOf(worker);
}

std::unique_ptr<event_log::EventLog> MakeNatsLog(std::shared_ptr<NatsConnection> connection,
                                                 const NatsSource& source, int replicas) {
  return std::make_unique<NatsLog>(
      std::static_pointer_cast<NatsConnectionImpl>(std::move(connection)), source, replicas);
}

}  // namespace kvcast::nats
