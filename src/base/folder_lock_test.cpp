#include "base/folder_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/files.h"

namespace athanor::folder_lock_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class FolderLockTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }

  std::string refusal() {
    try {
      const FolderLock second(folder_, quick_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  /// Writes a lease as a holder on another machine leaves it.
  void write_lease(const std::string& host, int64_t beat) {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "new") << "host " << host << "\npid 4711\nstarted 1\nboot_id other\npid_namespace pid:[1]\n"
                                   << "interval_ms 40\nbeat " << beat << "\n";
    fs::rename(folder_ / "new", folder_ / "lock");
  }
  /// Starts a process that holds the folder until it is killed.
  pid_t start_holder() {
    int ready[2];
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const FolderLock held(folder_);
      [[maybe_unused]] const ssize_t put = ::write(ready[1], "x", 1);
      ::pause();
      ::_exit(1);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }

  fs::path root_ = fs::path(testing::TempDir()) / ("athanor_lock_" + std::to_string(::getpid()));
  fs::path folder_ = root_ / "runs" / "one";
  FolderLockOptions quick_{.interval = 40ms, .patience = 5};
};

// Simulates a file system that refuses locks, for every process that is started while the object lives.
class WithoutLocks {
 public:
  WithoutLocks() { ::setenv("ATHANOR_FAULT", "lock.take:eio@1+", 1); }
  ~WithoutLocks() { ::unsetenv("ATHANOR_FAULT"); }
};

TEST_F(FolderLockTest, TheSecondIsRefusedAndToldWhoHoldsIt) {
  FolderLock first(folder_);
  EXPECT_FALSE(first.is_lease());
  const std::string said = refusal();
  EXPECT_NE(said.find("process " + std::to_string(::getpid()) + " on "), std::string::npos) << said;
  EXPECT_NE(said.find("runs/one"), std::string::npos) << said;
  first.check_held();
}

TEST_F(FolderLockTest, OneThatWasRemovedIsTakenAgain) {
  FolderLock lock(folder_);
  fs::remove(folder_ / "lock");
  lock.check_held();
  EXPECT_NE(refusal().find("process " + std::to_string(::getpid()) + " on "), std::string::npos);
  lock.check_held();
}

TEST_F(FolderLockTest, OneThatWasRemovedAndTakenByAnotherEndsTheFirst) {
  FolderLock lock(folder_);
  fs::remove(folder_ / "lock");
  std::ofstream(folder_ / "lock") << "host node7\npid 4711\nstarted 1\n";
  try {
    lock.check_held();
    ADD_FAILURE() << "two runs in one folder";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("process 4711 on node7 has taken over"), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(fs::exists(folder_ / "lock"));
}

TEST_F(FolderLockTest, ALinkToNothingIsNamed) {
  fs::create_directories(folder_);
  fs::create_symlink(root_ / "nowhere" / "lock", folder_ / "lock");
  EXPECT_NE(refusal().find("is a link to nothing"), std::string::npos) << refusal();
}

TEST_F(FolderLockTest, WhatItMadeGoesWithItAndWhatWasThereStays) {
  fs::create_directories(root_);
  { FolderLock lock(folder_); }
  EXPECT_TRUE(fs::exists(root_));
  EXPECT_FALSE(fs::exists(root_ / "runs"));
  fs::create_directories(folder_);
  { FolderLock lock(folder_); }
  EXPECT_TRUE(fs::is_empty(folder_));
  {
    FolderLock lock(folder_);
    std::ofstream(folder_ / "a") << "b";
  }
  EXPECT_TRUE(fs::exists(folder_ / "a"));
}

TEST_F(FolderLockTest, AKilledHoldersFolderIsFree) {
  const pid_t holder = start_holder();
  const std::string said = refusal();
  EXPECT_NE(said.find("process " + std::to_string(holder) + " on "), std::string::npos) << said;
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_TRUE(fs::exists(folder_ / "lock"));
  EXPECT_EQ(refusal(), "");
}

// Each test runs in its own process, since a process reads its faults only once.
class FolderLeaseTest : public FolderLockTest {
 protected:
  void SetUp() override {
    FolderLockTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that reads its environment anew
  }
  template <class Act>
  void without_locks(Act act) {
    const WithoutLocks without;
    const auto act_and_end = [&] {
      act();
      TearDown();
      std::exit(HasFailure() ? 1 : 0);
    };
    EXPECT_EXIT(act_and_end(), testing::ExitedWithCode(0), "");
  }
};

TEST_F(FolderLeaseTest, WithoutLocksTheSecondIsRefusedAllTheSame) {
  without_locks([&] {
    FolderLock first(folder_, quick_);
    EXPECT_TRUE(first.is_lease());
    EXPECT_NE(refusal().find("process " + std::to_string(::getpid()) + " on "), std::string::npos);
  });
}

TEST_F(FolderLeaseTest, ALeaseOfAProcessThatIsGoneIsTakenOver) {
  without_locks([&] {
    ProcessIdentity gone = ProcessIdentity::own();
    fs::create_directories(folder_);
    std::ofstream(folder_ / "lock") << "host " << gone.host << "\npid " << gone.pid << "\nstarted " << gone.started - 1
                                    << "\nboot_id " << gone.boot_id << "\npid_namespace " << gone.pid_namespace << "\n";
    FolderLock lock(folder_, quick_);
    lock.check_held();
    EXPECT_NE(read_file(folder_ / "lock").find("pid " + std::to_string(::getpid())), std::string::npos);
  });
}

TEST_F(FolderLeaseTest, ALeaseThatWasRemovedIsWrittenAgain) {
  without_locks([&] {
    FolderLock lock(folder_, quick_);
    fs::remove(folder_ / "lock");
    for (int i = 0; i < 500 && !fs::exists(folder_ / "lock"); ++i) std::this_thread::sleep_for(10ms);
    EXPECT_NE(refusal().find("process " + std::to_string(::getpid()) + " on "), std::string::npos);
  });
}

TEST_F(FolderLeaseTest, ALeaseOfAnotherMachineIsTakenOverOnceItHasStoodStillForLong) {
  without_locks([&] {
    write_lease("node7", 3);
    const auto start = std::chrono::steady_clock::now();
    FolderLock lock(folder_, quick_);
    EXPECT_GE(std::chrono::steady_clock::now() - start, 5 * 40ms);
    lock.check_held();
  });
}

TEST_F(FolderLeaseTest, ALeaseThatIsRenewedIsRefusedWhateverItsClock) {
  without_locks([&] {
    write_lease("node7", 3);
    std::jthread renews([&](const std::stop_token& stop) {
      for (int64_t beat = 4; !stop.stop_requested(); ++beat) {
        std::this_thread::sleep_for(20ms);
        write_lease("node7", beat);
      }
    });
    EXPECT_NE(refusal().find("process 4711 on node7"), std::string::npos);
  });
}

TEST_F(FolderLeaseTest, WhoeverLostItsLeaseIsToldWhoHasIt) {
  without_locks([&] {
    FolderLock lock(folder_, quick_);
    fs::remove(folder_ / "lock");
    write_lease("node7", 1);
    std::string said;
    for (int i = 0; i < 200 && said.empty(); ++i) {
      std::this_thread::sleep_for(20ms);
      try {
        lock.check_held();
      } catch (const IoError& error) {
        said = error.what();
      }
    }
    EXPECT_NE(said.find("process 4711 on node7 has taken over"), std::string::npos) << said;
  });
}

TEST_F(FolderLeaseTest, ALeaseIsRenewedWhileItIsHeld) {
  without_locks([&] {
    FolderLock lock(folder_, quick_);
    const std::string first = read_file(folder_ / "lock");
    std::string later = first;
    for (int i = 0; i < 200 && later == first; ++i) {
      std::this_thread::sleep_for(20ms);
      later = read_file(folder_ / "lock");
    }
    EXPECT_NE(later, first);
  });
}

}  // namespace
}  // namespace athanor::folder_lock_test
