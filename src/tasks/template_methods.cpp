// The methods of str, list, tuple and dict that templates may call, and the names of those that Python has.

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/text.h"
#include "tasks/python_repr.h"
#include "tasks/python_text.h"
#include "tasks/template_arguments.h"
#include "tasks/template_operators.h"

namespace athanor::tasks {
namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 2;

// The attributes that Python's types have, whether this form can call them or not.
const std::vector<std::string> kTextAttributes{
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill"};
const std::vector<std::string> kListAttributes{"append", "clear", "copy",   "count",   "extend", "index",
                                               "insert", "pop",   "remove", "reverse", "sort"};
const std::vector<std::string> kDictAttributes{"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                               "pop",   "popitem", "setdefault", "update", "values"};
const std::vector<std::string> kNumberAttributes{
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
    "is_integer",       "numerator", "real",       "to_bytes"};

const std::vector<std::string>& attributes_of(const Value& object) {
  static const std::vector<std::string> none;
  if (object.is_text()) return kTextAttributes;
  if (object.is_dict()) return kDictAttributes;
  if (object.is_sequence()) return kListAttributes;
  return object.is_number() ? kNumberAttributes : none;
}

Value list_of(const std::vector<std::string>& texts) {
  Items items;
  for (const auto& text : texts) items.push_back(Value::of_text(text));
  return Value::of_list(std::move(items));
}

using TextMethod = std::function<Value(const std::string&, const Arguments&)>;

Value strip_method(const std::string& text, const Arguments& arguments, Side side) {
  arguments.check(0, 1);
  const Value* removed = arguments.find(0, "");
  if (!removed || removed->is_none()) return Value::of_text(std::string(strip(text, side)));
  return Value::of_text(std::string(strip(text, arguments.text(0), side)));
}

Value split_method(const std::string& text, const Arguments& arguments, bool from_right) {
  arguments.check(0, 2, {"sep", "maxsplit"});
  const int64_t most = arguments.int_or(1, "maxsplit", -1);
  const Value* separator = arguments.find(0, "sep");
  if (!separator || separator->defined().is_none()) {
    if (from_right && most >= 0) throw PythonError("this form has rsplit only with a separator");
    return list_of(split(text, most));
  }
  if (!separator->is_text() || separator->text().empty())
    throw PythonError("split needs a separator that is not empty");
  return list_of(from_right ? rsplit(text, separator->text(), most)
                            : split(text, std::string_view(separator->text()), most));
}

Value find_method(const std::string& text, const Arguments& arguments, bool from_right, bool must_be_there) {
  arguments.check(1, 3);
  const int64_t begin = arguments.int_or(1, "", 0), end = arguments.int_or(2, "", kFar);
  const auto& part = arguments.text(0);
  const int64_t at = from_right ? find_text_from_right(text, part, begin, end) : find_text(text, part, begin, end);
  if (at < 0 && must_be_there)
    throw PythonError(fmt::format("\"{}\" is not in \"{}\"", printable(part), printable(text.substr(0, 100))));
  return Value::of_int(at);
}

Value affix_method(const std::string& text, const Arguments& arguments, bool at_end) {
  arguments.check(1, 1);
  const auto& affix = arguments.positional[0].defined();
  const auto matches = [&](const Value& part) {
    if (!part.is_text()) throw PythonError("startswith and endswith take a str or a tuple of them");
    return at_end ? text.ends_with(part.text()) : text.starts_with(part.text());
  };
  if (!affix.is_sequence(Sequence::Kind::kTuple)) return Value::of_bool(matches(affix));
  const auto& parts = affix.sequence().items;
  return Value::of_bool(std::any_of(parts.begin(), parts.end(), matches));
}

Value join_method(const std::string& text, const Arguments& arguments) {
  arguments.check(1, 1);
  std::string out;
  bool first = true;
  for (const auto& item : iterate(arguments.positional[0])) {
    if (!item.defined().is_text()) throw PythonError(fmt::format("join found a {} among its texts", item.type_name()));
    if (!first) out += text;
    out += item.text();
    check_text_size(out.size());
    first = false;
  }
  return Value::of_text(std::move(out));
}

Value partition_method(const std::string& text, const Arguments& arguments, bool from_right) {
  arguments.check(1, 1);
  const auto& part = arguments.text(0);
  if (part.empty()) throw PythonError("partition needs a separator that is not empty");
  const size_t at = from_right ? text.rfind(part) : text.find(part);
  std::vector<std::string> parts{text, "", ""};
  if (at != std::string::npos) {
    parts = {text.substr(0, at), part, text.substr(at + part.size())};
  } else if (from_right) {
    parts = {"", "", text};
  }
  return Value::of_tuple({Value::of_text(parts[0]), Value::of_text(parts[1]), Value::of_text(parts[2])});
}

// "{} and {1} and {name}": no formats behind a colon.
Value format_method(const std::string& text, const Arguments& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      ++at;
    } else if (c == '}') {
      throw PythonError("format found a } without a {");
    } else if (c != '{') {
      out += c;
    } else {
      const size_t end = text.find('}', at);
      if (end == std::string::npos) throw PythonError("format found a { without a }");
      const std::string name = text.substr(at + 1, end - at - 1);
      const bool is_number = name.find_first_not_of("0123456789") == std::string::npos && name.size() < 4;
      if (name.find_first_of(":!.[{") != std::string::npos)
        throw PythonError(fmt::format("this form has no {{{}}} in format", name));
      const size_t position = !is_number     ? std::numeric_limits<size_t>::max()
                              : name.empty() ? next++
                                             : std::stoul(name);
      const Value* value = arguments.find(position, is_number ? "" : name);
      if (!value) throw PythonError(fmt::format("format has no value for {{{}}}", name));
      out += python_str(*value);
      check_text_size(out.size());
      at = end;
    }
  }
  return Value::of_text(std::move(out));
}

// Methods without arguments.
template <class Compute>
TextMethod plain(Compute compute) {
  return [compute](const std::string& text, const Arguments& arguments) {
    arguments.check(0, 0);
    return compute(text);
  };
}

bool all_spaces(const std::string& text) { return !text.empty() && strip(text).empty(); }

const std::map<std::string, TextMethod>& text_methods() {
  using A = Arguments;
  using S = std::string;
  static const std::map<std::string, TextMethod> methods{
      {"strip", [](const S& t, const A& a) { return strip_method(t, a, Side::kBoth); }},
      {"lstrip", [](const S& t, const A& a) { return strip_method(t, a, Side::kLeft); }},
      {"rstrip", [](const S& t, const A& a) { return strip_method(t, a, Side::kRight); }},
      {"split", [](const S& t, const A& a) { return split_method(t, a, false); }},
      {"rsplit", [](const S& t, const A& a) { return split_method(t, a, true); }},
      {"index", [](const S& t, const A& a) { return find_method(t, a, false, true); }},
      {"rindex", [](const S& t, const A& a) { return find_method(t, a, true, true); }},
      {"find", [](const S& t, const A& a) { return find_method(t, a, false, false); }},
      {"rfind", [](const S& t, const A& a) { return find_method(t, a, true, false); }},
      {"startswith", [](const S& t, const A& a) { return affix_method(t, a, false); }},
      {"endswith", [](const S& t, const A& a) { return affix_method(t, a, true); }},
      {"join", join_method},
      {"format", format_method},
      {"partition", [](const S& t, const A& a) { return partition_method(t, a, false); }},
      {"rpartition", [](const S& t, const A& a) { return partition_method(t, a, true); }},
      {"count",
       [](const S& t, const A& a) {
         a.check(1, 1);
         return Value::of_int(count_text(t, a.text(0)));
       }},
      {"replace",
       [](const S& t, const A& a) {
         a.check(2, 3);
         check_text_size((t.size() + 1) * std::max<size_t>(a.text(1).size(), 1) /
                         std::max<size_t>(a.text(0).size(), 1));
         return Value::of_text(replace_text(t, a.text(0), a.text(1), a.int_or(2, "", -1)));
       }},
      {"removeprefix",
       [](const S& t, const A& a) {
         a.check(1, 1);
         return Value::of_text(t.starts_with(a.text(0)) ? t.substr(a.text(0).size()) : t);
       }},
      {"removesuffix",
       [](const S& t, const A& a) {
         a.check(1, 1);
         return Value::of_text(t.ends_with(a.text(0)) ? t.substr(0, t.size() - a.text(0).size()) : t);
       }},
      {"lower", plain([](const S& t) { return Value::of_text(to_lower(t)); })},
      {"upper", plain([](const S& t) { return Value::of_text(to_upper(t)); })},
      {"capitalize", plain([](const S& t) { return Value::of_text(capitalize(t)); })},
      {"title", plain([](const S& t) { return Value::of_text(to_title(t)); })},
      {"splitlines", plain([](const S& t) { return list_of(split_lines(t)); })},
      {"isdigit", plain([](const S& t) { return Value::of_bool(is_digits(t)); })},
      {"isspace", plain([](const S& t) { return Value::of_bool(all_spaces(t)); })},
      {"islower", plain([](const S& t) { return Value::of_bool(is_lower(t)); })},
      {"isupper", plain([](const S& t) { return Value::of_bool(is_upper(t)); })},
  };
  return methods;
}

Value call_on_sequence(const Sequence& sequence, const std::string& name, const Arguments& arguments) {
  if (name == "count") {
    arguments.check(1, 1);
    return Value::of_int(std::count_if(sequence.items.begin(), sequence.items.end(),
                                       [&](const Value& item) { return equal(item, arguments.positional[0]); }));
  }
  if (name == "index") {
    arguments.check(1, 1);
    for (size_t i = 0; i < sequence.items.size(); ++i)
      if (equal(sequence.items[i], arguments.positional[0])) return Value::of_int(static_cast<int64_t>(i));
    throw PythonError(fmt::format("{} is not in the list {}", python_repr(arguments.positional[0]),
                                  python_repr(Value::of_list(sequence.items)).substr(0, 200)));
  }
  throw PythonError(fmt::format("this form cannot call {} of a list; it has index and count", name));
}

Value call_on_dict(const Dict& dict, const std::string& name, const Arguments& arguments) {
  Items items;
  if (name == "get") {
    arguments.check(1, 2);
    if (const Value* found = dict.find(arguments.positional[0].defined())) return *found;
    return arguments.positional.size() > 1 ? arguments.positional[1] : Value();
  }
  arguments.check(0, 0);
  for (const auto& [key, value] : dict.members) {
    if (name == "keys") items.push_back(key);
    if (name == "values") items.push_back(value);
    if (name == "items") items.push_back(Value::of_tuple({key, value}));
  }
  if (name == "keys" || name == "values" || name == "items")
    return Value::of_sequence(Sequence::Kind::kView, std::move(items));
  throw PythonError(fmt::format("this form cannot call {} of a dict; it has get, keys, values and items", name));
}

}  // namespace

const Value* Arguments::find(size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : keywords)
    if (!name.empty() && key == name) return &value;
  return nullptr;
}

void Arguments::check(size_t least, size_t most, const std::vector<std::string_view>& names) const {
  const size_t given = positional.size() + keywords.size();
  if (given < least || positional.size() > most) throw PythonError(fmt::format("{} got {} arguments", callee, given));
  for (const auto& [key, value] : keywords) {
    const auto at = std::find(names.begin(), names.end(), key);
    if (at == names.end() || static_cast<size_t>(at - names.begin()) < positional.size())
      throw PythonError(fmt::format("this form of {} has no argument {}", callee, key));
  }
}

std::string Arguments::text_or(size_t position, std::string_view name, std::string otherwise) const {
  const Value* value = find(position, name);
  return value ? python_str(*value) : std::move(otherwise);
}

int64_t Arguments::int_or(size_t position, std::string_view name, int64_t otherwise) const {
  const Value* value = find(position, name);
  if (!value) return otherwise;
  if (!value->defined().is_integer())
    throw PythonError(fmt::format("{} takes an int, not a {}", callee, value->type_name()));
  return std::clamp(value->integer(), -kFar, kFar);
}

bool Arguments::truth_or(size_t position, std::string_view name, bool otherwise) const {
  const Value* value = find(position, name);
  return value ? truth(*value) : otherwise;
}

const std::string& Arguments::text(size_t position) const {
  if (position >= positional.size()) throw PythonError(fmt::format("{} got too few arguments", callee));
  const Value& value = positional[position].defined();
  if (!value.is_text()) throw PythonError(fmt::format("{} takes a str, not a {}", callee, value.type_name()));
  return value.text();
}

bool has_python_attribute(const Value& object, std::string_view name) {
  if (name.starts_with("__")) return true;
  const auto& names = attributes_of(object);
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value call_method(const Value& object, const std::string& name, const Arguments& arguments) {
  object.defined();
  if (object.is_text()) {
    const auto found = text_methods().find(name);
    if (found != text_methods().end()) return found->second(object.text(), arguments);
    std::vector<std::string> names;
    for (const auto& [known, method] : text_methods()) names.push_back(known);
    throw PythonError(fmt::format("this form cannot call {} of a str{}", name, did_you_mean(name, names)));
  }
  if (object.is_dict()) return call_on_dict(object.dict(), name, arguments);
  if (object.is_list() || object.is_sequence(Sequence::Kind::kTuple))
    return call_on_sequence(object.sequence(), name, arguments);
  throw PythonError(fmt::format("this form cannot call {} of a {}", name, object.type_name()));
}

}  // namespace athanor::tasks
