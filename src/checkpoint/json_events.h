#pragma once
// Turns the JSON parser's events (its SAX interface) into one whole value or into records. Each event costs the same
// however much was read before: the parser's own callbacks would search all of a list at each item.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "checkpoint/json_records.h"

namespace athanor::inline checkpoint {

/// Builds one value from its events. `where` names the source in messages.
/// @throws CheckpointError if a key occurs twice in an object.
class JsonBuilder {
 public:
  explicit JsonBuilder(const std::string& where) : where_(where) {}
  /// True while a list or an object is open.
  bool busy() const { return !open_.empty(); }
  void put(nlohmann::json value);  ///< a scalar: a text, a number, ...
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

/// The parser's handler. With a taker it hands over the members of the outermost object, without one (null) it builds a
/// whole value. `first_byte` is the position of the text in its file, for messages.
/// @throws CheckpointError from any event, and what the taker throws.
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

}  // namespace athanor::inline checkpoint
