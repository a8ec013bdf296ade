#include "checkpoint/json_records.h"

#include <limits>

#include "base/error.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {

void JsonRecord::key(std::string_view key) {
  for (size_t i = 0; i < num_members_; ++i)
    ATHANOR_CHECK_CHECKPOINT(members_[i].key != key, "the key \"{}\" occurs twice", shown_text(key));
  ATHANOR_CHECK_CHECKPOINT(num_members_ < kMaxMembers, "it has more than {} members", kMaxMembers);
  if (num_members_ == members_.size()) members_.emplace_back();
  ++num_members_;
  last().key.assign(key);
}

void JsonRecord::set_text(std::string_view text) {
  last().kind = Kind::kText;
  last().type_name = "string";
  last().text.assign(text);
}

void JsonRecord::set_size(uint64_t size) {
  if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return set_other("number");
  last().kind = Kind::kSize;
  last().type_name = "number";
  last().size = static_cast<int64_t>(size);
}

void JsonRecord::set_other(const char* type_name) {
  last().kind = Kind::kOther;
  last().type_name = type_name;
}

void JsonRecord::begin_list() {
  last().kind = Kind::kList;
  last().type_name = "array";
  last().list.clear();
  last().whole_numbers = true;
}

void JsonRecord::add_to_list(uint64_t size) {
  if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return add_other_to_list();
  ATHANOR_CHECK_CHECKPOINT(last().list.size() < kMaxList, "\"{}\" lists more than {} numbers", last().key, kMaxList);
  last().list.push_back(static_cast<int64_t>(size));
}

const JsonRecord::Member& JsonRecord::member(std::string_view key) const {
  for (size_t i = 0; i < num_members_; ++i) {
    if (members_[i].key == key) return members_[i];
  }
  fail<CheckpointError>("\"{}\" is missing", key);
}

const std::string& JsonRecord::text(std::string_view key) const {
  const Member& found = member(key);
  ATHANOR_CHECK_CHECKPOINT(found.kind == Kind::kText, "\"{}\" must be a string, found {}", key, found.type_name);
  return found.text;
}

int64_t JsonRecord::size(std::string_view key) const {
  const Member& found = member(key);
  ATHANOR_CHECK_CHECKPOINT(found.kind == Kind::kSize, "\"{}\" must be a whole number from 0 to 2^63-1", key);
  return found.size;
}

const std::vector<int64_t>& JsonRecord::sizes(std::string_view key) const {
  const Member& found = member(key);
  ATHANOR_CHECK_CHECKPOINT(found.kind == Kind::kList, "\"{}\" must be a list of whole numbers", key);
  ATHANOR_CHECK_CHECKPOINT(found.whole_numbers, "\"{}\" must hold whole numbers from 0 to 2^63-1", key);
  return found.list;
}

}  // namespace athanor::inline checkpoint
