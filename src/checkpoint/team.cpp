#include "checkpoint/team.h"

#include <cerrno>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/files.h"

namespace athanor::inline checkpoint {
namespace {

using nlohmann::json;

// Turns an exception of a library into one of ours: errors of the system become IoErrors, which cost a checkpoint and
// not the run.
void run(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error&) {
    throw;
  } catch (const std::filesystem::filesystem_error& error) {
    throw io_error_of(error);
  } catch (const std::system_error& error) {
    throw IoError(error.what(), error.code().value());
  } catch (const std::bad_alloc&) {
    throw IoError("not enough memory for a checkpoint's work", ENOMEM);
  } catch (const std::exception& error) {
    throw Error(std::string("unexpected: ") + error.what());
  }
}

// Returns the exception of `act` as text, so that another process can throw it; "" if there was none.
std::string failure_of(const std::function<void()>& act) {
  // A path in a message may contain any bytes.
  const auto text = [](const json& failure) { return failure.dump(-1, ' ', false, json::error_handler_t::replace); };
  try {
    run(act);
  } catch (const IoError& error) {
    return text({{"message", error.what()}, {"errno", error.error_number()}});
  } catch (const NumbersError& error) {
    return text({{"message", error.what()}, {"exit_code", error.exit_code()}, {"tensor", error.tensor()}});
  } catch (const Error& error) {
    return text({{"message", error.what()}, {"exit_code", error.exit_code()}});
  }
  return "";
}

void throw_failure(const std::string& text) {
  if (text.empty()) return;
  const json failure = json::parse(text);
  const auto message = failure.at("message").get<std::string>();
  if (failure.contains("errno")) throw IoError(message, failure.at("errno").get<int>());
  const int exit_code = failure.at("exit_code").get<int>();
  if (failure.contains("tensor")) throw NumbersError(message, failure.at("tensor").get<std::string>(), exit_code);
  throw Error(message, exit_code);
}

}  // namespace

void Team::on_first(const std::function<void()>& act) const {
  if (size == 1) return run(act);
  throw_failure(broadcast(is_first() ? failure_of(act) : ""));
}

std::string Team::from_first(const std::function<std::string()>& compute) const {
  std::string text;
  on_first([&] { text = compute(); });
  return size == 1 ? text : broadcast(text);
}

std::vector<std::string> Team::texts_on_first(const std::string& own) const {
  return size == 1 ? std::vector<std::string>{own} : gather(own);
}

void Team::on_all(const std::function<void()>& act) const {
  if (size == 1) return run(act);
  std::string first_failure;
  for (const std::string& failure : gather(failure_of(act))) {
    if (first_failure.empty()) first_failure = failure;
  }
  throw_failure(broadcast(first_failure));
}

}  // namespace athanor::inline checkpoint
