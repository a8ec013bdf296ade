#include "checkpoint/json_events.h"

#include <iterator>
#include <utility>

#include "base/error.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {
namespace {

constexpr int kMaxDepth = 64;  // ours are at most 5 deep; a bound also bounds every later walk over the tree

}  // namespace

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

namespace {

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

}  // namespace

void read_json_records(std::string_view text, const std::string& where, uint64_t first_byte, JsonTaker& taker,
                       const std::function<void(size_t)>& behind) {
  JsonEvents events(where, first_byte, &taker);
  const char *begin = text.data(), *end = begin + text.size();
  nlohmann::json::sax_parse(WatchedText(begin, begin, &behind), WatchedText(begin, end, &behind), &events);
}

}  // namespace athanor::inline checkpoint
