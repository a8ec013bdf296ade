// Any bytes are a rule, or are refused in one line; a rule is decided with any numbers.

#include <string>

#include "base/error.h"
#include "tasks/score_rule.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::vector<tasks::RuleSubject> subjects = {{"a", {{"acc"}, {"f1", true, false}}, 0.25}, {"a.b", {}, {}}};
  try {
    const auto rule = tasks::parse_score_rule(text, subjects, "fuzz");
    tasks::decide(rule, {.value = 0.5, .standard_error = 0.1, .earlier = {0.1, 0.2}, .step = 3, .tokens = 4});
    tasks::decide(rule, {.value = 0.5});
  } catch (const ConfigError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) __builtin_trap();
  }
  return 0;
}
