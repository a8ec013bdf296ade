#pragma once
// What can go wrong, by whom it is mended, and the macros that say so.
//
// A message carries the numbers and the remedy: "num_heads (12) must divide hidden_size (100); set
// model.hidden_size to a multiple of 12". Assertions are for bugs; an expected absence is std::optional.
// There is one catch, in main: it prints the message on one line and exits with `exit_code()`.

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace athanor {

/// Base of everything we throw. `exit_code()` is what the process ends with: 2 is "your input", 1 is "the world".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int exit_code = 1) : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// The configuration or the command line is wrong.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message, 2) {}
};

/// A document, a shard or a tokenizer is wrong.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(message, 2) {}
};

/// A checkpoint or a model folder is wrong.
class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& message) : Error(message, 2) {}
};

/// Communication failed.
class CommError : public Error {
 public:
  explicit CommError(const std::string& message) : Error(message, 1) {}
};

/// The system refused an operation on a file; `disk_full()` tells the one case that a run survives.
class IoError : public Error {
 public:
  IoError(const std::string& message, int error_number)
      : Error(message, is_for_the_user(error_number) ? 2 : 1), error_number_(error_number) {}
  int error_number() const { return error_number_; }
  bool disk_full() const;

 private:
  /// A path that is not there, not a file or not ours to open, a disk that is full: for the user to mend, unlike one
  /// that fails.
  static bool is_for_the_user(int error_number);

  int error_number_;
};

/// Throws `E` with a formatted message.
template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::vformat(format, fmt::make_format_args(args...)));
}

/// Throws IoError: "<what> <path>: <strerror(errno)>". Call it right after the failed system call.
[[noreturn]] void fail_errno(const std::string& what, const std::string& path);

}  // namespace athanor

#define ATHANOR_CHECK_AS(ErrorType, condition, ...)       \
  do {                                                    \
    if (!(condition)) [[unlikely]]                        \
      ::athanor::fail<::athanor::ErrorType>(__VA_ARGS__); \
  } while (false)

/// User-facing checks: ATHANOR_CHECK(cond, "message with numbers ({}) and the remedy", value).
#define ATHANOR_CHECK(condition, ...) ATHANOR_CHECK_AS(ConfigError, condition, __VA_ARGS__)
#define ATHANOR_CHECK_DATA(condition, ...) ATHANOR_CHECK_AS(DataError, condition, __VA_ARGS__)
#define ATHANOR_CHECK_CHECKPOINT(condition, ...) ATHANOR_CHECK_AS(CheckpointError, condition, __VA_ARGS__)

/// For bugs, on in every build: what fails here is ours, never the user's.
#define ATHANOR_ASSERT(condition)                                                                                     \
  do {                                                                                                                \
    if (!(condition)) [[unlikely]]                                                                                    \
      ::athanor::fail<::athanor::Error>("bug: {}:{}: {} is false; please report it", __FILE__, __LINE__, #condition); \
  } while (false)
