#pragma once
// A value inside a JSON file that knows its file and its path in it ("parts[2].tokens"), so that every error message
// names both.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace athanor {

/// A view: the parsed document and `file`, a name for messages, must outlive it. Every function that reads a value or a
/// member throws DataError, as complain() does, if the value is not of the type that it needs.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, const std::string& file, std::string path = "")
      : value_(&value), file_(&file), path_(std::move(path)) {}

  /// @throws DataError "<file>: <path>: <message>".
  template <class... Args>
  [[noreturn]] void complain(fmt::format_string<Args...> format, Args&&... args) const {
    throw DataError(located(fmt::vformat(format, fmt::make_format_args(args...))));
  }

  const nlohmann::json& value() const { return *value_; }
  bool is_null() const;
  bool is_string() const;
  bool is_array() const;

  /// Returns the value of a key that must exist; it may be null.
  JsonNode at(const std::string& key) const;
  /// Returns the value of a key that may be missing; null counts as missing.
  std::optional<JsonNode> find(const std::string& key) const;
  /// Returns the array elements in order.
  std::vector<JsonNode> elements() const;
  /// Returns the node of an element of this array that the caller has already looked up.
  JsonNode element(const nlohmann::json& value, size_t index) const;
  /// Returns the node of a member of this object that the caller has already looked up (for loops over large objects).
  JsonNode member(const nlohmann::json& value, const std::string& key) const;

  const std::string& as_string() const;
  bool as_bool() const;
  /// Returns an integer in [0, limit).
  uint64_t as_unsigned(uint64_t limit) const;
  void must_be_object() const;
  void must_be_array() const;

  /// Returns the value of `key`, or `otherwise` if it is missing or null.
  std::string string_or(const std::string& key, const std::string& otherwise) const;
  bool bool_or(const std::string& key, bool otherwise) const;

  /// Returns "<file>: <path>: <message>".
  std::string located(const std::string& message) const;

 private:
  std::string child_path(const std::string& key) const;

  const nlohmann::json* value_;
  const std::string* file_;
  std::string path_;
};

}  // namespace athanor
