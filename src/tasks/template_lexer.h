#pragma once
// Cuts a template into texts and the tokens of its tags, as Jinja2 does with lm_eval's settings.

#include <string>
#include <string_view>
#include <vector>

namespace athanor::tasks {

struct Token {
  enum class Kind {
    kText,
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind;
  size_t offset = 0;
  std::string text = {};  ///< strings have their escapes replaced; numbers are as written
};

/// Ends with a token kEnd. @throws TemplateError.
std::vector<Token> cut_template(std::string_view source);
/// The same for a text that is one expression, without braces around it.
std::vector<Token> cut_expression(std::string_view source);

}  // namespace athanor::tasks
