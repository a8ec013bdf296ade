// Each case is a child process, because a process cannot watch what signals do to itself.
#include "base/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "base/error.h"

namespace athanor::signals_test {
namespace {

struct Ended {
  int status = 0;       // as waitpid returns it
  std::string message;  // standard error
};

// Runs `body` in a child and returns its exit code. SIGALRM ends a child that hangs.
Ended run_in_child(const std::function<int()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::_exit(body());
  }
  ::close(ends[1]);
  Ended ended;
  char buffer[256];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof(buffer))) > 0;)
    ended.message.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  ::waitpid(child, &ended.status, 0);
  return ended;
}

bool exited_with(const Ended& ended, int code) { return WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == code; }

TEST(Signals, WithoutASignalNothingIsAskedFor) {
  const SignalGuard guard("finishing the step and saving");
  EXPECT_FALSE(guard.stop_signal());
}

TEST(Signals, TheFirstSignalIsNotedAndSaysWhatHappensNext) {
  for (const int number : {SIGTERM, SIGINT}) {
    const Ended ended = run_in_child([number] {
      const SignalGuard guard("finishing the step and saving");
      ::raise(number);
      return guard.stop_signal() == number ? 42 : 1;
    });
    EXPECT_TRUE(exited_with(ended, 42)) << ended.status;
    EXPECT_NE(ended.message.find("finishing the step and saving; once more exits at once\n"), std::string::npos)
        << ended.message;
    EXPECT_NE(ended.message.find(number == SIGINT ? "SIGINT" : "SIGTERM"), std::string::npos) << ended.message;
  }
}

TEST(Signals, AmongTheRanksOfAJobItIsNotedInSilence) {
  const Ended ended = run_in_child([] {
    ::setenv("PMI_RANK", "1", 1);
    ::setenv("PMI_SIZE", "4", 1);
    const SignalGuard guard("finishing the step and saving");
    ::raise(SIGTERM);
    return guard.stop_signal() == SIGTERM ? 42 : 1;
  });
  EXPECT_TRUE(exited_with(ended, 42)) << ended.status;
  EXPECT_EQ(ended.message, "");
}

TEST(Signals, ASecondSignalExitsAtOnceWithItsOwnNumber) {
  for (const auto& [first, second] : {std::pair{SIGTERM, SIGTERM}, {SIGINT, SIGINT}, {SIGTERM, SIGINT}}) {
    const Ended ended = run_in_child([first = first, second = second] {
      const SignalGuard guard("finishing the step and saving");
      ::raise(first);
      ::raise(second);
      return 1;
    });
    EXPECT_TRUE(exited_with(ended, 128 + second)) << ended.status;
  }
}

TEST(Signals, AJobMayGetOneRequestTwiceAndLate) {
  const Ended ended = run_in_child([] {
    ::setenv("PMI_RANK", "1", 1);
    ::setenv("PMI_SIZE", "4", 1);
    {
      const SignalGuard guard("finishing the step and saving", Warning::kStop, Warning::kSave);
      ::raise(SIGUSR1);
      ::raise(SIGUSR1);
      ::raise(SIGTERM);
      if (guard.stop_signal() != SIGUSR1) return 1;
      guard.agree_on_end();
    }
    ::raise(SIGUSR1);
    ::raise(SIGTERM);
    return 42;
  });
  EXPECT_TRUE(exited_with(ended, 42)) << ended.status;
}

TEST(Signals, AGuardGoneLeavesWhatWasThereBefore) {
  const Ended ended = run_in_child([] {
    const auto handler_of = [](int number) {
      struct sigaction now {};
      ::sigaction(number, nullptr, &now);
      return now.sa_handler;
    };
    ::signal(SIGINT, SIG_IGN);
    { const SignalGuard guard("finishing the step and saving"); }
    return handler_of(SIGINT) == SIG_IGN && handler_of(SIGTERM) == SIG_DFL ? 42 : 1;
  });
  EXPECT_TRUE(exited_with(ended, 42)) << ended.status;
}

TEST(Signals, ALaterGuardKnowsNothingOfAnEarlierSignal) {
  const Ended ended = run_in_child([] {
    {
      const SignalGuard guard("finishing the step and saving");
      ::raise(SIGTERM);
    }
    const SignalGuard guard("finishing the step and saving");
    if (guard.stop_signal()) return 1;
    ::raise(SIGINT);
    return guard.stop_signal() == SIGINT ? 42 : 2;
  });
  EXPECT_TRUE(exited_with(ended, 42)) << ended.status;
}

TEST(Signals, ASignalFromAnotherProcessDoesNotBreakARead) {
  const Ended ended = run_in_child([] {
    const SignalGuard guard("finishing the step and saving");
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
      ::usleep(50'000);  // by then the parent waits in read
      ::kill(parent, SIGTERM);
      ::usleep(50'000);
      ::_exit(::write(ends[1], "x", 1) == 1 ? 0 : 1);
    }
    char byte = 0;
    const bool whole = ::read(ends[0], &byte, 1) == 1 && byte == 'x';
    ::waitpid(child, nullptr, 0);
    return whole && guard.stop_signal() == SIGTERM ? 42 : 2;
  });
  EXPECT_TRUE(exited_with(ended, 42)) << ended.status;
}

TEST(Signals, AHangupStopsUnlessItWasIgnoredAtTheStart) {
  for (const bool ignored : {false, true}) {
    const Ended ended = run_in_child([ignored] {
      ::signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL);
      const SignalGuard guard("finishing the step and saving");
      ::raise(SIGHUP);
      return guard.stop_signal() == (ignored ? std::nullopt : std::optional(SIGHUP)) ? 42 : 1;
    });
    EXPECT_TRUE(exited_with(ended, 42)) << ended.status;
  }
}

TEST(Signals, TheWarningsOfASchedulerDoWhatTheyAreToldTo) {
  const Ended ended = run_in_child([] {
    const SignalGuard guard("finishing the step and saving", Warning::kIgnore, Warning::kSave);
    ::raise(SIGUSR1);
    if (guard.stop_signal() || guard.take_save_request()) return 1;
    ::raise(SIGUSR2);
    if (guard.stop_signal() || !guard.take_save_request() || guard.take_save_request()) return 2;
    return 42;
  });
  EXPECT_TRUE(exited_with(ended, 42)) << ended.status;
  EXPECT_EQ(ended.message, "SIGUSR2: saving after this step\n");
  const Ended stopped = run_in_child([] {
    const SignalGuard guard("finishing the step and saving", Warning::kStop, Warning::kSave);
    ::raise(SIGUSR1);
    return guard.stop_signal() == SIGUSR1 ? 42 : 1;
  });
  EXPECT_TRUE(exited_with(stopped, 42)) << stopped.status;
}

TEST(Signals, TwoGuardsAtOnceAreABug) {
  const SignalGuard guard("finishing the step and saving");
  EXPECT_THROW(SignalGuard("x"), Error);
}

}  // namespace
}  // namespace athanor::signals_test
