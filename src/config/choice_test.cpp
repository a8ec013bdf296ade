// The tables of the words that fields may have.

#include "config/choice.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "config/dump.h"
#include "config/run_config.h"

namespace athanor::choice_test {
namespace {

template <class E>
void expect_one_word_for_each_value() {
  std::set<E> values;
  std::set<std::string_view> all;
  for (const auto& [word, value] : kWords<E>) {
    EXPECT_EQ(value_of<E>(word), value);
    EXPECT_EQ(word_of(value), word);
    values.insert(value);
    all.insert(word);
  }
  EXPECT_EQ(values.size(), kWords<E>.size());
  EXPECT_EQ(all.size(), kWords<E>.size());
}

template <class... E>
void expect_tables() {
  (expect_one_word_for_each_value<E>(), ...);
}

TEST(Choice, EachValueHasOneWord) {
  expect_tables<SharedBy, IfStillSaving, Writers, PipelineSchedule, ShardingKind, DeviceSums, RecomputeKind, LrSchedule,
                WidthScaling, MuonScale, RouterScore, RopeType, FaultKind, FaultPhase, AuxScope, Balance, CapacityOrder,
                CombineWeights, DispatchKind, AttentionScope, DeviceKind, Warning, OnNonFinite, OnSpike, BatchRampLr>();
}

TEST(Choice, IsGivenAsAWordOrAsAValue) {
  MoeConfig moe;
  moe.balance = "swipe";
  EXPECT_EQ(moe.balance, Balance::kSwipe);
  moe.balance = Balance::kCapacity;
  EXPECT_EQ(moe.balance.word(), "capacity");
}

TEST(Choice, AnotherWordIsRefusedWithTheWordsThatThereAre) {
  try {
    value_of<Writers>("all");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "expected one of scattered, first, got all");
  }
}

TEST(Choice, IsWrittenAsItsWord) {
  RunConfig config;
  config.moe.dispatch = DispatchKind::kAllToAll2d;
  config.parallelism.sharding = ShardingKind::kHierarchical;
  const std::string text = dump_run_config(config, false);
  EXPECT_NE(text.find("dispatch = \"all_to_all_2d\"\n"), std::string::npos);
  EXPECT_NE(text.find("sharding = \"hierarchical\"\n"), std::string::npos);
}

}  // namespace
}  // namespace athanor::choice_test
