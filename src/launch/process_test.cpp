#include "launch/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/error.h"
#include "launch/testing/recorded_machine.h"

namespace athanor::launch {
namespace process_test {

class Programs : public RecordedMachine {
 protected:
  // Runs lines of a shell, and returns the exit code.
  static int run(const std::vector<std::string>& scripts, double patience_s = 30) {
    std::vector<Program> programs;
    for (const auto& script : scripts) programs.push_back({{"/bin/sh", "-c", script}, {{"OWN", "a b"}}, {}});
    return run_programs(programs, WaitedSignals(), {.patience_s = patience_s}).exit_code;
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
};

TEST_F(Programs, ExitCodesArePassedOnAndSignalsAre128More) {
  EXPECT_EQ(run({"exit 0"}), 0);
  EXPECT_EQ(run({"exit 10"}), 10);
  EXPECT_EQ(run({"kill -KILL $$"}), 137);
  EXPECT_EQ(run({"exit 0", "exit 3", "exit 0"}), 3);
}

TEST_F(Programs, ArgumentsReachAProgramAsTheyAreWithoutAShell) {
  const std::string out = file("out");
  const Program program{
      {"/bin/sh", "-c", "printf '%s|' \"$@\" \"$OWN\" >" + out, "sh", "$(id)", "a b", "", "*"}, {{"OWN", "v;w"}}, {}};
  EXPECT_EQ(run_programs({program}, WaitedSignals()).exit_code, 0);
  EXPECT_EQ(read_file(out), "$(id)|a b||*|v;w|");
}

TEST_F(Programs, AProgramHasItsOwnProcessGroupAndMayBeBound) {
  const std::string out = file("out");
  Program program{{"/bin/sh", "-c",
                   "grep Cpus_allowed_list /proc/self/status >" + out + "; cut -d' ' -f5 /proc/$$/stat >>" + out +
                       "; echo $$ >>" + out},
                  {},
                  {0}};
  ASSERT_EQ(run_programs({program}, WaitedSignals()).exit_code, 0);
  std::istringstream lines(read_file(out));
  std::string cpus, group, process;
  std::getline(lines, cpus) && std::getline(lines, group) && std::getline(lines, process);
  EXPECT_EQ(cpus, "Cpus_allowed_list:\t0");
  EXPECT_EQ(group, process);
}

TEST_F(Programs, TheOutputOfAProgramGoesIntoAFileAndOneThatHangsIsEnded) {
  const auto run_one = [&](const std::string& script, std::chrono::seconds limit, bool gives_up = false) {
    return run_into_file({{"/bin/sh", "-c", script}, {}, {}}, folder_ / "out", limit, [=] { return gives_up; });
  };
  EXPECT_EQ(run_one("echo one; echo two >&2; exit 3", std::chrono::seconds(60)), 3);
  EXPECT_EQ(read_file(file("out")), "one\ntwo\n");
  EXPECT_EQ(run_one("echo $$; exec sleep 60", std::chrono::seconds(0)), std::nullopt);
  EXPECT_EQ(run_one("echo $$; exec sleep 60", std::chrono::seconds(60), true), std::nullopt);
  EXPECT_EQ(run_one("trap '' TERM; echo $$; sleep 60", std::chrono::seconds(0)), std::nullopt);
}

TEST_F(Programs, WhatCannotBeStartedIsRefusedAndNothingIsLeft) {
  EXPECT_SAYS(refusal<ConfigError>([] {
                run_programs({{{"no-such-program"}, {}, {}}}, WaitedSignals());
              }),
              "no-such-program: there is no such");
  const auto script = write("script", "#!/no/such/interpreter\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EXPECT_SAYS(refusal<ConfigError>([&] {
                run_programs({{{"/bin/sleep", "1000"}, {}, {}}, {{script.string()}, {}, {}}}, WaitedSignals());
              }),
              "No such file or directory; nothing was started");
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

TEST_F(Programs, ASignalIsPassedOnAsTheLauncherNeedsIt) {
  // The signal comes from a thread when the program is ready, as from another process.
  const std::string ready = file("ready"), out = file("out");
  const auto before = ::signal(SIGINT, SIG_IGN);  // as in the background of a shell without job control
  const WaitedSignals signals;                    // before the thread, which would otherwise take the signal
  std::thread sender([&] {
    while (!std::filesystem::exists(ready)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(::getpid(), SIGTERM);
  });
  const Program program{
      {"/bin/sh", "-c", "trap 'echo got >" + out + "; exit 10' INT; : >" + ready + "; while :; do sleep 0.02; done"},
      {},
      {}};
  const auto end =
      run_programs({program}, signals, {.passed = [](int number) { return number == SIGTERM ? SIGINT : number; }});
  EXPECT_EQ(end.exit_code, 10);
  EXPECT_TRUE(end.was_told_to_stop);
  EXPECT_TRUE(std::filesystem::exists(out));
  sender.join();
  ::signal(SIGINT, before);
}

TEST_F(Programs, ASignalThatIsIgnoredIsNotWaitedFor) {
  const auto before = ::signal(SIGHUP, SIG_IGN);  // as nohup leaves it
  {
    const WaitedSignals signals;
    ::kill(::getpid(), SIGHUP);
    EXPECT_EQ(signals.wait(std::chrono::milliseconds(50)), 0);
  }
  ::signal(SIGHUP, before);
}

TEST_F(Programs, WhenOneHasFailedTheOthersAreEndedAfterAWhile) {
  EXPECT_EQ(run({"exit 4", "exec sleep 1000"}, 0.1), 4);
}

TEST_F(Programs, AnOverdueProgramIsAskedToEndAndThenKilled) {
  const WaitedSignals signals;
  const auto run_overdue = [&](const std::string& script) {
    const Program program{{"/bin/sh", "-c", script}, {}, {}};
    const bool always = true;
    return run_programs({program}, signals, {.is_overdue = [&] { return always; }, .kill_after_s = 0.2});
  };
  const auto asked = run_overdue("exec sleep 1000");
  EXPECT_TRUE(asked.was_overdue);
  EXPECT_FALSE(asked.was_told_to_stop);
  EXPECT_EQ(asked.exit_code, 143);
  EXPECT_EQ(run_overdue("kill -STOP $$").exit_code, 143);
  const std::string ready = file("ready");
  const Program deaf{{"/bin/sh", "-c", "trap '' TERM; : >" + ready + "; while :; do sleep 0.02; done"}, {}, {}};
  const auto killed = run_programs({deaf}, signals,
                                   {.is_overdue = [&] { return std::filesystem::exists(ready); }, .kill_after_s = 0.2});
  EXPECT_EQ(killed.exit_code, 137);
}

TEST_F(Programs, SignalsReachWhatAProgramHasStartedAndNothingOfAnOverdueOneIsLeft) {
  // A shell that waits for a program ends by a signal and leaves the program.
  const std::string ready = file("ready"), number = file("number");
  const auto is_alive = [&] {
    const std::string path = "/proc/" + read_file(number) + "/stat";
    for (int i = 0; i < 12'000; ++i) {
      std::ifstream file(path);
      std::string stat;
      if (!std::getline(file, stat)) return false;      // it may also end between the opening and the reading
      if (stat.find(") Z") != stat.npos) return false;  // whoever adopted it has not waited for it yet
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  };
  const auto run_until_ready = [&](const std::string& child) {
    std::filesystem::remove(ready);
    std::filesystem::remove(number);
    const auto is_ready = [&] {
      return std::filesystem::exists(ready) && std::filesystem::exists(number) && !read_file(number).empty();
    };
    const Program program{{"/bin/sh", "-c", "(" + child + ") & printf $! >" + number + "; wait; exit 3"}, {}, {}};
    return run_programs({program}, WaitedSignals(), {.is_overdue = is_ready, .to_groups = true});
  };
  run_until_ready(": >" + ready + "; exec sleep 1000");
  EXPECT_FALSE(is_alive());
  EXPECT_EQ(run_until_ready("trap '' TERM; : >" + ready + "; while :; do sleep 0.02; done").exit_code, 143);
  EXPECT_FALSE(is_alive());
}

TEST_F(Programs, AToolThatFailsOrHangsAnswersNothing) {
  Surroundings here;
  here.tool_limit = std::chrono::milliseconds(200);
  put_program(here, "prints", "echo this; echo more >&2");
  put_program(here, "fails", "echo this; exit 1");
  put_program(here, "hangs", "echo this; exec /bin/sleep 1000");
  put_program(here, "closes", "exec >&- 2>&-; exec /bin/sleep 1000");
  put_program(here, "leaves_a_child", "/bin/sleep 1000 & echo this");
  EXPECT_EQ(ask_tool({"prints"}, here), "this\nmore\n");
  for (const char* name : {"fails", "hangs", "closes", "leaves_a_child", "is_not_there"})
    EXPECT_FALSE(ask_tool({name}, here)) << name;
}

}  // namespace process_test
}  // namespace athanor::launch
