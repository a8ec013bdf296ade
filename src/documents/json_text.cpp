#include "documents/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/bounded_json.h"
#include "base/text.h"
#include "documents/document_error.h"
#include "documents/field_path.h"
#include "documents/json_scan.h"
#include "documents/python_json.h"

namespace athanor::inline documents {
namespace {

using nlohmann::json;

constexpr const char* kNull = "null";
constexpr size_t kMaxShownBytes = 120, kMaxShownFields = 20;

// Returns at most `limit` bytes of `text`, cut between characters.
std::string shortened(std::string_view text, size_t limit = kMaxShownBytes) {
  if (text.size() <= limit) return std::string(text);
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

// Follows one path to a field through the parser's events.
class FieldFinder {
 public:
  explicit FieldFinder(FieldPath path) : path_(std::move(path)), times_(path_.size(), 0) {}

  // A name in an object that `depth` brackets enclose.
  void key(const std::string& name, size_t depth) {
    const bool is_on_path = inside_ + 1 == depth && depth <= path_.size();
    is_next_ = is_on_path && name == path_[depth - 1];
    if (is_next_) ++times_[depth - 1];
  }
  // A value that is not an object of the path; `text` is null if it is no string.
  void value(const char* kind, std::string* text, size_t depth) {
    if (!std::exchange(is_next_, false)) return;
    const bool is_field = depth == path_.size();
    if (is_field && text) {
      text_ = std::move(*text);
    } else if (is_field || std::string_view(kind) == kNull) {
      wrong_kind_ = kind;  // what is null has fields that are null, as in Parquet
    }
  }
  void start_object(size_t depth) {
    if (!is_next_ || depth == path_.size()) return value("an object", nullptr, depth);
    is_next_ = false;
    ++inside_;
  }
  // The end of brackets that `depth` others enclose.
  void end(size_t depth) { inside_ = std::min(inside_, depth == 0 ? 0 : depth - 1); }

  bool is_there() const { return times_.back() > 0 || wrong_kind_; }
  int times() const { return *std::max_element(times_.begin(), times_.end()); }
  const char* wrong_kind() const { return wrong_kind_; }
  std::optional<std::string>& text() { return text_; }

 private:
  FieldPath path_;
  std::vector<int> times_;  // how often each name was found
  size_t inside_ = 0;       // names of the path whose objects are open
  bool is_next_ = false;    // the next value belongs to the last name found
  std::optional<std::string> text_;
  const char* wrong_kind_ = nullptr;
};

// Receives the parser's events and keeps the field's value, the names of the fields, and the first error.
class TextFinder {
 public:
  TextFinder(const std::string& field, bool may_be_string) : field_(field), may_be_string_(may_be_string) {
    for (auto& path : paths_of_field(field)) finders_.emplace_back(std::move(path));
  }

  bool null() { return value(kNull); }
  bool boolean(bool) { return value("a boolean"); }
  bool number_integer(json::number_integer_t) { return value("a number"); }
  bool number_unsigned(json::number_unsigned_t) { return value("a number"); }
  bool number_float(json::number_float_t, const std::string&) { return value("a number"); }
  bool binary(json::binary_t&) { return value("binary"); }
  bool string(std::string& text) {
    if (depth_ == 0 && may_be_string_) text_ = std::move(text);
    return value("a string", &text);
  }
  bool start_object(size_t) {
    if (depth_ == 0) top_ = "an object";
    for (auto& finder : finders_) finder.start_object(depth_);
    ++depth_;
    return true;
  }
  bool start_array(size_t) {
    value("an array");
    ++depth_;
    return true;
  }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& name) {
    for (auto& finder : finders_) finder.key(name, depth_);
    if (depth_ == 1 && fields_.size() <= kMaxShownFields) fields_.push_back(name);
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
    for (auto& finder : finders_) {
      if (!finder.is_there()) continue;
      if (finder.times() > 1)
        return refuse(kInvalidJson, fmt::format("the field \"{}\" occurs {} times", field_, finder.times()));
      if (finder.text()) text_ = std::move(finder.text());
      if (finder.wrong_kind()) {
        return refuse(kFieldNotString,
                      fmt::format("the field \"{}\" is {}, a string is needed", field_, finder.wrong_kind()));
      }
      break;
    }
    if (text_) return {.text = std::move(*text_), .cause = nullptr, .message = "", .error_offset = 0};
    if (std::string_view(top_) != "an object") {
      return refuse(kMissingField, fmt::format("an object with the field \"{}\" is needed, this is {}", field_, top_));
    }
    return refuse(kMissingField, fmt::format("no field \"{}\"; {}", field_, fields_there()));
  }

 private:
  bool value(const char* kind, std::string* text = nullptr) {
    if (depth_ == 0) top_ = kind;
    for (auto& finder : finders_) finder.value(kind, text, depth_);
    return true;
  }
  bool end() {
    --depth_;
    for (auto& finder : finders_) finder.end(depth_);
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
  std::vector<FieldFinder> finders_;  // the first that is there counts
  JsonText result_;
  std::optional<std::string> text_;
  std::vector<std::string> fields_;
  const char* top_ = "nothing";
  size_t depth_ = 0;
};

JsonText parse_strictly(std::string_view text, const std::string& field, bool may_be_string) {
  TextFinder finder(field, may_be_string);
  json::sax_parse(text.begin(), text.end(), &finder);
  return finder.finish();
}

bool is_invalid(const JsonText& result) { return result.cause && std::string_view(result.cause) == kInvalidJson; }

}  // namespace

JsonText find_json_text(std::string_view json, const std::string& field, bool may_be_string) {
  if (auto text = scan_json_text(json, field)) {
    return {.text = std::move(*text), .cause = nullptr, .message = "", .error_offset = 0};
  }
  return parse_json_text(json, field, may_be_string);
}

JsonText parse_json_text(std::string_view text, const std::string& field, bool may_be_string) {
  auto strict = parse_strictly(text, field, may_be_string);
  if (!is_invalid(strict)) return strict;
  const auto replaced = without_python_values(text, "\\ufffd");
  if (!replaced) return strict;
  auto found = parse_strictly(*replaced, field, may_be_string);
  if (is_invalid(found)) return strict;
  // Half a character in the text itself shows by the texts of two replacements: they differ.
  const auto other = parse_strictly(*without_python_values(text, "\\ufffe"), field, may_be_string);
  return found.text == other.text ? found : strict;
}

}  // namespace athanor::inline documents
