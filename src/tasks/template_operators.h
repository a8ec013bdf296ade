#pragma once
// Python's operators on values, and Jinja's access to members.

#include <string>
#include <string_view>

#include "tasks/value.h"

namespace athanor::tasks {

/// left name right, for + - * / // % **. @throws PythonError for types that have no such operation, a division by zero,
/// and results that need more than 64 bits.
Value binary_operation(std::string_view name, const Value& left, const Value& right);
/// left name right, for == != < <= > >= in and "not in".
bool compare_values(std::string_view name, const Value& left, const Value& right);
Value negate(const Value& value);
Value positive(const Value& value);

/// object[key]; undefined if there is no such member.
Value get_item(const Value& object, const Value& key);
/// object.name; undefined if there is no such member. @throws PythonError for a method that is not called.
Value get_attribute(const Value& object, const std::string& name);
/// object[begin:end:step]; null where nothing stands.
Value get_slice(const Value& object, const Value* begin, const Value* end, const Value* step);

/// format % arguments, for %s %d %i %f %e %g %x %c %r and %%.
std::string percent_format(std::string_view format, const Items& arguments);

/// The longest list that a template may make.
inline constexpr int64_t kMaxTemplateItems = int64_t{1} << 20;

}  // namespace athanor::tasks
