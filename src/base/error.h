#pragma once
// Exceptions, by who has to act on them, and the macros that throw them.
//
// A message carries the numbers and the remedy: "num_heads (12) must divide hidden_size (100); set
// model.hidden_size to a multiple of 12". Assertions are for bugs; an expected absence is std::optional.
// Errors that end the process are caught in main, or in run/in_world.h while ranks communicate. Both print the
// message on one line and exit with the code that base/failure.h derives from `exit_code()`.

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "base/exit_codes.h"

namespace athanor {

/// Base of all exceptions of this project. `exit_code()` is the code that the process ends with (base/exit_codes.h),
/// unless a training run has begun, which may change it (base/failure.h).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int exit_code = exit_code::kUnforeseen)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// The configuration or the command line is wrong.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(message, exit_code::kInput) {}
};

/// A document, a shard or a tokenizer is wrong.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(message, exit_code::kInput) {}
};

/// A checkpoint or a model folder is wrong.
class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& message) : Error(message, exit_code::kInput) {}
};

/// Communication failed.
class CommError : public Error {
 public:
  explicit CommError(const std::string& message) : Error(message, exit_code::kCollective) {}
};

/// A loss or a gradient is not finite.
class NumbersError : public Error {
 public:
  /// @param tensor  the first parameter whose gradient is not finite, or else the place where the first such value came
  ///                up; "" if neither is known.
  /// @param rank, host  the rank at fault, or where the first such value came up; −1 and "" if that is not known.
  NumbersError(const std::string& message, std::string tensor, int exit_code = exit_code::kNumbersEverywhere,
               int rank = -1, std::string host = "")
      : Error(message, exit_code), tensor_(std::move(tensor)), rank_(rank), host_(std::move(host)) {}
  const std::string& tensor() const { return tensor_; }
  int rank() const { return rank_; }
  const std::string& host() const { return host_; }

 private:
  std::string tensor_;
  int rank_;
  std::string host_;
};

/// The system refused an operation on a file. A run that meets one while it saves continues without that save.
class IoError : public Error {
 public:
  IoError(const std::string& message, int error_number)
      : Error(message, is_for_the_user(error_number) ? exit_code::kInput : exit_code::kIo),
        error_number_(error_number) {}
  /// Returns the errno.
  int error_number() const { return error_number_; }
  /// True if the disk or the user's quota is full.
  bool disk_full() const;

 private:
  /// True for errors that the user can correct: a path that does not exist, is not a file or may not be opened, or a
  /// full disk (but not a failing one). This holds before a run has begun; later, errors of its files count as failed
  /// I/O (base/failure.h).
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

/// User-facing checks: ATHANOR_CHECK(cond, "message with numbers ({}) and the remedy", value) throws ConfigError, the
/// other two throw DataError and CheckpointError.
#define ATHANOR_CHECK(condition, ...) ATHANOR_CHECK_AS(ConfigError, condition, __VA_ARGS__)
#define ATHANOR_CHECK_DATA(condition, ...) ATHANOR_CHECK_AS(DataError, condition, __VA_ARGS__)
#define ATHANOR_CHECK_CHECKPOINT(condition, ...) ATHANOR_CHECK_AS(CheckpointError, condition, __VA_ARGS__)

/// Checks for bugs, active in every build: throws Error, which here is an error of the program, never of the user.
#define ATHANOR_ASSERT(condition)                                                                                     \
  do {                                                                                                                \
    if (!(condition)) [[unlikely]]                                                                                    \
      ::athanor::fail<::athanor::Error>("bug: {}:{}: {} is false; please report it", __FILE__, __LINE__, #condition); \
  } while (false)
