// Jinja2's filters, and lm_eval's regex_replace.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/text.h"
#include "tasks/python_regex.h"
#include "tasks/python_repr.h"
#include "tasks/python_text.h"
#include "tasks/template_arguments.h"
#include "tasks/template_list_filters.h"
#include "tasks/template_operators.h"

namespace athanor::tasks {
namespace {

using Filter = std::function<Value(const Value&, const Arguments&)>;

Value text_of(std::string text) { return Value::of_text(std::move(text)); }

Value int_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 2, {"default", "base"});
  const Value* otherwise = arguments.find(0, "default");
  const Value fallback = otherwise ? *otherwise : Value::of_int(0);
  value.defined();
  double number = 0;
  if (value.is_text()) {
    if (const auto whole = read_int(value.text(), static_cast<int>(arguments.int_or(1, "base", 10))))
      return Value::of_int(*whole);
    const auto read = read_float(value.text());
    if (!read) return fallback;
    number = *read;
    if (std::isinf(number)) return fallback;
  } else if (value.is_integer()) {
    return Value::of_int(value.integer());
  } else if (value.is_float()) {
    number = value.number();
    if (std::isinf(number)) throw PythonError("infinity is no int");
  } else {
    return fallback;
  }
  if (std::isnan(number)) return fallback;
  if (std::abs(number) >= 0x1p63) throw PythonError("the result of int needs more than 64 bits");
  return Value::of_int(static_cast<int64_t>(number));
}

Value float_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 1, {"default"});
  const Value* otherwise = arguments.find(0, "default");
  if (value.defined().is_number()) return Value::of_float(value.number());
  if (value.is_text())
    if (const auto number = read_float(value.text())) return Value::of_float(*number);
  return otherwise ? *otherwise : Value::of_float(0);
}

// Jinja splits at these signs, and keeps them: an upper letter behind each, lower ones behind that.
Value title_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 0);
  const std::string text = python_str(value);
  std::string out, word;
  const auto end_word = [&] {
    if (word.empty()) return;
    const auto first = characters(word)[0];
    out += to_upper(first) + to_lower(std::string_view(word).substr(first.size()));
    word.clear();
  };
  for (const auto character : characters(text)) {
    size_t byte = 0;
    const bool separates = std::string_view("-({[<").find(character) != std::string_view::npos ||
                           is_python_space(take_character(character, byte));
    if (separates) {
      end_word();
      out += character;
    } else {
      word += character;
    }
  }
  end_word();
  return text_of(std::move(out));
}

Value abs_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 0);
  if (!value.defined().is_number()) throw PythonError(fmt::format("abs does not take a {}", value.type_name()));
  if (value.is_float()) return Value::of_float(std::abs(value.number()));
  return value.integer() < 0 ? negate(value) : Value::of_int(value.integer());
}

Value round_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 2, {"precision", "method"});
  const int64_t precision = arguments.int_or(0, "precision", 0);
  const std::string method = arguments.text_or(1, "method", "common");
  if (!value.defined().is_number()) throw PythonError(fmt::format("round does not take a {}", value.type_name()));
  if (precision < 0 || precision > 15) throw PythonError("this form rounds to 0 to 15 decimals");
  if (method == "common") {
    if (value.is_integer()) return Value::of_int(value.integer());
    if (!std::isfinite(value.number())) return value;
    // The digits are those of the exact value, ties to even, as Python rounds.
    return Value::of_float(*read_float(fmt::format("{:.{}f}", value.number(), precision)));
  }
  if (method != "ceil" && method != "floor") throw PythonError("round has the methods common, ceil and floor");
  const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = value.number() * scale;
  return Value::of_float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value default_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 2, {"default_value", "boolean"});
  const Value* otherwise = arguments.find(0, "default_value");
  const bool replaces = value.is_undefined() || (arguments.truth_or(1, "boolean", false) && !truth(value));
  return !replaces ? value : otherwise ? *otherwise : text_of("");
}

// Jinja escapes what HTML gives a meaning.
Value tojson_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 1, {"indent"});
  std::string out;
  const JsonStyle style{static_cast<int>(std::clamp<int64_t>(arguments.int_or(0, "indent", -1), -1, 16)), true, true};
  python_repr(value);  // throws if the text would be too long
  for (const char c : python_json(to_json(value), style)) {
    if (c == '<' || c == '>' || c == '&' || c == '\'') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return text_of(std::move(out));
}

template <class Compute>
Filter of_text(Compute compute) {
  return [compute](const Value& value, const Arguments& arguments) {
    arguments.check(0, 0);
    return text_of(compute(python_str(value)));
  };
}

const std::map<std::string, Filter>& filters() {
  using V = Value;
  using A = Arguments;
  static const Filter length_filter = [](const V& value, const A& a) {
    a.check(0, 0);
    return V::of_int(length(value));
  };
  static const std::map<std::string, Filter> all{
      {"int", int_filter},
      {"float", float_filter},
      {"string", of_text([](std::string t) { return t; })},
      {"lower", of_text([](const std::string& t) { return to_lower(t); })},
      {"upper", of_text([](const std::string& t) { return to_upper(t); })},
      {"capitalize", of_text([](const std::string& t) { return capitalize(t); })},
      {"title", title_filter},
      {"trim",
       [](const V& value, const A& a) {
         a.check(0, 1, {"chars"});
         const std::string text = python_str(value);
         const V* removed = a.find(0, "chars");
         return text_of(std::string(removed && !removed->is_none() ? strip(text, python_str(*removed)) : strip(text)));
       }},
      {"replace",
       [](const V& value, const A& a) {
         a.check(2, 3, {"old", "new", "count"});
         const std::string text = python_str(value), old = a.text_or(0, "old", ""), by = a.text_or(1, "new", "");
         check_text_size((text.size() + 1) * std::max<size_t>(by.size(), 1) / std::max<size_t>(old.size(), 1));
         return text_of(replace_text(text, old, by, a.int_or(2, "count", -1)));
       }},
      {"regex_replace",
       [](const V& value, const A& a) {
         a.check(2, 3, {"pattern", "repl", "count"});
         if (!value.defined().is_text()) throw PythonError("regex_replace takes a str");
         return text_of(regex_replace(value.text(), a.text_or(0, "pattern", ""), a.text_or(1, "repl", ""),
                                      a.int_or(2, "count", 0)));
       }},
      {"format",
       [](const V& value, const A& a) {
         if (!a.keywords.empty()) throw PythonError("this form of format takes no names");
         return text_of(percent_format(python_str(value), a.positional));
       }},
      {"join", join_filter},
      {"length", length_filter},
      {"count", length_filter},
      {"first", first_filter},
      {"last", last_filter},
      {"list",
       [](const V& value, const A& a) {
         a.check(0, 0);
         return V::of_list(iterate(value));
       }},
      {"map", map_filter},
      {"select", [](const V& v, const A& a) { return select_filter(v, a, true, false); }},
      {"reject", [](const V& v, const A& a) { return select_filter(v, a, false, false); }},
      {"selectattr", [](const V& v, const A& a) { return select_filter(v, a, true, true); }},
      {"rejectattr", [](const V& v, const A& a) { return select_filter(v, a, false, true); }},
      {"sort", sort_filter},
      {"reverse", reverse_filter},
      {"unique", unique_filter},
      {"min", [](const V& v, const A& a) { return extreme_filter(v, a, false); }},
      {"max", [](const V& v, const A& a) { return extreme_filter(v, a, true); }},
      {"sum", sum_filter},
      {"abs", abs_filter},
      {"round", round_filter},
      {"default", default_filter},
      {"d", default_filter},
      {"tojson", tojson_filter},
  };
  return all;
}

}  // namespace

void check_filter_name(const std::string& name) {
  if (filters().count(name)) return;
  std::vector<std::string> names;
  for (const auto& [known, filter] : filters()) names.push_back(known);
  throw PythonError(
      fmt::format("this form has no filter {}{}; it has {}", name, did_you_mean(name, names), join(names)));
}

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  check_filter_name(name);
  return filters().at(name)(value, arguments);
}

}  // namespace athanor::tasks
