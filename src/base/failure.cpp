#include "base/failure.h"

#include <fmt/core.h>

#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "base/told_error.h"

namespace athanor {

namespace {

constexpr const char* kOutOfMemory = "out of memory; a smaller train.micro_batch_size or model needs less";

// libtorch has its own exception for a device's memory and none for the host's, and this room knows neither. So the
// text of the message decides.
bool tells_of_memory(std::string_view text) {
  for (const char* words : {"out of memory", "can't allocate memory", "not enough memory", "no memory for"})
    if (text.find(words) != std::string_view::npos) return true;
  return false;
}

// fmt::print reports so what it could not write.
bool is_of_disk(const std::error_code& code) {
  return code == std::errc::no_space_on_device || code == std::errc::io_error;
}

int code_in_run(int code, bool in_run) { return in_run && code == exit_code::kInput ? exit_code::kIo : code; }

}  // namespace

Failure describe_failure(const std::exception_ptr& exception, bool in_run) {
  try {
    std::rethrow_exception(exception);
  } catch (const ConfigError& error) {
    return {error.what(), error.exit_code()};
  } catch (const NumbersError& error) {
    return {error.what(), error.exit_code(), error.tensor(), error.rank(), error.host()};
  } catch (const ToldError& error) {
    return {.message = error.what(), .exit_code = error.exit_code(), .is_told = true};
  } catch (const MissingRanks& error) {
    return {.message = error.what(), .exit_code = error.exit_code(), .missing = error.ranks()};
  } catch (const Error& error) {
    return {error.what(), code_in_run(error.exit_code(), in_run)};
  } catch (const std::bad_alloc&) {
    return {kOutOfMemory, exit_code::kMemory};
  } catch (const std::filesystem::filesystem_error& error) {
    const IoError same = io_error_of(error);
    return {same.what(), code_in_run(same.exit_code(), in_run)};
  } catch (const std::system_error& error) {
    if (!is_of_disk(error.code())) return {error.what(), exit_code::kUnforeseen};
    const IoError same("cannot write to standard output: " + error.code().message(), error.code().value());
    return {same.what(), code_in_run(same.exit_code(), in_run)};
  } catch (const std::exception& error) {
    if (!tells_of_memory(error.what())) return {error.what(), exit_code::kUnforeseen};
    return {fmt::format("{} ({})", kOutOfMemory, first_line(error.what())), exit_code::kMemory};
  } catch (...) {
    return {"something other than an exception was thrown", exit_code::kUnforeseen};
  }
}

std::string failure_line(const Failure& failure, const Launched& me, const std::string& host, int64_t step) {
  std::string line = me.size > 1 ? fmt::format("rank {} ({}): ", me.rank, host) : "";
  const std::string at_step = fmt::format("step {}:", step);
  if (step > 0 && !failure.message.starts_with(at_step)) line += at_step + " ";
  return line + failure.message;
}

}  // namespace athanor
