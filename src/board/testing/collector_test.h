#pragma once
// For tests: ranks that are child processes with a record on a board, and collectors of nodes that have any name.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "base/testing/folder_test.h"
#include "base/wall_clock.h"
#include "board/board.h"
#include "board/collector.h"
#include "board/report_socket.h"
#include "board/snapshot.h"

namespace athanor::board {

class BoardTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    run_dir_ = folder_ / "run";
    std::filesystem::create_directory(run_dir_);
    shared_ = std::filesystem::temp_directory_path() / ("athanor_board_" + std::to_string(::getpid()));
    std::filesystem::create_directory(shared_);
    options_ = {place_of(shared_, run_dir_, "n1", ::geteuid()), run_dir_, "n1", 0, 4};
  }
  void TearDown() override {
    std::filesystem::remove_all(shared_);
    FolderTest::TearDown();
  }

  NodeReport read() const {
    const int file = ::open(options_.place.memory.c_str(), O_RDWR | O_CLOEXEC);
    const SharedMemory memory(file, options_.place.memory, nullptr);
    ::close(file);
    return snapshot(memory);
  }

  BoardOptions of_rank(int rank) const {
    BoardOptions options = options_;
    options.rank = rank;
    return options;
  }

  // A child process that has a record and waits for a signal. Returns when the record is there.
  pid_t start_rank(int rank, const std::function<void(Publisher)>& publish = {}) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const Board board(of_rank(rank));
      if (publish) publish(board.publisher());
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    return child;
  }

  static void end_rank(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  std::filesystem::path run_dir_, shared_;  // the path of a socket must be short
  BoardOptions options_;
};

inline bool becomes_true(const std::function<bool()>& condition, double limit_s = 120) {
  for (const auto begin = std::chrono::steady_clock::now(); seconds_since(begin) < limit_s;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

// Runs the collector in a child of this test, as `athanor board-collector` does, with a pipe that must not stay open.
class CollectorTest : public BoardTest {
 protected:
  void start() {
    detach();
    EXPECT_TRUE(becomes_true([&] { return ask_collector(options_.place.socket).has_value(); }));
  }

  void detach() {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(::open(options_.place.lock.c_str(), O_RDWR | O_CREAT, 0600), kLockDescriptor);
      ::dup2(pipe[1], 77);
      for (int stream = 0; stream < 3; ++stream) ::dup2(::open("/dev/null", O_RDWR), stream);
      ::_exit(run_collector(options_.place.memory));
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child) << "it detaches itself";
    EXPECT_EQ(status, 0);
    ::close(pipe[1]);
    char byte = 0;
    EXPECT_EQ(::read(pipe[0], &byte, 1), 0) << "a descriptor of its parent is open in the collector";
    ::close(pipe[0]);
  }

  bool has_files() const {
    return std::filesystem::exists(options_.place.memory) || std::filesystem::exists(options_.place.socket) ||
           std::filesystem::exists(options_.place.lock);
  }
  std::filesystem::path file() const { return reports_of(run_dir_) / "n1.json"; }
};

}  // namespace athanor::board
