#include "launch/output_tee.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "launch/process.h"
#include "launch/testing/recorded_machine.h"

namespace athanor::launch {
namespace output_tee_test {

class Tee : public RecordedMachine {
 protected:
  // Runs lines of a shell whose two streams end in the files "out" and "err", and returns the exit code.
  int run(const std::string& script, OutputTee::Log log, bool has_log_at_end = true) {
    const int out = ::open(path("out").c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    const int err = ::open(path("err").c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    const WaitedSignals signals;
    OutputTee tee(log, out, err);
    const int code = run_programs({{{"/bin/sh", "-c", script}}}, signals, {.tee = &tee}).exit_code;
    if (has_log_at_end) tee.log_to(path("log"));
    ::close(out);
    ::close(err);
    return code;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string sorted(std::string text) {
    std::ranges::sort(text);
    return text;
  }
};

TEST_F(Tee, BothStreamsAreShownApartAndLoggedTogetherByteForByte) {
  ASSERT_EQ(run(R"(printf 'a\0b\n'; printf '\033[1mc' >&2; exit 7)", OutputTee::Log::kLater), 7);
  EXPECT_EQ(read_file(path("out")), std::string("a\0b\n", 4));
  EXPECT_EQ(read_file(path("err")), "\033[1mc");
  EXPECT_EQ(sorted(read_file(path("log"))), sorted(std::string("a\0b\n\033[1mc", 9)));
}

TEST_F(Tee, NothingOfALargeOutputIsLost) {
  constexpr size_t kLines = 300'000;  // two mebibytes and more: several times what a pipe holds and what may wait
  ASSERT_EQ(run(fmt::format("seq 1 {}", kLines), OutputTee::Log::kLater), 0);
  std::string expected;
  for (size_t i = 1; i <= kLines; ++i) expected += std::to_string(i) + "\n";
  EXPECT_TRUE(read_file(path("log")) == expected);
  EXPECT_TRUE(read_file(path("out")) == expected);
}

TEST_F(Tee, ATerminalThatStandsStillStopsNoProgramAndTheLogHasAll) {
  Pipe still;  // it has no reader
  const WaitedSignals signals;
  OutputTee tee(OutputTee::Log::kLater, still.write, still.write, std::chrono::milliseconds(50));
  tee.log_to(path("log"));
  const auto end = run_programs({{{"/bin/sh", "-c", "seq 1 500000; echo the end"}}}, signals, {.tee = &tee});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_TRUE(read_file(path("log")).ends_with("500000\nthe end\n"));
}

TEST_F(Tee, ASlowReaderLosesNothing) {
  Pipe slow;
  ::fcntl(slow.read, F_SETPIPE_SZ, 4096);
  std::string got;
  std::thread reader;
  {
    const WaitedSignals signals;
    OutputTee tee(OutputTee::Log::kLater, slow.write, slow.write, std::chrono::milliseconds(60'000));
    reader = std::thread([&] {
      char data[4096];
      for (ssize_t size = 0; (size = ::read(slow.read, data, sizeof(data))) > 0;)
        got.append(data, static_cast<size_t>(size));
    });
    run_programs({{{"/bin/sh", "-c", "seq 1 300000"}}}, signals, {.tee = &tee});
    slow.close_write();
  }
  reader.join();
  EXPECT_EQ(got.size(), 1'988'895u);  // 9 × 2 + 90 × 3 + 900 × 4 + 9,000 × 5 + 90,000 × 6 + 200,001 × 7
  EXPECT_TRUE(got.ends_with("\n300000\n"));
}

TEST_F(Tee, ASlowReaderLosesNothingWhenAProcessThatIsNotOneOfTheProgramsEndsMeanwhile) {
  Pipe slow;
  std::string got;
  std::thread reader;
  {
    const WaitedSignals signals;
    OutputTee tee(OutputTee::Log::kLater, slow.write, slow.write, std::chrono::milliseconds(60'000));
    const pid_t other = ::fork();
    if (other == 0) ::usleep(500'000), ::_exit(0);
    reader = std::thread([&] {
      ::waitpid(other, nullptr, 0);  // from then on there is a SIGCHLD that nobody takes
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      char data[4096];
      for (ssize_t size = 0; (size = ::read(slow.read, data, sizeof(data))) > 0;)
        got.append(data, static_cast<size_t>(size));
    });
    run_programs({{{"/bin/sh", "-c", "seq 1 100000"}}}, signals, {.tee = &tee});
    slow.close_write();
  }
  reader.join();
  EXPECT_TRUE(got.ends_with("\n100000\n"));
}

TEST_F(Tee, AReaderThatHasGoneEndsNoProgram) {
  Pipe gone;
  const WaitedSignals signals;
  OutputTee tee(OutputTee::Log::kLater, gone.write, gone.write);
  gone.close_read();
  EXPECT_EQ(run_programs({{{"/bin/sh", "-c", "seq 1 100000; exit 3"}}}, signals, {.tee = &tee}).exit_code, 3);
  tee.log_to(path("log"));
  EXPECT_TRUE(read_file(path("log")).ends_with("\n100000\n"));
}

TEST_F(Tee, AProcessThatAProgramLeavesBehindIsNotWaitedFor) {
  EXPECT_EQ(run("sleep 1000 & echo $!", OutputTee::Log::kLater), 0);
  const std::string said = read_file(path("log"));
  ::kill(std::stoi(said), SIGKILL);  // the process that was left
}

}  // namespace output_tee_test
}  // namespace athanor::launch
