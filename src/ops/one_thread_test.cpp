// Tests of ops run on one thread unless they ask for more (test::Threads). On a busy machine each of the thousands
// of small parallel loops would wait until its second thread is scheduled, which takes a minute instead of seconds.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace {

class OneThread : public testing::Environment {
 public:
  void SetUp() override { at::set_num_threads(1); }
};

const testing::Environment* const kOneThread = testing::AddGlobalTestEnvironment(new OneThread);  // gtest deletes it

}  // namespace
