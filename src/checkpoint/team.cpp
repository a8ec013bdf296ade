#include "checkpoint/team.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace athanor {
namespace {

using nlohmann::json;

// What `act` threw, so that another process can throw it; "" if nothing.
std::string failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const IoError& error) {
    return json{{"message", error.what()}, {"errno", error.error_number()}}.dump();
  } catch (const Error& error) {
    return json{{"message", error.what()}, {"exit_code", error.exit_code()}}.dump();
  }
  return "";
}

void throw_failure(const std::string& text) {
  if (text.empty()) return;
  const json failure = json::parse(text);
  const auto message = failure.at("message").get<std::string>();
  if (failure.contains("errno")) throw IoError(message, failure.at("errno").get<int>());
  throw Error(message, failure.at("exit_code").get<int>());
}

}  // namespace

void Team::on_first(const std::function<void()>& act) const {
  if (size == 1) return act();
  throw_failure(hear_first(is_first() ? failure_of(act) : ""));
}

void Team::on_all(const std::function<void()>& act) const {
  if (size == 1) return act();
  std::string first_failure;
  for (const std::string& failure : tell_first(failure_of(act))) {
    if (first_failure.empty()) first_failure = failure;
  }
  throw_failure(hear_first(first_failure));
}

}  // namespace athanor
