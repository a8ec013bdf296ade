#include "base/fault.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/error.h"

#define EXPECT_SAYS(message, part) EXPECT_NE(std::string(message).find(part), std::string::npos) << (message)

namespace athanor::fault_test {
namespace {

// A process reads the armed faults once, in whichever test comes first. So they are set before all tests, at points
// that no other test of this program passes. A process that a test starts anew already has its own variable.
const bool kArmed =
    ::setenv("ATHANOR_FAULT", "checkpoint.piece:eio@2,bench.result:enospc@2+,prepare.shard:term@3", 0) == 0;

std::string refusal(std::string_view text) {
  try {
    parse_faults(text);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "not refused";
}

TEST(Fault, AnErrorIsAnsweredAtItsPlaceAndFromItsCountOn) {
  ASSERT_TRUE(kArmed);
  EXPECT_EQ(fault_errno("checkpoint.piece"), 0);
  EXPECT_EQ(fault_errno("checkpoint.piece"), EIO);
  EXPECT_EQ(fault_errno("checkpoint.piece"), 0);
  EXPECT_EQ(fault_errno("bench.result"), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fault_errno("bench.result"), ENOSPC);
  EXPECT_EQ(fault_errno("files.write"), 0);
}

TEST(Fault, ASignalIsRaisedAtTheCountThatIsMeant) {
  ASSERT_TRUE(kArmed);
  static volatile std::sig_atomic_t raised;
  raised = 0;
  auto* before = std::signal(SIGTERM, [](int) { raised = raised + 1; });
  for (int i = 0; i < 5; ++i) {
    fault_point("prepare.shard");
    EXPECT_EQ(raised, i >= 2 ? 1 : 0);
  }
  std::signal(SIGTERM, before);
}

TEST(Fault, OneThatIsArmedWhileTheProgramRunsCountsFromThenOnAndCanBeDisarmed) {
  EXPECT_EQ(fault_errno("data.read"), 0);
  arm_fault("data.read:eio@2");
  arm_fault("append.write:enospc@1+");
  EXPECT_EQ(fault_errno("data.read"), 0);
  EXPECT_EQ(fault_errno("data.read"), EIO);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(fault_errno("append.write"), ENOSPC);
  disarm_fault("append.write");
  EXPECT_EQ(fault_errno("append.write"), 0);
  EXPECT_EQ(describe_armed_faults().find("data.read"), std::string::npos) << "its caller has announced it";
}

TEST(Fault, AnArmedProcessSaysOnOneLineWhatWillFailAndThatItIsOnPurpose) {
  ASSERT_TRUE(kArmed);
  const std::string line = describe_armed_faults();
  EXPECT_NE(line.find("ON PURPOSE"), std::string::npos);
  EXPECT_NE(line.find("checkpoint.piece:eio@2, which plays a piece"), std::string::npos) << line;
  EXPECT_NE(line.find("bench.result:enospc@2+"), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(Fault, ItsTextIsReadItemByItem) {
  const auto armed = parse_faults("checkpoint.piece:kill@3,files.write:enospc@1+,train.after_step:int");
  ASSERT_EQ(armed.size(), 3u);
  EXPECT_EQ(armed[0].point, "checkpoint.piece");
  EXPECT_EQ(armed[0].action, "kill");
  EXPECT_EQ(armed[0].from, 3);
  EXPECT_FALSE(armed[0].onwards);
  EXPECT_TRUE(armed[1].onwards);
  EXPECT_EQ(armed[2].from, 1);
  EXPECT_TRUE(parse_faults("").empty());
}

TEST(Fault, AnUnknownNameIsRefusedWithTheNearestAndAll) {
  const std::string why = refusal("checkpoint.peice:kill");
  EXPECT_SAYS(why, "no fault point is called \"checkpoint.peice\" (did you mean \"checkpoint.piece\"?)");
  for (const FaultPoint& point : kFaultPoints) EXPECT_NE(why.find(point.name), std::string::npos) << point.name;
}

TEST(Fault, TextThatMeansNothingIsRefused) {
  EXPECT_SAYS(refusal("files.write"), "is not NAME:ACTION");
  EXPECT_SAYS(refusal("files.write:eio,,files.write:eio"), "\"\" is not NAME:ACTION");
  EXPECT_SAYS(refusal("files.write:enospac"), "no action \"enospac\" (did you mean \"enospc\"?)");
  EXPECT_SAYS(refusal("files.write:plant"), "no action \"plant\"");
  EXPECT_SAYS(refusal("files.write:eio@"), "number of the pass");
  EXPECT_SAYS(refusal("files.write:eio@0"), "number of the pass");
  EXPECT_SAYS(refusal("files.write:eio@3x"), "number of the pass");
  EXPECT_SAYS(refusal("files.write:eio@-1+"), "number of the pass");
  EXPECT_SAYS(refusal("train.after_step:eio"), "answers no error");
}

TEST(FaultPoints, NamesAreInOrderAndEachSaysWhatItPlays) {
  std::string_view last;
  for (const FaultPoint& point : kFaultPoints) {
    EXPECT_LT(last, point.name);
    EXPECT_FALSE(point.plays.empty()) << point.name;
    last = point.name;
  }
}

}  // namespace
}  // namespace athanor::fault_test
