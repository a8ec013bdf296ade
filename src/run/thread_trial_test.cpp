#include "run/thread_trial.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace athanor::thread_trial_test {
namespace {

// A machine: the time of a step for a number of threads.
using Machine = std::function<double(int threads)>;

struct Course {
  std::map<int, int64_t> steps;  // by the number of threads
  double seconds = 0;
  int64_t lines = 0;
};

Course train(ThreadTrial& trial, int64_t steps, const Machine& machine) {
  Course course;
  for (int64_t step = 0; step < steps; ++step) {
    const int threads = trial.threads();
    const double seconds = machine(threads);
    ++course.steps[threads];
    course.seconds += seconds;
    course.lines += !trial.took(seconds).empty();
  }
  return course;
}

double ideal(int threads) { return 0.1 / threads; }
double hurt_by_each_thread(int threads) { return 0.01 * threads; }

TEST(ThreadTrial, WorkThatFeedsAllThreadsKeepsThemAndLosesLessThanAHundredth) {
  ThreadTrial trial(8, false);
  const Course course = train(trial, 2000, ideal);
  EXPECT_EQ(trial.kept(), 8);
  EXPECT_EQ(course.lines, 0);
  EXPECT_LT(course.seconds, 1.01 * 2000 * ideal(8));
}

TEST(ThreadTrial, ATrialThatIsHopelessEndsAfterOneStep) {
  ThreadTrial trial(8, false);
  EXPECT_EQ(train(trial, 100, ideal).steps, (std::map<int, int64_t>{{4, 1}, {8, 99}}));
}

TEST(ThreadTrial, WorkThatIsTooSmallEndsOnOneThreadWithinTheFirstSteps) {
  ThreadTrial trial(8, false);
  train(trial, 30, hurt_by_each_thread);
  EXPECT_EQ(trial.kept(), 1);
}

TEST(ThreadTrial, TheBestNumberInBetweenIsFound) {
  ThreadTrial trial(16, false);
  train(trial, 1000, [](int threads) { return 0.1 / threads + 0.006 * threads; });  // the least time is at 4
  EXPECT_EQ(trial.kept(), 4);
}

TEST(ThreadTrial, ThreadsComeBackWhenOtherProcessesHaveLeft) {
  ThreadTrial trial(4, false);
  train(trial, 100, hurt_by_each_thread);
  ASSERT_EQ(trial.kept(), 1);
  train(trial, 2000, ideal);
  EXPECT_EQ(trial.kept(), 4);
}

TEST(ThreadTrial, ANumberThatSomebodyAskedForIsNeverLeft) {
  ThreadTrial trial(4, true);
  EXPECT_EQ(train(trial, 1000, hurt_by_each_thread).steps, (std::map<int, int64_t>{{4, 1000}}));
}

TEST(ThreadTrial, LongStepsAreNotTried) {
  ThreadTrial trial(4, false);
  EXPECT_EQ(train(trial, 1000, [](int) { return 1.5; }).steps, (std::map<int, int64_t>{{4, 1000}}));
}

TEST(ThreadTrial, OneSlowStepOfMachinesThatAreSharedChangesNothing) {
  ThreadTrial trial(2, false);
  int64_t step = 0;
  train(trial, 1000, [&](int threads) { return ideal(threads) * (++step % 7 == 0 ? 3 : 1); });
  EXPECT_EQ(trial.kept(), 2);
}

TEST(ThreadTrial, EqualTimesKeepWhatThereIs) {
  ThreadTrial trial(4, false);
  EXPECT_EQ(train(trial, 3000, [](int) { return 0.01; }).lines, 0);
  EXPECT_EQ(trial.kept(), 4);
}

TEST(ThreadTrial, AnotherKindOfStepEndsATrialAndBeginsAnother) {
  ThreadTrial trial(2, false);
  train(trial, 3, hurt_by_each_thread);
  trial.restart();
  EXPECT_EQ(trial.threads(), 2);
  train(trial, 30, hurt_by_each_thread);
  EXPECT_EQ(trial.kept(), 1);
}

}  // namespace
}  // namespace athanor::thread_trial_test
