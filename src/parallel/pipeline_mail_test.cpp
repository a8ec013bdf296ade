#include "parallel/pipeline_mail.h"

#include <gtest/gtest.h>

#include "comm/thread_ranks.h"

namespace athanor::pipeline_mail_test {
namespace {

TEST(PipelineMail, MessagesBetweenTwoRanksComeInTheirSendersOrder) {
  const Work F = Work::kForward, B = Work::kBackward;
  const Schedule two = make_schedule("1f1b", 2, 1, 3);
  EXPECT_EQ(messages_between(two, 0, 1), (std::vector<Message>{{F, 0, 1}, {F, 1, 1}, {F, 2, 1}}));
  EXPECT_EQ(messages_between(two, 1, 0), (std::vector<Message>{{B, 0, 0}, {B, 1, 0}, {B, 2, 0}}));
  // From the last rank's first chunk back to the first rank's second, among gradients.
  const Schedule interleaved = make_schedule("interleaved_1f1b", 2, 2, 2);
  EXPECT_EQ(messages_between(interleaved, 1, 0),
            (std::vector<Message>{{F, 0, 2}, {F, 1, 2}, {B, 0, 2}, {B, 1, 2}, {B, 0, 0}, {B, 1, 0}}));
  EXPECT_EQ(messages_between(interleaved, 0, 1),
            (std::vector<Message>{{F, 0, 1}, {F, 1, 1}, {F, 0, 3}, {F, 1, 3}, {B, 0, 1}, {B, 1, 1}}));
  EXPECT_TRUE(messages_between(make_schedule("1f1b", 3, 1, 3), 0, 2).empty());
}

TEST(PipelineMail, RoomIsGivenBeforeItIsAskedForAndToNoMoreThanThat) {
  const Schedule schedule = make_schedule("gpipe", 2, 1, 8);
  comm::run_ranks(2, [&](comm::World& world) {
    int num_rooms = 0;
    PipelineMail mail(schedule, world.all(), [&](const Message&) {
      ++num_rooms;
      return at::empty({4});
    });
    EXPECT_EQ(num_rooms, PipelineMail::kAhead);
    for (int m = 0; m < 8; ++m) {
      if (world.rank() == 0) {
        mail.put({Work::kForward, m, 1}, at::full({4}, m, at::kFloat));
      } else {
        EXPECT_EQ(mail.take({Work::kForward, m, 1})[0].item<int>(), m);
        EXPECT_EQ(num_rooms, std::min(8, m + 1 + PipelineMail::kAhead));
      }
    }
    for (int m = 0; m < 8; ++m) {
      if (world.rank() == 1) mail.put({Work::kBackward, m, 0}, at::full({4}, 10 + m, at::kFloat));
    }
    if (world.rank() == 0) {
      // All messages are sent at once and the last is taken first: those before it get memory too.
      EXPECT_EQ(mail.take({Work::kBackward, 7, 0})[0].item<int>(), 17);
      EXPECT_EQ(mail.take({Work::kBackward, 0, 0})[0].item<int>(), 10);
      for (int m = 1; m < 7; ++m) mail.take({Work::kBackward, m, 0});
    }
    mail.finish();
  });
}

}  // namespace
}  // namespace athanor::pipeline_mail_test
