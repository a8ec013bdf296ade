#pragma once
// Reads JSON with millions of small objects (records) and hands them over one after the other, so that neither time nor
// memory grows faster than the text. It is for a manifest's pieces and the tensors of a safetensors header.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline checkpoint {

/// An object whose members are texts, whole numbers and short lists of whole numbers. Members of other types are read,
/// but their values are not kept. One record is filled again and again, so that reading the next allocates nothing.
class JsonRecord {
 public:
  static constexpr size_t kMaxMembers = 16;  // our objects have 8; a limit keeps the search for a key short
  static constexpr size_t kMaxList = 64;     // dims of a shape

  /// Return the member of this type.
  /// @throws CheckpointError such as "\"dtype\" must be a string, found number", without a position: the caller knows
  /// it.
  const std::string& text(std::string_view key) const;
  /// Returns a number from 0 to 2^63-1.
  int64_t size(std::string_view key) const;
  const std::vector<int64_t>& sizes(std::string_view key) const;

  /// Fill the record: each call after key() sets the value of that key.
  /// @throws CheckpointError for a repeated key, for more keys than kMaxMembers, and for a list longer than kMaxList.
  void clear() { num_members_ = 0; }
  void key(std::string_view key);
  void set_text(std::string_view text);
  void set_size(uint64_t size);
  void set_other(const char* type_name);
  void begin_list();
  void add_to_list(uint64_t size);
  void add_other_to_list() { members_[num_members_ - 1].whole_numbers = false; }

 private:
  enum class Kind { kText, kSize, kList, kOther };
  struct Member {
    std::string key, text;
    Kind kind = Kind::kOther;
    const char* type_name = "null";
    int64_t size = 0;
    std::vector<int64_t> list;
    bool whole_numbers = true;
  };
  const Member& member(std::string_view key) const;
  Member& last() { return members_[num_members_ - 1]; }

  std::vector<Member> members_;
  size_t num_members_ = 0;
};

/// Takes the members of a text's outermost object, in order. Each function may throw, which ends the reading.
class JsonTaker {
 public:
  enum class Form {
    kValue,   ///< as one whole value
    kRecord,  ///< an object, as a record
    kRecords  ///< a list of objects, one record each
  };
  virtual ~JsonTaker() = default;
  /// Returns the form in which it takes the member `key`, whose value comes next.
  virtual Form form_of(const std::string& key) = 0;
  /// Takes the object that is the member `key`, or one of the objects in its list. The record is valid during the call.
  virtual void take_record(const std::string& key, const JsonRecord& record) = 0;
  /// Takes a value that was asked for as a whole; also a member, or an item of its list, that is not the object asked
  /// for.
  virtual void take_value(const std::string& key, nlohmann::json value) = 0;
};

/// Reads `text`, which must be one object, as strictly as parse_strict_json does (strict_json.h). Time is linear in the
/// text, and so is memory in addition to what the taker keeps.
/// @param behind  called about every MiB with the number of bytes from the beginning of `text` that are not needed
///                again.
/// @throws CheckpointError with `where`, and the byte counted from `first_byte`.
void read_json_records(std::string_view text, const std::string& where, uint64_t first_byte, JsonTaker& taker,
                       const std::function<void(size_t)>& behind = {});

}  // namespace athanor::inline checkpoint
