#include "documents/json_text.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bounded_json.h"
#include "base/text.h"
#include "documents/document_error.h"
#include "documents/field_path.h"

namespace athanor::inline documents {
namespace {

// What Python's json writes and JSON does not have: the words NaN, Infinity and -Infinity, and escapes of one half of a
// surrogate pair. And what JSON has and the parsers refuse: numbers beyond a double, such as 1e999.

constexpr std::string_view kNumberBytes = "0123456789+-.eE";
constexpr size_t kEscapeBytes = 6;  // \ud83d

// Returns the value of an escape \uXXXX at the beginning of `text`; none for anything else.
std::optional<uint32_t> escaped_unit(std::string_view text) {
  if (text.size() < kEscapeBytes || !text.starts_with("\\u")) return std::nullopt;
  uint32_t unit = 0;
  for (const char c : text.substr(2, 4)) {
    const auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
    if (digit == std::string_view::npos) return std::nullopt;
    unit = unit << 4 | static_cast<uint32_t>(digit);
  }
  return unit;
}

// JSON's grammar: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
bool is_json_number(std::string_view text) {
  const auto take = [&](std::string_view any_of) {
    const bool found = !text.empty() && any_of.find(text.front()) != std::string_view::npos;
    if (found) text.remove_prefix(1);
    return found;
  };
  const auto digits = [&] {
    const size_t before = text.size();
    while (take("0123456789")) {
    }
    return text.size() < before;
  };
  take("-");
  if (!take("0") && !digits()) return false;
  if (take(".") && !digits()) return false;
  if (take("eE")) {
    take("+-");
    if (!digits()) return false;
  }
  return text.empty();
}

bool is_beyond_double(std::string_view number) {
  return is_json_number(number) && std::isinf(std::strtod(std::string(number).c_str(), nullptr));
}

class Replacer {
 public:
  Replacer(std::string_view row, std::string_view replacement) : row_(row), replacement_(replacement) {}

  std::optional<std::string> replace() {
    while (at_ < row_.size()) {
      if (in_string_) {
        take_in_string();
      } else {
        take_outside();
      }
    }
    return any_ ? std::optional(std::move(out_)) : std::nullopt;
  }

 private:
  void copy(size_t length) {
    out_ += row_.substr(at_, length);
    at_ += length;
  }
  void put(std::string_view instead, size_t length) {
    out_ += instead;
    at_ += length;
    any_ = true;
  }

  void take_in_string() {
    const auto rest = row_.substr(at_);
    if (rest[0] == '"') in_string_ = false;
    if (rest[0] != '\\') return copy(1);
    const auto unit = escaped_unit(rest);
    const bool is_half = unit && *unit >= 0xD800 && *unit <= 0xDFFF;
    if (!is_half) return copy(2);
    const auto second = *unit < 0xDC00 ? escaped_unit(rest.substr(kEscapeBytes)) : std::nullopt;
    if (second && *second >= 0xDC00 && *second <= 0xDFFF) return copy(2 * kEscapeBytes);
    put(replacement_, kEscapeBytes);
  }

  void take_outside() {
    const auto rest = row_.substr(at_);
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (rest.starts_with(word)) return put("0", word.size());
    }
    const size_t length = std::min(rest.find_first_not_of(kNumberBytes), rest.size());
    if (length > 0) return is_beyond_double(rest.substr(0, length)) ? put("0", length) : copy(length);
    in_string_ = rest[0] == '"';
    copy(1);
  }

  std::string_view row_, replacement_;
  std::string out_;
  size_t at_ = 0;
  bool in_string_ = false, any_ = false;
};

// Returns `row` with each such number replaced by 0, and each half of a pair by `replacement`, an escape of six bytes;
// none if it has none of these. Everything else stays as it is, also what is no JSON.
std::optional<std::string> without_python_values(std::string_view row, std::string_view replacement) {
  return Replacer(row, replacement).replace();
}

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
  auto tolerant = parse_strictly(*replaced, field, may_be_string);
  if (is_invalid(tolerant)) return strict;
  // Half a character in the text itself shows by the texts of two replacements: they differ.
  const auto other = parse_strictly(*without_python_values(text, "\\ufffe"), field, may_be_string);
  return tolerant.text == other.text ? tolerant : strict;
}

namespace {

namespace dom = simdjson::dom;

// Finds what the object has under `path`, from the name at `from` on. `times`: how often the field is there, 2 or more
// also if a name on the way to it is repeated.
bool find_field(const dom::object& object, const FieldPath& path, size_t from, int& times, dom::element& found) {
  times = 0;
  for (const auto member : object) {
    if (member.key != path[from]) continue;
    found = member.value;
    ++times;
  }
  if (times != 1 || from + 1 == path.size()) return times == 1;
  dom::object inner;
  return found.get(inner) == simdjson::SUCCESS && find_field(inner, path, from + 1, times, found);
}

}  // namespace

std::optional<std::string> scan_json_text(std::string_view json, std::string_view field) {
  // A parser keeps memory for the largest row that it has seen, so each row gets a parser for itself. simdjson's
  // On-Demand interface would be faster, but it does not check the values that are skipped.
  dom::parser parser;
  dom::object object;
  if (parser.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) return std::nullopt;
  for (const auto& path : paths_of_field(field)) {
    int times = 0;
    dom::element found;
    std::string_view text;
    if (find_field(object, path, 0, times, found))
      return found.get(text) == simdjson::SUCCESS ? std::optional<std::string>(text) : std::nullopt;
    if (times > 0) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace athanor::inline documents
