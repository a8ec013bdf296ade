#pragma once
// Reads the keys of a mapping with checks of their types, and refuses keys that have no meaning.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tasks/task_config.h"

namespace athanor::tasks {

class KeyReader {
 public:
  /// @param prefix  of the keys' paths, such as "fewshot_config."; "" at the top.
  KeyReader(const nlohmann::ordered_json& keys, const KeySource& source, std::string prefix = "")
      : keys_(keys), source_(source), prefix_(std::move(prefix)) {}

  /// Throws for a key that is not in the list, with the nearest one.
  void check_names(const std::vector<std::string>& names) const;

  /// Returns null if the key is not there or null.
  const nlohmann::ordered_json* find(const std::string& key) const;
  std::optional<std::string> text(const std::string& key) const;
  std::optional<int64_t> count(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;
  bool flag(const std::string& key, bool otherwise) const;

  /// Throws ConfigError "file:line: key <what>".
  template <class... Args>
  [[noreturn]] void complain(const std::string& key, fmt::format_string<Args...> format, Args&&... args) const {
    throw ConfigError(source_.place(prefix_ + key) + " " + fmt::vformat(format, fmt::make_format_args(args...)));
  }

  /// Throws if the value is `!function x`, or has one in it, with the function and what to write instead.
  void refuse_function(const std::string& key) const;

 private:
  const nlohmann::ordered_json& keys_;
  const KeySource& source_;
  std::string prefix_;
};

/// Reads athanor.published. @param reader  of the keys of `athanor`.
std::vector<PublishedScore> read_published(const KeyReader& reader, const KeySource& source);

/// Names a value's type for people: "a list", "the number 3".
std::string describe_json(const nlohmann::ordered_json& value);

}  // namespace athanor::tasks
