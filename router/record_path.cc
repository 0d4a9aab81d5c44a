// SPDX-License-Identifier: Apache-2.0
#include "router/record_path.h"

namespace kvcast::router {
namespace {

// Steps towards the end that are taken at most: links may form cycles, each with such a step.
constexpr int kMaxDetours = 64;

std::optional<ContentState> InnerState(const TokenRecord& record, int64_t position) {
  const int64_t step = record.span / (std::ssize(record.inner) + 1);
  const int64_t offset = position - (record.position - record.span);
  if (record.inner.empty() || offset % step != 0) return std::nullopt;
  return record.inner[static_cast<size_t>(offset / step - 1)];
}

}  // namespace

const TokenRecord* RecordPath::Linked(TokenRecord::Link kind) const {
  if (at_ == nullptr || at_->link_kind != kind) return nullptr;
  const TokenRecord* linked = records_.Get(at_->link);
  return linked != nullptr && linked->resolved() ? linked : nullptr;
}

std::optional<ContentState> RecordPath::StateAt(int64_t position) {
  while (at_ != nullptr && at_->position > position) {
    if (at_->link_kind == TokenRecord::Link::kInside) {
      at_ = Linked(TokenRecord::Link::kInside);
      if (at_ == nullptr || ++detours_ > kMaxDetours) return std::nullopt;
    }
    const int64_t begin = at_->position - at_->span;
    if (position > begin) return InnerState(*at_, position);
    const TokenRecord* parent = Linked(TokenRecord::Link::kParent);
    at_ = parent != nullptr && parent->position == begin ? parent : nullptr;
  }
  if (at_ == nullptr || at_->position != position) return std::nullopt;
  return at_->key;
}

}  // namespace kvcast::router
