#pragma once
// Templates in the language of Jinja2, as far as lm_eval's task files use it, with lm_eval's settings: a name that is
// not there is an error, and the newline at the end stays.
//
// Jinja's language with Python's values is large. What this form has gives the bytes that Jinja gives; everything else
// is refused when the template is compiled, or when it meets such a value. docs/tasks.md lists what there is.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tasks/value.h"

namespace athanor::tasks {

class Template {
 public:
  /// @param what  what the template is, for messages: "task arc_easy: doc_to_text".
  /// @throws DataError with line and character.
  static Template compile(std::string_view source, std::string what);
  /// The same for a source that is one expression without braces, such as a condition.
  static Template compile_expression(std::string_view source, std::string what);

  /// Returns the text for a row, whose members are the names. @throws DataError with line and character.
  std::string render(const nlohmann::ordered_json& row) const;
  /// Returns the value if the template is one {{ expression }} and nothing else, or an expression; else the text.
  Value evaluate(const nlohmann::ordered_json& row) const;

  /// Returns bool(value) of the same. @throws DataError with line and character.
  bool holds(const nlohmann::ordered_json& row) const;

  const std::string& what() const;

 private:
  struct Compiled;
  explicit Template(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace athanor::tasks
