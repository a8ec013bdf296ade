#include "moe/dispatch_auto.h"

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "moe/testing/dispatch_case.h"

namespace athanor::moe::dispatch_auto_test {
namespace {

using namespace test;  // NOLINT

class DispatchAuto : public ::testing::Test {
 protected:
  DispatchAuto() { std::filesystem::create_directories(folder_); }
  ~DispatchAuto() override { std::filesystem::remove_all(folder_); }

  // Returns the result on each of four ranks, in two expert groups of two; all must remember the same.
  std::vector<TunedDispatch> tune(const DispatchShape& shape, const DispatchOptions& given) const {
    std::vector<TunedDispatch> told(4);
    comm::run_ranks(4, [&](comm::World& world) {
      at::set_num_threads(1);
      const auto experts = world.make_group({{0, 1}, {2, 3}}, "expert");
      told[static_cast<size_t>(world.rank())] = tune_dispatch(world.all(), *experts, shape, given, cache_);
    });
    if (!told[0].record.empty()) write_file_atomically(cache_, told[0].record);
    return told;
  }

  static bool same(const DispatchOptions& a, const DispatchOptions& b) {
    return a.kind == b.kind && a.chunks == b.chunks && a.in_flight == b.in_flight && a.inner_ranks == b.inner_ranks;
  }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  fmt::format("athanor-dispatch-{}", ::testing::UnitTest::GetInstance()->random_seed() +
                                                                         static_cast<int>(::getpid()));
  std::filesystem::path cache_ = folder_ / "dispatch.json";
};

const DispatchShape kShape{.tokens = 12, .k = 2, .hidden = 16, .intermediate = 8, .num_experts = 4};

TEST_F(DispatchAuto, AllRanksKeepTheSameAndRememberIt) {
  const auto first = tune(kShape, {DispatchKind::kAuto, 0});
  for (const TunedDispatch& t : first) {
    EXPECT_TRUE(same(t.options, first[0].options));
    EXPECT_NE(t.options.kind, DispatchKind::kAuto);
    EXPECT_FALSE(t.remembered);
    EXPECT_EQ(t.table, first[0].table);
    EXPECT_NE(t.table.find("kept"), std::string::npos);
  }
  for (const TunedDispatch& t : tune(kShape, {DispatchKind::kAuto, 0})) {
    EXPECT_TRUE(t.remembered);
    EXPECT_TRUE(same(t.options, first[0].options));
  }
}

TEST_F(DispatchAuto, AnotherShapeOrABrokenFileIsMeasuredAgain) {
  tune(kShape, {DispatchKind::kAuto, 1});
  DispatchShape other = kShape;
  other.tokens = 13;
  EXPECT_FALSE(tune(other, {DispatchKind::kAuto, 1})[0].remembered);
  EXPECT_TRUE(tune(other, {DispatchKind::kAuto, 1})[0].remembered);
  for (const char* broken : {"{", "[]", R"({"key": 3})"}) {
    write_file_atomically(cache_, broken);
    EXPECT_FALSE(tune(other, {DispatchKind::kAuto, 1})[1].remembered) << broken;
  }
}

TEST_F(DispatchAuto, MeasuresOnlyWhatIsLeftToChoose) {
  const auto told = tune(kShape, {DispatchKind::kAllGather, 3});
  EXPECT_EQ(told[0].options.kind, DispatchKind::kAllGather);
  EXPECT_EQ(told[0].options.chunks, 3);
  for (const auto& measured : nlohmann::json::parse(read_file(cache_)).at("measured")) {
    EXPECT_EQ(measured.at("dispatch"), "allgather");
    EXPECT_EQ(measured.at("chunks"), 3);
  }
}

// On a device, messages are then padded as in the run.
TEST_F(DispatchAuto, ACapacityIsPartOfTheShapeAndOfTheTrials) {
  DispatchShape limited = kShape;
  limited.most_of_expert = 4;  // an even share is 6, so some choices are dropped
  tune(kShape, {DispatchKind::kAllToAll, 1});
  const auto told = tune(limited, {DispatchKind::kAllToAll, 1});
  EXPECT_FALSE(told[0].remembered);
  EXPECT_NE(told[0].table.find("4 experts of 8 with at most 4 tokens of a rank"), std::string::npos) << told[0].table;
  EXPECT_TRUE(tune(limited, {DispatchKind::kAllToAll, 1})[0].remembered);
}

TEST_F(DispatchAuto, ItWritesNothingItself) {
  comm::run_ranks(2, [&](comm::World& world) {
    at::set_num_threads(1);
    const auto experts = world.make_group({{0, 1}}, "expert");
    const auto told = tune_dispatch(world.all(), *experts, kShape, {DispatchKind::kAuto, 1}, cache_);
    EXPECT_EQ(told.record.empty(), world.rank() != 0);
  });
  EXPECT_FALSE(std::filesystem::exists(cache_));
}

}  // namespace
}  // namespace athanor::moe::dispatch_auto_test
