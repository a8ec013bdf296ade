#include "tasks/python_repr.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tasks/python_text.h"

namespace athanor::tasks {
namespace {

using Json = nlohmann::ordered_json;

std::string repr_of_text(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    const char32_t c = take_character(text, byte);
    const auto code = static_cast<uint32_t>(c);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_python_printable(c)) {
      out += text.substr(begin, byte - begin);
    } else {
      out += code <= 0xFF     ? fmt::format("\\x{:02x}", code)
             : code <= 0xFFFF ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
  }
  return out + quote;
}

// A list may hold the same list many times, so that its text is much larger than the values.
void append_repr(std::string& out, const Value& value);

void append_repr_of_items(std::string& out, const Items& items, char open, char close) {
  out += open;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, items[i]);
  }
  if (open == '(' && items.size() == 1) out += ',';
  out += close;
}

void append_repr_of_dict(std::string& out, const Dict& dict) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.members) {
    if (!first) out += ", ";
    append_repr(out, key);
    out += ": ";
    append_repr(out, value);
    first = false;
  }
  out += '}';
}

void append_repr(std::string& out, const Value& value) {
  value.defined();
  check_text_size(out.size());
  if (value.is_text()) {
    out += repr_of_text(value.text());
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_bool()) {
    out += value.boolean() ? "True" : "False";
  } else if (value.is_int()) {
    out += std::to_string(value.integer());
  } else if (value.is_float()) {
    out += python_repr(value.number());
  } else if (value.is_dict()) {
    append_repr_of_dict(out, value.dict());
  } else if (value.is_list()) {
    append_repr_of_items(out, value.sequence().items, '[', ']');
  } else if (value.is_sequence(Sequence::Kind::kTuple)) {
    append_repr_of_items(out, value.sequence().items, '(', ')');
  } else {
    throw PythonError(fmt::format("a {} cannot be printed; turn it into a list or a text first", value.type_name()));
  }
}

void append_json_text(std::string& out, std::string_view text, bool only_ascii) {
  out += '"';
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    const auto code = static_cast<uint32_t>(take_character(text, byte));
    switch (code) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (code < 0x20 || (only_ascii && code >= 0x7F && code <= 0xFFFF)) {
          out += fmt::format("\\u{:04x}", code);
        } else if (only_ascii && code > 0xFFFF) {
          out +=
              fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
        } else {
          out += text.substr(begin, byte - begin);
        }
    }
  }
  out += '"';
}

struct JsonPrinter {
  const JsonStyle& style;
  std::string out;

  void new_line(int depth) {
    if (style.indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(style.indent) * static_cast<size_t>(depth), ' ');
  }
  void comma() { out += style.indent < 0 ? ", " : ","; }

  void print_object(const Json& value, int depth) {
    std::vector<std::pair<std::string, const Json*>> members;  // a search for each would take quadratic time
    for (const auto& [name, member] : value.items()) members.emplace_back(name, &member);
    if (style.sort_keys) std::sort(members.begin(), members.end());
    out += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) comma();
      new_line(depth + 1);
      append_json_text(out, members[i].first, style.only_ascii);
      out += ": ";
      print(*members[i].second, depth + 1);
    }
    if (!members.empty()) new_line(depth);
    out += '}';
  }

  void print_array(const Json& value, int depth) {
    out += '[';
    for (size_t i = 0; i < value.size(); ++i) {
      if (i > 0) comma();
      new_line(depth + 1);
      print(value[i], depth + 1);
    }
    if (!value.empty()) new_line(depth);
    out += ']';
  }

  void print(const Json& value, int depth) {
    if (value.is_object()) return print_object(value, depth);
    if (value.is_array()) return print_array(value, depth);
    if (value.is_string()) return append_json_text(out, value.get_ref<const std::string&>(), style.only_ascii);
    if (!value.is_number_float()) {
      out += value.dump();
      return;
    }
    const double number = value.get<double>();
    out += std::isnan(number)   ? "NaN"
           : std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity")
                                : python_repr(number);
  }
};

// Removes `_` between digits; returns false where Python allows none.
bool drop_underscores(std::string& digits) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] != '_') {
      out += digits[i];
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < digits.size() && std::isalnum(static_cast<unsigned char>(digits[at]));
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return false;
  }
  digits = out;
  return true;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string_view without_sign(std::string_view text, bool& negative) {
  negative = text.starts_with('-');
  return text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
}

}  // namespace

std::string python_repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const std::string sign = text.starts_with('-') ? "-" : "";
  std::string digits;
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  // As repr does: a decimal point for exponents from −4 to 15.
  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = digits.size() > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], fraction, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string python_repr(const Value& value) {
  std::string out;
  append_repr(out, value);
  return out;
}

void check_text_size(size_t bytes) {
  if (bytes > kMaxTextBytes) throw PythonError(fmt::format("a text of more than {} bytes", kMaxTextBytes));
}

std::string python_str(const Value& value) { return value.is_text() ? value.text() : python_repr(value); }

std::string python_json(const nlohmann::ordered_json& value, const JsonStyle& style) {
  JsonPrinter printer{style, {}};
  printer.print(value, 0);
  return std::move(printer.out);
}

std::optional<int64_t> read_int(std::string_view text, int base) {
  bool negative = false;
  std::string digits(without_sign(strip(text), negative));
  if (!is_ascii(digits)) {
    if (!is_digits(digits)) return std::nullopt;
    throw PythonError(fmt::format("this form reads no digits other than 0 to 9 (\"{}\")", text));
  }
  if (digits.size() > 2 && digits[0] == '0') {
    const char kind = static_cast<char>(std::tolower(digits[1]));
    const int own = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (own != 0 && (base == own || base == 0)) {
      digits.erase(0, 2);
      if (digits.starts_with('_')) digits.erase(0, 1);
      base = own;
    }
  }
  if (base == 0) {
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of("0_") != std::string::npos)
      return std::nullopt;
    base = 10;
  }
  if (!drop_underscores(digits) || digits.empty()) return std::nullopt;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (end != digits.data() + digits.size()) return std::nullopt;
  const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (error != std::errc() || number > most)
    throw PythonError(fmt::format("the integer {} needs more than 64 bits", text));
  return negative ? -static_cast<int64_t>(number) : static_cast<int64_t>(number);
}

std::optional<double> read_float(std::string_view text) {
  bool negative = false;
  std::string digits(without_sign(strip(text), negative));
  if (!is_ascii(digits)) {
    for (const auto character : characters(digits))
      if (character.size() > 1 && is_digits(character))
        throw PythonError(fmt::format("this form reads no digits other than 0 to 9 (\"{}\")", text));
    return std::nullopt;
  }
  std::string lower = to_lower(digits);
  double number = 0;
  if (lower == "inf" || lower == "infinity") {
    number = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    number = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (!drop_underscores(digits) || digits.empty()) return std::nullopt;
    if (digits.find_first_not_of("0123456789.eE+-") != std::string::npos || digits[0] == '+' || digits[0] == '-')
      return std::nullopt;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (end != digits.data() + digits.size()) return std::nullopt;
    if (error == std::errc::result_out_of_range)
      number = std::strtod(digits.c_str(), nullptr);
    else if (error != std::errc())
      return std::nullopt;
  }
  return negative ? -number : number;
}

}  // namespace athanor::tasks
