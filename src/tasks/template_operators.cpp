#include "tasks/template_operators.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "tasks/python_repr.h"
#include "tasks/python_text.h"
#include "tasks/template_arguments.h"

namespace athanor::tasks {
namespace {

constexpr int64_t kExactInDouble = int64_t{1} << 53;

[[noreturn]] void refuse_types(std::string_view name, const Value& left, const Value& right) {
  throw PythonError(fmt::format("{} does not take a {} and a {}", name, left.type_name(), right.type_name()));
}

[[noreturn]] void refuse_size(std::string_view name) {
  throw PythonError(fmt::format("the result of {} needs more than 64 bits", name));
}

Value floor_division(int64_t a, int64_t b, bool wants_remainder) {
  if (b == 0) throw PythonError("a division by zero");
  if (b == -1) {
    if (wants_remainder) return Value::of_int(0);
    if (a == INT64_MIN) refuse_size("//");
    return Value::of_int(-a);
  }
  int64_t quotient = a / b, remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    --quotient;
    remainder += b;
  }
  return Value::of_int(wants_remainder ? remainder : quotient);
}

// As CPython's float_divmod.
Value floor_division(double a, double b, bool wants_remainder) {
  if (b == 0) throw PythonError("a division by zero");
  double mod = std::fmod(a, b), div = (a - mod) / b;
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) {
      mod += b;
      div -= 1.0;
    }
  } else {
    mod = std::copysign(0.0, b);
  }
  if (wants_remainder) return Value::of_float(mod);
  double whole = std::copysign(0.0, a / b);
  if (div != 0) {
    whole = std::floor(div);
    if (div - whole > 0.5) whole += 1.0;
  }
  return Value::of_float(whole);
}

Value integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1) return Value::of_int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::of_int(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) refuse_size("**");
  return Value::of_int(result);
}

Value power(const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer() && right.integer() >= 0)
    return integer_power(left.integer(), right.integer());
  const double base = left.number(), exponent = right.number();
  if (base == 0 && exponent < 0) throw PythonError("a division by zero");
  if (base < 0 && exponent != std::floor(exponent)) throw PythonError("this form has no complex numbers");
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent))
    throw PythonError("the result of ** is too large");
  return Value::of_float(result);
}

Value integer_operation(std::string_view name, int64_t a, int64_t b) {
  int64_t result = 0;
  if (name == "+"   ? __builtin_add_overflow(a, b, &result)
      : name == "-" ? __builtin_sub_overflow(a, b, &result)
                    : __builtin_mul_overflow(a, b, &result))
    refuse_size(name);
  return Value::of_int(result);
}

Value number_operation(std::string_view name, const Value& left, const Value& right) {
  if (name == "**") return power(left, right);
  const bool integers = left.is_integer() && right.is_integer();
  if (name == "//" || name == "%") {
    return integers ? floor_division(left.integer(), right.integer(), name == "%")
                    : floor_division(left.number(), right.number(), name == "%");
  }
  if (name == "/") {
    if (right.number() == 0) throw PythonError("a division by zero");
    if (integers && (std::abs(left.number()) > kExactInDouble || std::abs(right.number()) > kExactInDouble))
      throw PythonError("this form divides only integers of at most 53 bits");
    return Value::of_float(left.number() / right.number());
  }
  if (integers) return integer_operation(name, left.integer(), right.integer());
  const double a = left.number(), b = right.number();
  return Value::of_float(name == "+" ? a + b : name == "-" ? a - b : a * b);
}

Value repeat(const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const auto size = value.is_text() ? static_cast<int64_t>(value.text().size()) : length(value);
  const auto most = value.is_text() ? static_cast<int64_t>(kMaxTextBytes) : kMaxTemplateItems;
  if (size > 0 && times > most / size) throw PythonError("the result of * is too long");
  if (value.is_text()) {
    std::string text;
    for (; times > 0; --times) text += value.text();
    return Value::of_text(std::move(text));
  }
  Items items;
  for (; times > 0; --times) items.insert(items.end(), value.sequence().items.begin(), value.sequence().items.end());
  return Value::of_sequence(value.sequence().kind, std::move(items));
}

bool is_repeatable(const Value& value) {
  return value.is_text() || value.is_list() || value.is_sequence(Sequence::Kind::kTuple);
}

bool contains(const Value& container, const Value& item) {
  container.defined();
  item.defined();
  if (container.is_text()) {
    if (!item.is_text()) throw PythonError(fmt::format("a str holds no {}", item.type_name()));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is_dict()) return container.dict().find(item) != nullptr;
  const auto items = iterate(container);
  return std::any_of(items.begin(), items.end(), [&](const Value& member) { return equal(member, item); });
}

std::string keys_of(const Dict& dict) {
  std::vector<std::string> names;
  for (const auto& [key, value] : dict.members) names.push_back(printable(python_str(key)));
  return names.empty() ? "it is empty" : "it has " + join_first(names, 12);
}

bool is_indexable(const Value& value) {
  return value.is_text() || (value.is_sequence() && value.sequence().kind != Sequence::Kind::kView &&
                             value.sequence().kind != Sequence::Kind::kIterator);
}

// The bounds of a slice as Python's slice.indices() gives them.
struct SliceBounds {
  int64_t begin, end, step;
};

int64_t slice_bound(const Value& value, int64_t length, int64_t step) {
  if (!value.defined().is_integer()) throw PythonError(fmt::format("a bound of a slice is a {}", value.type_name()));
  int64_t bound = value.integer();
  if (bound < 0) return std::max(bound + length, step < 0 ? int64_t{-1} : int64_t{0});
  return std::min(bound, step < 0 ? length - 1 : length);
}

SliceBounds slice_bounds(int64_t length, const Value* begin, const Value* end, const Value* step) {
  const auto given = [](const Value* value) { return value && !value->defined().is_none(); };
  SliceBounds bounds{0, 0, 1};
  if (given(step)) {
    if (!step->is_integer()) throw PythonError(fmt::format("the step of a slice is a {}", step->type_name()));
    bounds.step = step->integer();
    if (bounds.step == 0) throw PythonError("the step of a slice is 0");
    bounds.step = std::clamp(bounds.step, -kMaxTemplateItems, kMaxTemplateItems);
  }
  const bool back = bounds.step < 0;
  bounds.begin = given(begin) ? slice_bound(*begin, length, bounds.step) : back ? length - 1 : 0;
  bounds.end = given(end) ? slice_bound(*end, length, bounds.step) : back ? -1 : length;
  return bounds;
}

}  // namespace

Value binary_operation(std::string_view name, const Value& left, const Value& right) {
  left.defined();
  right.defined();
  if (left.is_number() && right.is_number()) return number_operation(name, left, right);
  if (name == "+") {
    if (left.is_text() && right.is_text()) return Value::of_text(left.text() + right.text());
    if (is_repeatable(left) && left.is_sequence() && right.is_sequence(left.sequence().kind)) {
      Items items = left.sequence().items;
      items.insert(items.end(), right.sequence().items.begin(), right.sequence().items.end());
      if (static_cast<int64_t>(items.size()) > kMaxTemplateItems) throw PythonError("the result of + is too long");
      return Value::of_sequence(left.sequence().kind, std::move(items));
    }
  }
  if (name == "*" && is_repeatable(left) && right.is_integer()) return repeat(left, right.integer());
  if (name == "*" && is_repeatable(right) && left.is_integer()) return repeat(right, left.integer());
  if (name == "%" && left.is_text()) {
    if (right.is_dict()) throw PythonError("this form has no % with a dict");
    return Value::of_text(
        percent_format(left.text(), right.is_sequence(Sequence::Kind::kTuple) ? right.sequence().items : Items{right}));
  }
  refuse_types(name, left, right);
}

bool compare_values(std::string_view name, const Value& left, const Value& right) {
  if (name == "==") return equal(left, right);
  if (name == "!=") return !equal(left, right);
  if (name == "in") return contains(right, left);
  if (name == "not in") return !contains(right, left);
  const auto sign = order(left, right);
  if (!sign) return false;
  return name == "<" ? *sign < 0 : name == "<=" ? *sign <= 0 : name == ">" ? *sign > 0 : *sign >= 0;
}

Value negate(const Value& value) {
  if (value.defined().is_float()) return Value::of_float(-value.number());
  if (!value.is_integer()) throw PythonError(fmt::format("- does not take a {}", value.type_name()));
  return integer_operation("-", 0, value.integer());
}

Value positive(const Value& value) {
  if (value.defined().is_float()) return value;
  if (!value.is_integer()) throw PythonError(fmt::format("+ does not take a {}", value.type_name()));
  return Value::of_int(value.integer());
}

Value get_item(const Value& object, const Value& key) {
  object.defined();
  key.defined();
  if (object.is_dict()) {
    if (const Value* found = object.dict().find(key)) return *found;
    if (key.is_text() && has_python_attribute(object, key.text()))
      throw PythonError(fmt::format("this form has no access to {} without a call", key.text()));
    return Value::undefined(fmt::format("there is no key {}; {}", python_repr(key), keys_of(object.dict())));
  }
  if (is_indexable(object) && key.is_integer()) {
    const int64_t size = length(object);
    const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
    if (index < 0 || index >= size)
      return Value::undefined(
          fmt::format("the index {} is outside of a {} with {}", key.integer(), object.type_name(), size));
    if (object.is_sequence()) return object.sequence().items[static_cast<size_t>(index)];
    return Value::of_text(slice_text(object.text(), index, index + 1, 1));
  }
  if (key.is_text() && (object.is_namespace() || has_python_attribute(object, key.text())))
    return get_attribute(object, key.text());
  return Value::undefined(fmt::format("a {} has no member {}", object.type_name(), python_repr(key)));
}

Value get_attribute(const Value& object, const std::string& name) {
  object.defined();
  if (object.is_namespace()) {
    const auto& attributes = object.attributes().attributes;
    const auto found = attributes.find(name);
    return found != attributes.end()
               ? found->second
               : Value::undefined(fmt::format("{} has no attribute {}", object.type_name(), name));
  }
  if (has_python_attribute(object, name))
    throw PythonError(fmt::format("{} of a {} is a method; this form only calls methods", name, object.type_name()));
  if (object.is_dict()) {
    if (const Value* found = object.dict().find(std::string_view(name))) return *found;
    return Value::undefined(fmt::format("there is no key \"{}\"; {}", name, keys_of(object.dict())));
  }
  return Value::undefined(fmt::format("a {} has no attribute {}", object.type_name(), name));
}

Value get_slice(const Value& object, const Value* begin, const Value* end, const Value* step) {
  object.defined();
  if (!is_indexable(object)) throw PythonError(fmt::format("a {} has no slices", object.type_name()));
  const auto bounds = slice_bounds(length(object), begin, end, step);
  if (object.is_text()) return Value::of_text(slice_text(object.text(), bounds.begin, bounds.end, bounds.step));
  Items items;
  const auto& all = object.sequence().items;
  for (int64_t i = bounds.begin; bounds.step > 0 ? i < bounds.end : i > bounds.end; i += bounds.step)
    items.push_back(all[static_cast<size_t>(i)]);
  return Value::of_sequence(object.sequence().kind, std::move(items));
}

std::string percent_format(std::string_view format, const Items& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    const size_t begin = at++;
    while (at < format.size() && std::string_view("-+ 0#123456789.").find(format[at]) != std::string_view::npos) ++at;
    if (at >= format.size()) throw PythonError("a % format is cut off");
    const char kind = format[at++];
    std::string flags(format.substr(begin, at - begin - 1));
    if (kind == '%' && flags == "%") {
      out += '%';
      continue;
    }
    if (flags.size() > 8) throw PythonError("this form has no % format that is this wide");
    if (next >= arguments.size()) throw PythonError("a % format has too few values");
    const Value& value = arguments[next++].defined();
    check_text_size(out.size());
    char buffer[1200];
    if ((kind == 's' || kind == 'r') && flags == "%") {
      out += kind == 's' ? python_str(value) : python_repr(value);
    } else if ((kind == 'd' || kind == 'i') && value.is_integer() && flags.find('#') == std::string::npos) {
      std::snprintf(buffer, sizeof buffer, (flags + "lld").c_str(), static_cast<long long>(value.integer()));
      out += buffer;
    } else if (std::string_view("feg").find(kind) != std::string_view::npos && value.is_number() &&
               std::isfinite(value.number())) {
      std::snprintf(buffer, sizeof buffer, (flags + kind).c_str(), value.number());
      out += buffer;
    } else {
      throw PythonError(fmt::format("this form does not print a {} with {}{}", value.type_name(), flags, kind));
    }
  }
  if (next != arguments.size()) throw PythonError("a % format has more values than places");
  return out;
}

}  // namespace athanor::tasks
