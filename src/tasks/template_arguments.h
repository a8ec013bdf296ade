#pragma once
// The arguments of a call of a method, a filter or a test.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tasks/value.h"

namespace athanor::tasks {

struct Arguments {
  std::string callee;  ///< for messages: "the filter join"
  Items positional;
  std::vector<std::pair<std::string, Value>> keywords;

  /// Returns the argument at the position, or with the name; null if neither is there.
  const Value* find(size_t position, std::string_view name) const;
  /// Throws for an argument that a signature does not have. `most` counts positional ones.
  void check(size_t least, size_t most, const std::vector<std::string_view>& names = {}) const;

  std::string text_or(size_t position, std::string_view name, std::string otherwise) const;
  int64_t int_or(size_t position, std::string_view name, int64_t otherwise) const;
  bool truth_or(size_t position, std::string_view name, bool otherwise) const;
  /// The argument at a position that check() found, which has to be a text.
  const std::string& text(size_t position) const;
};

/// object.name(arguments) for the methods of str, list, tuple and dict that this form has.
Value call_method(const Value& object, const std::string& name, const Arguments& arguments);
/// True if Python's type of the object has this attribute: Jinja finds it before a key of the same name.
bool has_python_attribute(const Value& object, std::string_view name);

/// value | name(arguments).
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
/// value is name(arguments).
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
/// Throws PythonError, with the nearest name, for a filter or test that this form does not have.
void check_filter_name(const std::string& name);
void check_test_name(const std::string& name);

}  // namespace athanor::tasks
