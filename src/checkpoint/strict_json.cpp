#include "checkpoint/strict_json.h"

#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/json_records.h"

namespace athanor::inline checkpoint {
namespace {

// Turns the JSON parser's events (its SAX interface) into one whole value or into records. Each event costs the same
// however much was read before: the parser's own callbacks would search all of a list at each item.

// Builds one value from its events. `where` names the source in messages.
// @throws CheckpointError if a key occurs twice in an object.
class JsonBuilder {
 public:
  explicit JsonBuilder(const std::string& where) : where_(where) {}
  // True while a list or an object is open.
  bool busy() const { return !open_.empty(); }
  void put(nlohmann::json value);  // a scalar: a text, a number, ...
  void open(nlohmann::json empty_list_or_object) { open_.push_back(place(std::move(empty_list_or_object))); }
  void key(const std::string& key);
  void close() { open_.pop_back(); }
  nlohmann::json take() { return std::move(root_); }

 private:
  nlohmann::json* place(nlohmann::json value);

  const std::string& where_;
  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;  // each contains the next; none grows while a later one is open
  nlohmann::json* member_ = nullptr;   // member of the innermost object; its value comes next
};

// The parser's handler. With a taker it hands over the members of the outermost object, without one (null) it builds a
// whole value. `first_byte` is the position of the text in its file, for messages.
// @throws CheckpointError from any event, and what the taker throws.
class JsonEvents {
 public:
  using Json = nlohmann::json;

  JsonEvents(const std::string& where, uint64_t first_byte, JsonTaker* taker)
      : where_(where), first_byte_(first_byte), taker_(taker), builder_(where) {}
  Json take_whole() { return std::move(whole_); }

  bool null() { return value(Json()); }
  bool boolean(bool x) { return value(Json(x)); }
  bool number_integer(int64_t x) { return value(Json(x)); }
  bool number_unsigned(uint64_t x);
  bool number_float(double x, const std::string& /*text*/) { return value(Json(x)); }
  bool string(std::string& x);
  bool binary(Json::binary_t& /*x*/) { return false; }
  bool start_object(size_t /*unknown*/) { return begin(Json::object()); }
  bool end_object() { return end(); }
  bool start_array(size_t /*unknown*/) { return begin(Json::array()); }
  bool end_array() { return end(); }
  bool key(std::string& key);
  bool parse_error(size_t byte, const std::string& /*token*/, const Json::exception& error);

 private:
  enum class At { kOutside, kMembers, kRecords, kRecord, kList };
  bool value(Json x);
  bool begin(Json empty);
  void open_here(Json empty);
  bool end();
  void deliver(Json x);
  template <class Act>
  void in_record(Act act);

  const std::string& where_;
  uint64_t first_byte_;
  JsonTaker* taker_;
  JsonBuilder builder_;
  Json whole_;
  At at_ = At::kOutside, after_record_ = At::kMembers;
  int depth_ = 0;
  std::string key_;  // key in the outermost object; its value is being read
  JsonTaker::Form form_ = JsonTaker::Form::kValue;
  std::unordered_set<std::string> keys_;  // keys of the outermost object
  JsonRecord record_;
};

constexpr int kMaxDepth = 64;  // ours are at most 5 deep; a bound also bounds every later walk over the tree

nlohmann::json* JsonBuilder::place(nlohmann::json value) {
  if (open_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  if (open_.back()->is_array()) {
    auto& list = open_.back()->get_ref<nlohmann::json::array_t&>();
    list.push_back(std::move(value));
    return &list.back();
  }
  *member_ = std::move(value);
  return member_;
}

void JsonBuilder::put(nlohmann::json value) { place(std::move(value)); }

void JsonBuilder::key(const std::string& key) {
  const auto [member, added] = open_.back()->get_ref<nlohmann::json::object_t&>().emplace(key, nullptr);
  ATHANOR_CHECK_CHECKPOINT(added, "{}: the key \"{}\" occurs twice", where_, shown_text(key));
  member_ = &member->second;
}

bool JsonEvents::parse_error(size_t byte, const std::string& /*token*/, const Json::exception& error) {
  ATHANOR_CHECK_CHECKPOINT(dynamic_cast<const Json::out_of_range*>(&error) == nullptr,
                           "{}: JSON contains a number that is out of range", where_);
  fail<CheckpointError>("{}: not valid JSON at byte {}", where_, first_byte_ + (byte > 0 ? byte - 1 : 0));
}

/// Adds the position in the file, which a record does not know, to its error.
template <class Act>
void JsonEvents::in_record(Act act) try {
  act();
} catch (const CheckpointError& error) {
  fail<CheckpointError>("{}: in \"{}\": {}", where_, shown_text(key_), error.what());
}

bool JsonEvents::key(std::string& key) {
  if (builder_.busy()) {
    builder_.key(key);
  } else if (at_ == At::kRecord) {
    in_record([&] { record_.key(key); });
  } else {
    ATHANOR_CHECK_CHECKPOINT(keys_.insert(key).second, "{}: the key \"{}\" occurs twice", where_, shown_text(key));
    key_ = key;
    form_ = taker_->form_of(key_);
  }
  return true;
}

bool JsonEvents::number_unsigned(uint64_t x) {
  if (builder_.busy() || (at_ != At::kRecord && at_ != At::kList)) return value(Json(x));
  if (at_ == At::kRecord) {
    record_.set_size(x);
  } else {
    in_record([&] { record_.add_to_list(x); });
  }
  return true;
}

bool JsonEvents::string(std::string& x) {
  if (builder_.busy() || at_ != At::kRecord) return value(Json(std::move(x)));
  record_.set_text(x);
  return true;
}

bool JsonEvents::value(Json x) {
  if (builder_.busy()) {
    builder_.put(std::move(x));
  } else {
    deliver(std::move(x));
  }
  return true;
}

void JsonEvents::deliver(Json x) {
  switch (at_) {
    case At::kOutside:
      ATHANOR_CHECK_CHECKPOINT(!taker_, "{}: expected an object, found {}", where_, x.type_name());
      whole_ = std::move(x);
      break;
    case At::kMembers:
    case At::kRecords: taker_->take_value(key_, std::move(x)); break;
    case At::kRecord: record_.set_other(x.type_name()); break;
    case At::kList: record_.add_other_to_list(); break;
  }
}

bool JsonEvents::begin(Json empty) {
  ATHANOR_CHECK_CHECKPOINT(++depth_ <= kMaxDepth, "{}: JSON is nested deeper than {} levels", where_, kMaxDepth);
  if (builder_.busy()) {
    builder_.open(std::move(empty));
  } else {
    open_here(std::move(empty));
  }
  return true;
}

void JsonEvents::open_here(Json empty) {
  using Form = JsonTaker::Form;
  const bool object = empty.is_object();
  if (taker_ && at_ == At::kOutside && object) {
    at_ = At::kMembers;
  } else if (at_ == At::kMembers && form_ == Form::kRecords && !object) {
    at_ = At::kRecords;
  } else if (object && ((at_ == At::kMembers && form_ == Form::kRecord) || at_ == At::kRecords)) {
    after_record_ = std::exchange(at_, At::kRecord);
    record_.clear();
  } else if (at_ == At::kRecord && !object) {
    at_ = At::kList;
    record_.begin_list();
  } else {
    builder_.open(std::move(empty));
  }
}

bool JsonEvents::end() {
  --depth_;
  if (builder_.busy()) {
    builder_.close();
    if (!builder_.busy()) deliver(builder_.take());
    return true;
  }
  switch (at_) {
    case At::kOutside: break;
    case At::kMembers: at_ = At::kOutside; break;
    case At::kRecords: at_ = At::kMembers; break;
    case At::kList: at_ = At::kRecord; break;
    case At::kRecord:
      at_ = after_record_;
      taker_->take_record(key_, record_);
      break;
  }
  return true;
}

/// Reads the text in pieces, and regularly reports the bytes that were read.
class WatchedText {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  WatchedText(const char* begin, const char* at, const std::function<void(size_t)>* behind)
      : begin_(begin), at_(at), behind_(behind) {}
  reference operator*() const { return *at_; }
  WatchedText& operator++() {
    ++at_;
    if (const auto done = static_cast<size_t>(at_ - begin_); done % kEvery == 0 && *behind_) (*behind_)(done);
    return *this;
  }
  bool operator==(const WatchedText& other) const { return at_ == other.at_; }
  bool operator!=(const WatchedText& other) const { return at_ != other.at_; }

 private:
  static constexpr size_t kEvery = 1 << 20;
  const char *begin_, *at_;
  const std::function<void(size_t)>* behind_;
};

using Json = nlohmann::json;

std::optional<int64_t> as_size(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

}  // namespace

std::string shown_text(std::string_view text) {
  constexpr size_t kMost = 100;
  return printable(text.substr(0, kMost)) + (text.size() > kMost ? "..." : "");
}

Json parse_strict_json(std::string_view text, const std::string& where, uint64_t first_byte) {
  JsonEvents events(where, first_byte, nullptr);
  Json::sax_parse(text.begin(), text.end(), &events);
  return events.take_whole();
}

void read_json_records(std::string_view text, const std::string& where, uint64_t first_byte, JsonTaker& taker,
                       const std::function<void(size_t)>& behind) {
  JsonEvents events(where, first_byte, &taker);
  const char *begin = text.data(), *end = begin + text.size();
  Json::sax_parse(WatchedText(begin, begin, &behind), WatchedText(begin, end, &behind), &events);
}

const Json& json_member(const Json& object, const char* key, const std::string& where) {
  ATHANOR_CHECK_CHECKPOINT(object.is_object(), "{}: expected an object with \"{}\", found {}", where, key,
                           object.type_name());
  const auto found = object.find(key);
  ATHANOR_CHECK_CHECKPOINT(found != object.end(), "{}: \"{}\" is missing", where, key);
  return *found;
}

std::string json_string(const Json& object, const char* key, const std::string& where) {
  const auto& value = json_member(object, key, where);
  ATHANOR_CHECK_CHECKPOINT(value.is_string(), "{}: \"{}\" must be a string, found {}", where, key, value.type_name());
  return value.get<std::string>();
}

int64_t json_size(const Json& object, const char* key, const std::string& where) {
  return as_json_size(json_member(object, key, where), key, where);
}

int64_t as_json_size(const Json& value, std::string_view name, const std::string& where) {
  const auto size = as_size(value);
  ATHANOR_CHECK_CHECKPOINT(size.has_value(), "{}: \"{}\" must be a whole number from 0 to 2^63-1", where, name);
  return *size;
}

std::vector<int64_t> as_json_sizes(const Json& value, std::string_view name, const std::string& where) {
  ATHANOR_CHECK_CHECKPOINT(value.is_array(), "{}: \"{}\" must be a list of whole numbers", where, name);
  std::vector<int64_t> sizes;
  sizes.reserve(value.size());
  for (const auto& item : value) {
    const auto size = as_size(item);
    ATHANOR_CHECK_CHECKPOINT(size.has_value(), "{}: \"{}\" must hold whole numbers from 0 to 2^63-1", where, name);
    sizes.push_back(*size);
  }
  return sizes;
}

}  // namespace athanor::inline checkpoint
