#include "board/stacks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <thread>

#include "base/error.h"
#include "base/own_folder.h"
#include "base/testing/folder_test.h"
#include "board/own_stack.h"
#include "board/process_state.h"

namespace athanor::board {

// It has a name that a stack shows: it is in no anonymous namespace, and is called through a pointer.
extern "C" void athanor_test_waits_here() {
  while (true) ::usleep(1000);
}

namespace {

class Stacks : public FolderTest {
 protected:
  // A child that waits in athanor_test_waits_here. Returns when it is there.
  pid_t start(bool answers) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      if (answers) write_own_stack_when_asked(memory_);
      void (*volatile wait)() = &athanor_test_waits_here;
      [[maybe_unused]] const auto written = ::write(ready[1], "x", 1);
      wait();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    children_.push_back(child);
    return child;
  }
  void TearDown() override {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    FolderTest::TearDown();
  }

  std::filesystem::path memory_ = folder_ / "board";
  std::vector<pid_t> children_;
};

TEST_F(Stacks, AProcessThatNoOtherMayReadWritesItsOwnAndContinues) {
  const pid_t child = start(true);
  for (int time = 0; time < 3; ++time) {
    const RankStack stack = read_stack_of(5, child, "", memory_);
    EXPECT_EQ(stack.how, "signal");
    EXPECT_EQ(stack.rank, 5);
    EXPECT_SAYS(stack.text, "  #0 ");
    EXPECT_SAYS(stack.text, "main");
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "the file is removed";
  }
  EXPECT_EQ(state_of_process(child, start_of_process(child)), ProcessState::kRunning);
}

// A call into a library goes through a stub of the linker, about which nothing tells who called it.
TEST_F(Stacks, OfAProcessThatCallsIntoLibrariesAlwaysHaveMain) {
  const auto reader = running_program().parent_path() / "athanor-stacks";
  if (!std::filesystem::exists(reader)) GTEST_SKIP() << "the build had no libdw";
  const pid_t child = ::fork();
  if (child == 0) {
    volatile int letter = 'A';
    while (true) letter = ::tolower(letter);
  }
  children_.push_back(child);
  for (int time = 0; time < 40; ++time) {
    const RankStack stack = read_stack_of(0, child, reader, memory_);
    if (stack.how != "debugger") GTEST_SKIP() << "no process may trace another here: " << stack.text;
    ASSERT_NE(stack.text.find("main"), std::string::npos) << stack.text;
  }
  EXPECT_EQ(state_of_process(child, start_of_process(child)), ProcessState::kRunning);
}

TEST_F(Stacks, OneThatEndsMeanwhileIsReportedAsThat) {
  const pid_t child = start(true);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const char* reader : {"", "/bin/true"}) {  // one that prints nothing: its process ended before it was stopped
    const RankStack stack = read_stack_of(0, child, reader, memory_);
    EXPECT_EQ(stack.how, "none");
    EXPECT_SAYS(stack.text, "its process ended while it was read");
  }
}

TEST_F(Stacks, OneThatIsStoppedOrDoesNotAnswerIsReportedAsThat) {
  const pid_t stopped = start(true), deaf = start(false);
  ::kill(stopped, SIGSTOP);
  ::waitpid(stopped, nullptr, WUNTRACED);
  const RankStack first = read_stack_of(0, stopped, "", memory_), second = read_stack_of(1, deaf, "/nowhere", memory_);
  EXPECT_EQ(first.how, "none");
  EXPECT_SAYS(first.text, "the process is stopped, so that it cannot write its own: all that is known is its record");
  EXPECT_EQ(second.how, "none");
  EXPECT_SAYS(second.text, "lets no other process read it, and the process did not write its own within 2 s");
  EXPECT_EQ(state_of_process(deaf, start_of_process(deaf)), ProcessState::kRunning) << "the signal ended it";
}

TEST_F(Stacks, AFileOfAnotherProcessIsNotOverwritten) {
  const pid_t child = start(true);
  const auto file = own_stack_file(memory_, child);
  std::filesystem::create_directory(file);  // what no handler can replace
  EXPECT_EQ(ask_for_own_stack(memory_, child, std::chrono::milliseconds(200)), std::nullopt);
  EXPECT_EQ(state_of_process(child, start_of_process(child)), ProcessState::kRunning);
}

TEST(StackTexts, WhatACollectorAnswersIsWhatIsRead) {
  const std::vector<RankStack> stacks{{0, 17, "debugger", "thread 17\n  #0 f (a.so)\n"}, {3, 19, "none", "\xff"}};
  const auto read = parse_stacks(stacks_to_json(stacks));
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].text, stacks[0].text);
  EXPECT_EQ(read[1].how, "none");
  for (const char* text : {"", "{}", "[1]", R"({"format": 2, "stacks": []})", R"({"format": 1, "stacks": [{}]})"})
    EXPECT_THROW(parse_stacks(text), DataError) << text;
}

}  // namespace
}  // namespace athanor::board
