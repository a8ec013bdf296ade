// The main of every GoogleTest program: it notes the processor time of each case, of all its threads and of the
// processes that it waited for, as the property cpu_s of the case in the XML. scripts/test_summary compares these times
// with budgets, which a busy machine does not change as it changes seconds.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>

namespace {

double processor_seconds() {
  double sum = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      sum += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  return sum;
}

class ProcessorTimes : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { begin_ = processor_seconds(); }
  void OnTestEnd(const testing::TestInfo&) override {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", processor_seconds() - begin_);
    testing::Test::RecordProperty("cpu_s", text);
  }

  double begin_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new ProcessorTimes);
  return RUN_ALL_TESTS();
}
