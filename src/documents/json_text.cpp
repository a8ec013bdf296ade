#include "documents/json_text.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/json_node.h"
#include "base/text.h"
#include "documents/document_error.h"
#include "documents/json_scan.h"

namespace athanor {
namespace {

using nlohmann::json;

constexpr size_t kMaxShownBytes = 120, kMaxShownFields = 20;

// Returns at most `limit` bytes of `text`, cut between characters.
std::string shortened(std::string_view text, size_t limit = kMaxShownBytes) {
  if (text.size() <= limit) return std::string(text);
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

// Receives the parser's events and keeps the field's value, the names of the fields, and the first error.
class TextFinder {
 public:
  TextFinder(const std::string& field, bool may_be_string) : field_(field), may_be_string_(may_be_string) {}

  bool null() { return other("null"); }
  bool boolean(bool) { return other("a boolean"); }
  bool number_integer(json::number_integer_t) { return other("a number"); }
  bool number_unsigned(json::number_unsigned_t) { return other("a number"); }
  bool number_float(json::number_float_t, const std::string&) { return other("a number"); }
  bool binary(json::binary_t&) { return other("binary"); }
  bool string(std::string& value) {
    if (depth_ == 0) {
      top_ = "a string";
      if (may_be_string_) take(value);
    } else if (at_field_) {
      take(value);
    }
    at_field_ = false;
    return true;
  }
  bool start_object(size_t) {
    if (depth_ == 0) top_ = "an object";
    return open("an object");
  }
  bool start_array(size_t) {
    if (depth_ == 0) top_ = "an array";
    return open("an array");
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (depth_ != 1) return true;
    at_field_ = name == field_;
    if (at_field_) ++times_;
    if (fields_.size() <= kMaxShownFields) fields_.push_back(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception& error) {
    result_.cause = kInvalidJson;
    result_.error_offset = position > 0 ? position - 1 : 0;
    result_.message = printable(shortened(json_error_reason(error.what()), 2 * kMaxShownBytes));
    return false;
  }

  JsonText finish() {
    if (result_.cause) return std::move(result_);
    if (found_ && times_ <= 1) return std::move(result_);
    if (times_ > 1) return refuse(kInvalidJson, fmt::format("the field \"{}\" occurs {} times", field_, times_));
    if (wrong_kind_) {
      return refuse(kFieldNotString, fmt::format("the field \"{}\" is {}, a string is needed", field_, wrong_kind_));
    }
    if (std::string_view(top_) != "an object") {
      return refuse(kMissingField, fmt::format("an object with the field \"{}\" is needed, this is {}", field_, top_));
    }
    return refuse(kMissingField, fmt::format("no field \"{}\"; {}", field_, fields_there()));
  }

 private:
  void take(std::string& value) {
    result_.text = std::move(value);
    found_ = true;
  }
  bool other(const char* kind) {
    if (depth_ == 0) top_ = kind;
    if (at_field_) wrong_kind_ = kind;
    at_field_ = false;
    return true;
  }
  bool open(const char* kind) {
    if (at_field_) wrong_kind_ = kind;
    at_field_ = false;
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }
  JsonText refuse(const char* cause, std::string message) {
    return {.text = "", .cause = cause, .message = std::move(message), .error_offset = 0};
  }
  std::string fields_there() const {
    if (fields_.empty()) return "the object is empty";
    std::vector<std::string> shown;
    for (const auto& name : fields_) shown.push_back(printable(shortened(name, 40)));
    if (shown.size() > kMaxShownFields) shown.back() = "...";
    return fmt::format("there is {}; name the right one with --text-field{}", join(shown), did_you_mean(field_, shown));
  }

  const std::string& field_;
  bool may_be_string_;
  JsonText result_;
  std::vector<std::string> fields_;
  const char* top_ = "nothing";
  const char* wrong_kind_ = nullptr;
  int times_ = 0;
  long depth_ = 0;
  bool at_field_ = false, found_ = false;
};

}  // namespace

JsonText find_json_text(std::string_view json, const std::string& field, bool may_be_string) {
  if (auto text = scan_json_text(json, field)) {
    return {.text = std::move(*text), .cause = nullptr, .message = "", .error_offset = 0};
  }
  return parse_json_text(json, field, may_be_string);
}

JsonText parse_json_text(std::string_view text, const std::string& field, bool may_be_string) {
  TextFinder finder(field, may_be_string);
  json::sax_parse(text.begin(), text.end(), &finder);
  return finder.finish();
}

}  // namespace athanor
