#include "eval/text_slots.h"

#include <gtest/gtest.h>

namespace athanor::text_slots_test {
namespace {

TEST(GenerationWork, IsTheSameAfterItWasSent) {
  GenerationWork work;
  work.slots = 3;
  work.capacity = 99;
  work.parts = {{{2, 0}, {{7, {5, 6, 7}}, {8, {1}}}, {}}, {{}, {}, {}}, {{}, {}, {4, 5}}};
  const GenerationWork back = GenerationWork::from_bytes(work.bytes());
  EXPECT_EQ(back.slots, 3);
  EXPECT_EQ(back.capacity, 99);
  ASSERT_EQ(back.parts.size(), 3u);
  EXPECT_EQ(back.parts[0].left, work.parts[0].left);
  ASSERT_EQ(back.parts[0].begun.size(), 2u);
  EXPECT_EQ(back.parts[0].begun[0].index, 7);
  EXPECT_EQ(back.parts[0].begun[0].ids, work.parts[0].begun[0].ids);
  EXPECT_EQ(back.parts[2].next, work.parts[2].next);
  EXPECT_TRUE(back.begins());
  EXPECT_TRUE(GenerationWork::from_bytes(GenerationWork{}.bytes()).parts.empty());
}

}  // namespace
}  // namespace athanor::text_slots_test
