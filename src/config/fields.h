#pragma once
// A configuration declares each field once, as data; default, check, help, parser and dump follow from that one line.
//
//   void describe(Fields& f) {
//     f.field("lr", lr, "peak learning rate", positive());
//   }
//
// The visitors read TOML (toml_reader.h), write it and list the names (dump.h), and check values (model_checks.cpp).

#include <fmt/core.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/number_types.h"
#include "base/text.h"
#include "config/choice.h"
#include "config/duration.h"

namespace athanor::inline config {

/// One name for a choice, or the choice written out as a list of names.
using NameOrNames = std::variant<std::string, std::vector<std::string>>;

/// A number, or "auto": the run finds it.
struct CountOrAuto {
  int64_t count = 0;  ///< 0 if it is auto
  bool is_auto = false;

  CountOrAuto() = default;
  CountOrAuto(int64_t n) : count(n) {}  // NOLINT: a number stands for itself
  bool operator==(const CountOrAuto&) const = default;
  bool is_off() const { return !is_auto && count == 0; }
};

/// A condition on a field's value.
template <class T>
struct Check {
  std::string expected;                       ///< completes the message "expected …"
  std::function<bool(const T&)> holds;        ///< empty: every value is allowed
  std::function<T(const T&)> canonical = {};  ///< maps synonyms to one name; empty: the value stays as written
};

inline Check<std::string> one_of(std::vector<std::string> allowed) {
  auto names = allowed;
  std::replace(names.begin(), names.end(), std::string(), std::string("\"\""));
  std::string expected = "one of " + join(names);
  return {std::move(expected), [allowed = std::move(allowed)](const std::string& x) {
            for (const auto& name : allowed) {
              if (x == name) return true;
            }
            return false;
          }};
}
/// A visitor of declared fields: field() is called with each field, and may change its value.
class Fields {
 public:
  virtual ~Fields() = default;
  virtual void field(const char* key, bool& value, const char* help, const Check<bool>& check = {}) = 0;
  virtual void field(const char* key, int64_t& value, const char* help, const Check<int64_t>& check = {}) = 0;
  virtual void field(const char* key, double& value, const char* help, const Check<double>& check = {}) = 0;
  virtual void field(const char* key, std::string& value, const char* help, const Check<std::string>& check = {}) = 0;
  virtual void field(const char* key, std::vector<double>& value, const char* help,
                     const Check<std::vector<double>>& check = {}) = 0;
  virtual void field(const char* key, std::vector<int64_t>& value, const char* help,
                     const Check<std::vector<int64_t>>& check = {}) = 0;
  virtual void field(const char* key, std::vector<std::string>& value, const char* help,
                     const Check<std::vector<std::string>>& check = {}) = 0;
  virtual void field(const char* key, CountOrAuto& value, const char* help, const Check<CountOrAuto>& check = {}) = 0;
  virtual void field(const char* key, NameOrNames& value, const char* help, const Check<NameOrNames>& check = {}) = 0;

  /// Declares a choice, which visitors see as its word, in a text of their own.
  template <class E>
  void field(const char* key, Choice<E>& value, const char* help) {
    std::string word = value.word();
    field(key, word, help, one_of(words_of<E>()));
    value = word;
  }

  /// Declares a sub-table, whose fields `section.describe` declares. Within a table, declare tables and lists after the
  /// plain fields, as TOML requires.
  template <class Section>
  void table(const char* key, Section& section, const char* help) {
    if (!enter(key, help)) return;
    section.describe(*this);
    leave();
  }

  /// Declares a list of tables, [[key]], whose fields `Section::describe` declares.
  template <class Section>
  void list(const char* key, std::vector<Section>& items, const char* help) {
    items.resize(enter_list(key, help, items.size()));
    for (auto& item : items) {
      enter_item();
      item.describe(*this);
      leave();
    }
    if (items.empty() && enter_example()) {
      Section example;
      example.describe(*this);
      leave();
    }
    leave_list();
  }

 protected:
  /// Begins a table. @return false to skip the table.
  virtual bool enter(const char* key, const char* help) = 0;
  /// Ends a table, an item or an example.
  virtual void leave() = 0;
  /// Begins a list that has `size` items. @return the number of items that it shall have.
  virtual size_t enter_list(const char* key, const char* help, size_t size) = 0;
  /// Begins the next item of the list.
  virtual void enter_item() = 0;
  /// Called for an empty list. @return true to visit one example item with default values.
  virtual bool enter_example() { return false; }
  virtual void leave_list() = 0;
};

inline Check<int64_t> at_least(int64_t low) {
  return {"an integer of at least " + std::to_string(low), [low](const int64_t& x) { return x >= low; }};
}
inline std::string to_text(const CountOrAuto& value) {
  return value.is_auto ? "\"auto\"" : std::to_string(value.count);
}
inline Check<CountOrAuto> auto_or_at_least(int64_t low) {
  return {fmt::format("\"auto\" or an integer of at least {}", low),
          [low](const CountOrAuto& x) { return x.is_auto || x.count >= low; }};
}
inline Check<int64_t> between(int64_t low, int64_t high) {
  return {fmt::format("an integer from {} to {}", low, high),
          [low, high](const int64_t& x) { return x >= low && x <= high; }};
}
inline Check<int64_t> between_or_minus_one(int64_t low, int64_t high) {
  return {fmt::format("an integer from {} to {}, or -1 for what is left", low, high),
          [low, high](const int64_t& x) { return (x >= low && x <= high) || x == -1; }};
}
inline Check<std::vector<int64_t>> each_between(int64_t low, int64_t high) {
  return {fmt::format("a list of integers from {} to {}, written [1, 2]", low, high),
          [low, high](const std::vector<int64_t>& list) {
            for (const int64_t x : list) {
              if (x < low || x > high) return false;
            }
            return true;
          }};
}
// NaN fails every range, because each comparison with it is false.
inline Check<double> between(double low, double high) {
  return {fmt::format("a number from {:g} to {:g}", low, high),
          [low, high](const double& x) { return x >= low && x <= high; }};
}
/// Check for values used in fp32 arithmetic, where a value below the smallest normal number would become 0.
inline Check<double> fp32_up_to(double high) {
  return {fmt::format("a number from {:.3g} to {:.3g}, which fp32 holds", FLT_MIN, high),
          [high](const double& x) { return x >= FLT_MIN && x <= high; }};
}
inline Check<double> zero_or_between(double low, double high) {
  return {fmt::format("0, or a number from {:g} to {:g}", low, high),
          [low, high](const double& x) { return x == 0 || (x >= low && x <= high); }};
}
inline Check<double> zero_or_fp32_up_to(double high) {
  return {fmt::format("0, or a number from {:.3g} to {:.3g}, which fp32 holds", FLT_MIN, high),
          [high](const double& x) { return x == 0 || (x >= FLT_MIN && x <= high); }};
}
inline Check<double> zero_minus_one_or_fp32_up_to(double high) {
  return {fmt::format("-1, 0, or a number from {:.3g} to {:.3g}, which fp32 holds", FLT_MIN, high),
          [high](const double& x) { return x == -1 || x == 0 || (x >= FLT_MIN && x <= high); }};
}
inline Check<double> positive() {
  return {"a finite number above 0", [](const double& x) { return std::isfinite(x) && x > 0; }};
}
/// Check for counts that may be written as 1e12: doubles hold whole numbers up to 2^53.
inline Check<double> whole_number_between(double low, double high) {
  return {fmt::format("a whole number from {:g} to {:.3g}, such as 1e12", low, high),
          [low, high](const double& x) { return x >= low && x <= high && std::floor(x) == x; }};
}
inline Check<double> whole_number_up_to(double high) { return whole_number_between(0, high); }
inline Check<double> not_negative() {
  return {"a finite number, 0 or more", [](const double& x) { return std::isfinite(x) && x >= 0; }};
}
inline Check<std::string> duration() {
  return {"a length of time such as \"11h30m\", \"90s\" or \"0\"",
          [](const std::string& text) { return parse_duration(text).has_value(); }};
}
/// Check for a number type, given by its full or its short name; `also` lists other allowed values.
inline Check<std::string> one_type_of(std::vector<std::string> types, const std::vector<std::string>& also = {}) {
  for (const auto& each : also) types.push_back(each);
  Check<std::string> check = one_of(std::move(types));
  check.expected += "; bf16 and fp32 are bfloat16 and float32";
  check.holds = [holds = check.holds](const std::string& x) { return holds(canonical_type_name(x)); };
  check.canonical = canonical_type_name;
  return check;
}
inline Check<std::vector<std::string>> each_one_of(std::vector<std::string> allowed) {
  const std::string example =
      fmt::format(", written [\"{}\"]", allowed[0] + (allowed.size() > 1 ? "\", \"" + allowed[1] : ""));
  const auto single = one_of(std::move(allowed));
  return {"a list of " + single.expected.substr(std::string_view("one of ").size()) + example,
          [single](const std::vector<std::string>& list) {
            for (const auto& item : list) {
              if (!single.holds(item)) return false;
            }
            return true;
          }};
}

}  // namespace athanor::inline config
