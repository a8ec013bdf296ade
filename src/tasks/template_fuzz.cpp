// Any bytes are a template, or are refused in one line; so is a row, and what ast.literal_eval reads.
//
// An input is a template, and after a zero byte a row as JSON.

#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "tasks/python_literal.h"
#include "tasks/python_repr.h"
#include "tasks/task_rows.h"
#include "tasks/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  using namespace athanor::tasks;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto zero = bytes.find('\0');
  auto row = nlohmann::ordered_json::object();
  const std::string source = bytes.substr(0, zero);
  const auto check = [](const std::exception& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) __builtin_trap();
  };
  try {
    if (zero != std::string::npos) row = RawRow{bytes.substr(zero + 1), "row"}.parse();
  } catch (const DataError& error) {
    check(error);
  }
  try {
    const auto compiled = Template::compile(source, "fuzz");
    const std::string text = compiled.render(row);
    if (find_invalid_utf8(text)) __builtin_trap();
  } catch (const DataError& error) {
    check(error);
  }
  try {
    Template::compile_expression(source, "fuzz").holds(row);
  } catch (const DataError& error) {
    check(error);
  }
  if (find_invalid_utf8(source)) return 0;
  try {
    // What is read is printed, and read again.
    if (const auto value = read_literal(source)) {
      const std::string printed = python_repr(*value);
      if (printed.find("inf") != std::string::npos) return 0;  // a number that is too large prints as a name
      const auto again = read_literal(printed);
      if (!again || python_repr(*again) != python_repr(*value)) __builtin_trap();
    }
  } catch (const PythonError& error) {
    check(error);
  }
  return 0;
}
