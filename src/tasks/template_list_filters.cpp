#include "tasks/template_list_filters.h"

#include <fmt/core.h>

#include <algorithm>

#include "tasks/python_repr.h"
#include "tasks/python_text.h"
#include "tasks/template_operators.h"

namespace athanor::tasks {
namespace {

Value lazy(Items items) { return Value::of_sequence(Sequence::Kind::kIterator, std::move(items)); }

// "a.0.b": members of members.
Value member_by_path(const Value& value, const Value& path) {
  if (path.is_integer()) return get_item(value, path);
  if (!path.defined().is_text()) throw PythonError("an attribute is a name or a number");
  Value member = value;
  for (const auto& name : split(path.text(), std::string_view("."))) {
    const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    member = get_item(member, is_number ? Value::of_int(*read_int(name)) : Value::of_text(name));
  }
  return member;
}

Items members_of(const Value& value, const Value* path) {
  Items items = iterate(value);
  if (path && !path->is_none())
    for (auto& item : items) item = member_by_path(item, *path);
  return items;
}

Value without_case(const Value& value, bool case_sensitive) {
  return value.is_text() && !case_sensitive ? Value::of_text(to_lower(value.text())) : value;
}

bool is_less(const Value& left, const Value& right) {
  const auto sign = order(left, right);
  if (!sign) throw PythonError("a NaN has no place in an order");
  return *sign < 0;
}

}  // namespace

Value join_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 2, {"d", "attribute"});
  const std::string separator = arguments.text_or(0, "d", "");
  std::string out;
  bool first = true;
  for (const auto& item : members_of(value, arguments.find(1, "attribute"))) {
    if (!first) out += separator;
    out += python_str(item);
    check_text_size(out.size());
    first = false;
  }
  return Value::of_text(std::move(out));
}

Value map_filter(const Value& value, const Arguments& arguments) {
  Items items = iterate(value);
  if (arguments.positional.empty()) {
    arguments.check(1, 0, {"attribute", "default"});
    const Value* path = arguments.find(0, "attribute");
    if (!path) throw PythonError("map needs a filter or an attribute");
    const Value* otherwise = arguments.find(1, "default");
    for (auto& item : items) {
      item = member_by_path(item, *path);
      if (otherwise && item.is_undefined()) item = *otherwise;
    }
    return lazy(std::move(items));
  }
  const std::string name = arguments.text(0);
  const Arguments rest{"the filter " + name, Items(arguments.positional.begin() + 1, arguments.positional.end()),
                       arguments.keywords};
  for (auto& item : items) item = apply_filter(name, item, rest);
  return lazy(std::move(items));
}

Value select_filter(const Value& value, const Arguments& arguments, bool wanted, bool by_attribute) {
  size_t used = 0;
  const Value* path = nullptr;
  if (by_attribute) {
    if (arguments.positional.empty()) throw PythonError(arguments.callee + " needs an attribute");
    path = &arguments.positional[used++];
  }
  const std::string name = arguments.positional.size() > used ? arguments.text(used) : "";
  Arguments rest{"the test " + name, {}, arguments.keywords};
  if (!name.empty())
    rest.positional.assign(arguments.positional.begin() + static_cast<long>(used) + 1, arguments.positional.end());
  Items kept;
  for (const auto& item : iterate(value)) {
    const Value examined = path ? member_by_path(item, *path) : item;
    if ((name.empty() ? truth(examined) : apply_test(name, examined, rest)) == wanted) kept.push_back(item);
  }
  return lazy(std::move(kept));
}

Value sort_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 3, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = arguments.truth_or(1, "case_sensitive", false);
  const Value* path = arguments.find(2, "attribute");
  if (path && path->is_text() && path->text().find(',') != std::string::npos)
    throw PythonError("this form sorts by one attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& item : iterate(value)) {
    const Value key = path && !path->is_none() ? member_by_path(item, *path) : item;
    keyed.emplace_back(without_case(key.defined(), case_sensitive), item);
  }
  const bool reverse = arguments.truth_or(0, "reverse", false);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? is_less(b.first, a.first) : is_less(a.first, b.first);
  });
  Items sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return Value::of_list(std::move(sorted));
}

Value unique_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 2, {"case_sensitive", "attribute"});
  const bool case_sensitive = arguments.truth_or(0, "case_sensitive", false);
  const Value* path = arguments.find(1, "attribute");
  Dict seen;
  Items kept;
  for (const auto& item : iterate(value)) {
    const Value key = without_case(path && !path->is_none() ? member_by_path(item, *path) : item, case_sensitive);
    if (seen.find(key)) continue;
    seen.set(key, {});
    kept.push_back(item);
  }
  return lazy(std::move(kept));
}

Value extreme_filter(const Value& value, const Arguments& arguments, bool largest) {
  arguments.check(0, 2, {"case_sensitive", "attribute"});
  const bool case_sensitive = arguments.truth_or(0, "case_sensitive", false);
  const Value* path = arguments.find(1, "attribute");
  const Items items = iterate(value);
  if (items.empty()) return Value::undefined(arguments.callee + " got an empty list");
  const auto key = [&](const Value& item) {
    return without_case(path && !path->is_none() ? member_by_path(item, *path) : item, case_sensitive);
  };
  const Value* best = &items[0];
  for (const auto& item : items)
    if (largest ? is_less(key(*best), key(item)) : is_less(key(item), key(*best))) best = &item;
  return *best;
}

Value sum_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 2, {"attribute", "start"});
  const Value* start = arguments.find(1, "start");
  Value total = start ? *start : Value::of_int(0);
  if (total.is_text()) throw PythonError("sum adds no texts");
  for (const auto& item : members_of(value, arguments.find(0, "attribute"))) total = binary_operation("+", total, item);
  return total;
}

Value reverse_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 0);
  if (value.defined().is_text()) {
    const int64_t size = num_characters(value.text());
    return Value::of_text(slice_text(value.text(), size - 1, -1, -1));
  }
  if (value.is_sequence(Sequence::Kind::kIterator)) throw PythonError("reverse takes no generator; add |list");
  Items items = iterate(value);
  std::reverse(items.begin(), items.end());
  return lazy(std::move(items));
}

Value first_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 0);
  const Items items = iterate(value);
  return items.empty() ? Value::undefined("first got an empty list") : items.front();
}

Value last_filter(const Value& value, const Arguments& arguments) {
  arguments.check(0, 0);
  if (value.is_sequence(Sequence::Kind::kIterator)) throw PythonError("last takes no generator; add |list");
  const Items items = iterate(value);
  return items.empty() ? Value::undefined("last got an empty list") : items.back();
}

}  // namespace athanor::tasks
