// SPDX-License-Identifier: Apache-2.0
#include "router/service/json/bounded_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace kvcast::router {
namespace {

using Document = nlohmann::json;

class DocumentBuilder final : public nlohmann::json_sax<Document> {
 public:
  explicit DocumentBuilder(const JsonBounds& bounds) : bounds_(bounds) {}

  bool too_many() const { return values_ > bounds_.max_values; }
  Document Take() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Document::binary_t& value) override {
    return Add(Document::binary(std::move(value)));
  }
  bool start_object(size_t) override { return Open(Document::value_t::object); }
  bool key(std::string& name) override {
    if (left_out_ == 0) key_ = std::move(name);
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(Document::value_t::array); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t, const std::string&, const Document::exception&) override {
    return false;
  }

 private:
  bool IsTooDeep() const { return left_out_ > 0 || open_.size() > bounds_.max_depth; }

  // The place of the next value. Pointers into an array stay valid while its last element is open.
  Document& Place() {
    if (open_.empty()) return root_;
    Document& parent = *open_.back();
    return parent.is_array() ? parent.emplace_back() : parent[key_];
  }
  template <typename Value>
  bool Add(Value&& value) {
    if (IsTooDeep()) return true;
    if (++values_ > bounds_.max_values) return false;
    Place() = std::forward<Value>(value);
    return true;
  }
  bool Open(Document::value_t type) {
    if (IsTooDeep()) {
      ++left_out_;
      return true;
    }
    if (++values_ > bounds_.max_values) return false;
    Document& place = Place();
    place = Document(type);
    open_.push_back(&place);
    return true;
  }
  bool Close() {
    left_out_ > 0 ? (void)--left_out_ : open_.pop_back();
    return true;
  }

  const JsonBounds bounds_;
  Document root_;
  std::vector<Document*> open_;  // arrays and objects that have not ended, outermost first
  size_t left_out_ = 0;  // number of arrays and objects that are left out and have not ended
  size_t values_ = 0;
  std::string key_;
};

}  // namespace

Result<Document> ReadJson(std::string_view text, const JsonBounds& bounds) {
  DocumentBuilder builder(bounds);
  if (Document::sax_parse(text, &builder)) return builder.Take();
  if (builder.too_many()) return Status(StatusCode::kLimit, "json: too many values");
  return Status(StatusCode::kMalformed, "json: malformed");
}

}  // namespace kvcast::router
