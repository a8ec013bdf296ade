#pragma once
// The output of programs goes to the terminal and into a log, each stream as it came, without a shell.
//
// The programs write into two pipes. What comes is written to the log at once, and to the terminal as fast as that
// takes it. A terminal that stands still (Ctrl-S, a pager) stops no program for long if there is a log: after some
// seconds, what a mebibyte does not hold is only in the log.

#include <chrono>
#include <filesystem>
#include <string>

#include "launch/child.h"

namespace athanor::launch {

class OutputTee {
 public:
  static constexpr std::chrono::milliseconds kPatience{5000};
  enum class Log {
    kNone,   ///< only the terminal gets the output, and a program waits for it
    kLater,  ///< kept in memory until log_to is called
  };
  /// @param output, errors  descriptors that get what the programs write to their two streams.
  /// @param patience  with a log, for how long a terminal that takes nothing is waited for.
  explicit OutputTee(Log log, int output = 1, int errors = 2, std::chrono::milliseconds patience = kPatience);
  ~OutputTee();
  OutputTee(const OutputTee&) = delete;
  OutputTee& operator=(const OutputTee&) = delete;

  /// What programs are started with.
  Streams streams() const { return {-1, output_.pipe.write, errors_.pipe.write}; }
  /// Call it when all programs are started: their ends are then known.
  void are_started();

  /// Opens the log, and writes all that has come so far. If it cannot be written, there is a warning, and the programs
  /// continue without it.
  void log_to(const std::filesystem::path& file);

  /// Moves what has come, and waits for more until `at_most` has passed or `other` can be read.
  void move(int other, std::chrono::milliseconds at_most);
  /// Moves the rest when all programs have ended. Processes that they have left may hold the pipes: what comes later
  /// than a moment is not waited for. A terminal is waited for until a signal comes that is not SIGCHLD (process.h);
  /// with a log, for the patience at most.
  void finish();

  /// When output came last; at first, when this was made.
  std::chrono::steady_clock::time_point last_output() const { return last_output_; }

 private:
  struct Channel {
    Pipe pipe;
    int terminal = -1;
    bool owns_terminal = false;
    bool never_waits = false;                     // a write of any size returns at once
    std::chrono::steady_clock::time_point taken;  // when the terminal took something last
    std::string pending;                          // for the terminal
    size_t skipped = 0;                           // bytes that only the log has
    bool is_gone = false;                         // the terminal has no reader any more
  };
  static void open_terminal(Channel& channel, int descriptor);
  bool may_read(const Channel& channel) const;
  bool read_from(Channel& channel);
  void show(Channel& channel);
  void add_to_log(const char* data, size_t size);
  bool poll_once(int other, int wait_ms);

  Channel output_, errors_;
  std::chrono::milliseconds patience_;
  bool keeps_;  // in kept_, for a log that is opened later
  std::string kept_;
  int log_ = -1;
  bool ends_ = false;  // the programs have ended
  std::chrono::steady_clock::time_point last_output_ = std::chrono::steady_clock::now();
};

}  // namespace athanor::launch
