// Jinja2's tests: `value is name(arguments)`.

#include <fmt/core.h>

#include <functional>

#include "base/text.h"
#include "tasks/python_repr.h"
#include "tasks/python_text.h"
#include "tasks/template_arguments.h"
#include "tasks/template_operators.h"

namespace athanor::tasks {
namespace {

using Check = std::function<bool(const Value&, const Arguments&)>;

template <class Compute>
Check without_arguments(Compute compute) {
  return [compute](const Value& value, const Arguments& arguments) {
    arguments.check(0, 0);
    return compute(value);
  };
}

Check comparison(std::string_view name) {
  return [name](const Value& value, const Arguments& arguments) {
    arguments.check(1, 1);
    return compare_values(name, value, arguments.positional[0]);
  };
}

bool is_remainder(const Value& value, const Value& divisor, int64_t remainder) {
  return equal(binary_operation("%", value, divisor), Value::of_int(remainder));
}

// What has a length and elements by number or key.
bool is_sequence(const Value& value) {
  if (value.defined().is_text() || value.is_dict()) return true;
  return value.is_sequence() && value.sequence().kind != Sequence::Kind::kIterator &&
         value.sequence().kind != Sequence::Kind::kView;
}

const std::map<std::string, Check>& tests() {
  using V = Value;
  static const std::map<std::string, Check> all{
      {"defined", without_arguments([](const V& v) { return !v.is_undefined(); })},
      {"undefined", without_arguments([](const V& v) { return v.is_undefined(); })},
      {"none", without_arguments([](const V& v) { return v.is_none(); })},
      {"string", without_arguments([](const V& v) { return v.is_text(); })},
      {"number", without_arguments([](const V& v) { return v.is_number(); })},
      {"integer", without_arguments([](const V& v) { return v.is_int(); })},
      {"float", without_arguments([](const V& v) { return v.is_float(); })},
      {"boolean", without_arguments([](const V& v) { return v.is_bool(); })},
      {"true", without_arguments([](const V& v) { return v.is_bool() && v.boolean(); })},
      {"false", without_arguments([](const V& v) { return v.is_bool() && !v.boolean(); })},
      {"mapping", without_arguments([](const V& v) { return v.is_dict(); })},
      {"sequence", without_arguments(is_sequence)},
      {"iterable",
       without_arguments([](const V& v) { return v.defined().is_text() || v.is_dict() || v.is_sequence(); })},
      {"even", without_arguments([](const V& v) { return is_remainder(v, V::of_int(2), 0); })},
      {"odd", without_arguments([](const V& v) { return is_remainder(v, V::of_int(2), 1); })},
      {"divisibleby",
       [](const V& v, const Arguments& a) {
         a.check(1, 1, {"num"});
         return is_remainder(v, *a.find(0, "num"), 0);
       }},
      {"lower", without_arguments([](const V& v) { return is_lower(python_str(v)); })},
      {"upper", without_arguments([](const V& v) { return is_upper(python_str(v)); })},
      {"in", comparison("in")},
      {"eq", comparison("==")},
      {"equalto", comparison("==")},
      {"ne", comparison("!=")},
      {"lt", comparison("<")},
      {"lessthan", comparison("<")},
      {"le", comparison("<=")},
      {"gt", comparison(">")},
      {"greaterthan", comparison(">")},
      {"ge", comparison(">=")},
  };
  return all;
}

}  // namespace

void check_test_name(const std::string& name) {
  if (tests().count(name)) return;
  std::vector<std::string> names;
  for (const auto& [known, test] : tests()) names.push_back(known);
  throw PythonError(fmt::format("this form has no test {}{}; it has {}", name, did_you_mean(name, names), join(names)));
}

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  check_test_name(name);
  return tests().at(name)(value, arguments);
}

}  // namespace athanor::tasks
