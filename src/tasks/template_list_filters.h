#pragma once
// Jinja2's filters on sequences.

#include "tasks/template_arguments.h"

namespace athanor::tasks {

Value join_filter(const Value& value, const Arguments& arguments);
Value map_filter(const Value& value, const Arguments& arguments);
Value select_filter(const Value& value, const Arguments& arguments, bool wanted, bool by_attribute);
Value sort_filter(const Value& value, const Arguments& arguments);
Value unique_filter(const Value& value, const Arguments& arguments);
Value extreme_filter(const Value& value, const Arguments& arguments, bool largest);
Value sum_filter(const Value& value, const Arguments& arguments);
Value reverse_filter(const Value& value, const Arguments& arguments);
Value first_filter(const Value& value, const Arguments& arguments);
Value last_filter(const Value& value, const Arguments& arguments);

}  // namespace athanor::tasks
