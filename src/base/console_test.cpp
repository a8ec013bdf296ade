#include "base/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

namespace athanor::console_test {
namespace {

// Returns what `act` writes on a terminal that is standard error.
std::string shown_by(const std::function<void()>& act) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY), before = ::dup(STDERR_FILENO);
  EXPECT_EQ(::grantpt(terminal), 0);
  EXPECT_EQ(::unlockpt(terminal), 0);
  const int other = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  ::dup2(other, STDERR_FILENO);
  act();
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  std::string shown;
  char bytes[4096];
  for (pollfd ready{terminal, POLLIN, 0}; ::poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN) != 0;) {
    const auto count = ::read(terminal, bytes, sizeof(bytes));
    if (count <= 0) break;
    shown.append(bytes, static_cast<size_t>(count));
  }
  for (const int descriptor : {terminal, other, before}) ::close(descriptor);
  return shown;
}

TEST(Console, WorkThatEndsBeforeItsProgressIsDueShowsNothing) {
  constexpr double kNever_s = 1e9;
  EXPECT_EQ(shown_by([] {
              ProgressBar progress("loading", 100, "B", kNever_s);
              progress.add(100);
              progress.finish();
            }),
            "");
}

TEST(Console, ATerminalKeepsTheLineOfFinishedWorkWithItsRate) {
  const auto shown = shown_by([] {
    ProgressBar progress("loading step-7", 100, "B");
    progress.add(100);
    progress.finish();
  });
  EXPECT_NE(shown.find("loading step-7 [########################] 100%  100B  "), shown.npos) << shown;
  EXPECT_NE(shown.find("/s"), shown.npos) << shown;
}

}  // namespace
}  // namespace athanor::console_test
