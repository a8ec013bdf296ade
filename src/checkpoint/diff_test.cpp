// Tests the comparison of two checkpoints, whatever layouts wrote them.

#include "checkpoint/diff.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "checkpoint/writer.h"
#include "config/dump.h"

namespace athanor::diff_test {
namespace {

using Kind = TensorDifference::Kind;

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

class Diff : public FolderTest {
 protected:
  /// Writes one tensor in rows or in columns, so that two checkpoints have different pieces.
  CheckpointReader write_tensor(const std::string& name, const std::vector<float>& values, const Shape& shape,
                                bool by_columns = false, const nlohmann::json& state = {{"step", 1}}) {
    const auto path = folder_ / name;
    if (by_columns) {
      const int64_t rows = shape[0], columns = shape[1], left = columns / 2;
      std::vector<float> first, second;
      for (int64_t i = 0; i < rows * columns; ++i)
        (i % columns < left ? first : second).push_back(values[static_cast<size_t>(i)]);
      write_checkpoint(path,
                       {{"master/a", box_slice(shape, {0, left}, {rows, columns - left}), second.data()},
                        {"master/a", box_slice(shape, {0, 0}, {rows, left}), first.data()}},
                       {{"hidden_size", 6}}, state, {.max_file_bytes = 4096});
    } else {
      write_checkpoint(path, {{"master/a", whole_slice(shape), values.data()}}, {{"hidden_size", 6}}, state);
    }
    return CheckpointReader::open(path);
  }
  TensorDifference difference(const std::vector<float>& a, const std::vector<float>& b, const Shape& shape,
                              int threads = 1) {
    static int number = 0;
    ++number;
    const auto left = write_tensor(fmt::format("a{}", number), a, shape);
    const auto right = write_tensor(fmt::format("b{}", number), b, shape, shape.size() == 2);
    const auto found = diff_checkpoints(left, right, {.num_threads = threads});
    EXPECT_LE(found.tensors.size(), 1u);
    return found.tensors.empty() ? TensorDifference{} : found.tensors[0];
  }
};

TEST_F(Diff, EqualTensorsOfOtherPiecesAreEqual) {
  std::vector<float> values(6 * 10);
  std::iota(values.begin(), values.end(), 0.25F);
  values[7] = kNan;
  values[8] = -kInfinity;
  const auto a = write_tensor("a", values, {6, 10}), b = write_tensor("b", values, {6, 10}, true);
  EXPECT_TRUE(diff_checkpoints(a, b, {}).is_empty());
  EXPECT_EQ(diff_checkpoints(a, b, {}).num_tensors, 1);
}

TEST_F(Diff, TheFirstAndTheLargestDifferenceAreThoseOfTheElements) {
  std::vector<float> a(6 * 10, 8.0F), b = a;
  b[23] = 8.5F;
  b[41] = 6.0F;
  a[59] = 1e-3F;
  b[59] = -1e-3F;
  const auto found = difference(a, b, {6, 10});
  EXPECT_EQ(found.num_elements, 60);
  EXPECT_EQ(found.num_differing, 3);
  EXPECT_EQ(found.first_index(), (Shape{2, 3}));
  EXPECT_EQ(found.first_a, 8.0F);
  EXPECT_EQ(found.first_b, 8.5F);
  EXPECT_EQ(found.largest_absolute, 2.0);
  EXPECT_EQ(found.largest_relative, 2.0);
}

TEST_F(Diff, ASignOfZeroAndTheBitsOfANanDifferThoughNoNumberDoes) {
  const float other_nan = std::bit_cast<float>(std::bit_cast<uint32_t>(kNan) | 5);
  const auto found = difference({0.0F, kNan, kNan, 4}, {-0.0F, other_nan, kNan, 4}, {4});
  EXPECT_EQ(found.num_differing, 2);
  EXPECT_EQ(found.num_signs_of_zero, 1);
  EXPECT_EQ(found.num_nan_bits, 1);
  EXPECT_EQ(found.num_nan_on_one_side, 0);
  EXPECT_EQ(found.largest_absolute, 0);
}

TEST_F(Diff, ANanOnOneSideIsCountedAndLeavesTheLargestDifferenceOfTheOthers) {
  const auto found = difference({1, kNan, 3, 4}, {kNan, 2, 3.5F, 4}, {4});
  EXPECT_EQ(found.num_differing, 3);
  EXPECT_EQ(found.num_nan_on_one_side, 2);
  EXPECT_EQ(found.largest_absolute, 0.5);
  EXPECT_EQ(found.largest_relative, 0.5 / 3.5);
}

TEST_F(Diff, AnInfinityOnOneSideIsInfinitelyFar) {
  const auto found = difference({kInfinity, 1}, {3, 1}, {2});
  EXPECT_EQ(found.num_differing, 1);
  EXPECT_EQ(found.largest_absolute, double{kInfinity});
  EXPECT_EQ(found.largest_relative, double{kInfinity});
}

// Three windows and a rest, so that parts of a tensor come from several threads.
TEST_F(Diff, TheResultDoesNotDependOnTheThreads) {
  const int64_t count = 3 * (512 << 10) + 77;
  std::vector<float> a(static_cast<size_t>(count), 1.0F), b = a;
  b[static_cast<size_t>(count - 1)] = 5.0F;
  b[(512 << 10) + 3] = 2.0F;
  b[(1024 << 10)] = kNan;
  const auto one = difference(a, b, {count}), four = difference(a, b, {count}, 4);
  for (const auto* each : {&one, &four}) {
    EXPECT_EQ(each->num_differing, 3);
    EXPECT_EQ(each->first, (512 << 10) + 3);
    EXPECT_EQ(each->first_b, 2.0F);
    EXPECT_EQ(each->largest_absolute, 4.0);
    EXPECT_EQ(each->num_nan_on_one_side, 1);
  }
}

TEST_F(Diff, MissingTensorsAndOtherShapesAreNamed) {
  const std::vector<float> values(12, 1.0F);
  const Shape flat{12}, matrix{3, 4};
  const auto open = [&](const char* name, const std::vector<PieceView>& pieces) {
    write_checkpoint(folder_ / name, pieces, {}, {});
    return CheckpointReader::open(folder_ / name);
  };
  const auto a = open("a", {{"master/both", whole_slice(flat), values.data()},
                            {"master/gone", whole_slice(flat), values.data()},
                            {"master/shape", whole_slice(flat), values.data()}});
  const auto b = open("b", {{"master/both", whole_slice(flat), values.data()},
                            {"exp_avg/new", whole_slice(matrix), values.data()},
                            {"master/shape", whole_slice(matrix), values.data()}});
  const auto found = diff_checkpoints(a, b, {});
  ASSERT_EQ(found.tensors.size(), 3u);
  EXPECT_EQ(found.num_tensors, 4);
  EXPECT_EQ(found.tensors[0].name, "exp_avg/new");
  EXPECT_EQ(found.tensors[0].kind, Kind::kOnlyInB);
  EXPECT_EQ(found.tensors[1].kind, Kind::kOnlyInA);
  EXPECT_EQ(found.tensors[2].kind, Kind::kShape);
  EXPECT_EQ(found.tensors[2].shape_b, matrix);
  EXPECT_TRUE(diff_checkpoints(a, b, {.tensors = "*/both"}).is_empty());
  EXPECT_SAYS(refusal<CheckpointError>([&] { diff_checkpoints(a, b, {.tensors = "moments*"}); }),
              "no tensor has a name that moments* matches; there are 3 such as master/both");
}

TEST_F(Diff, ValuesOfTheStateAreNamedByTheirPathsAndTheConfigurationByItsFields) {
  RunConfig config;
  config.optimizer.lr = 0.125;
  const std::string before = dump_run_config(config);
  config.optimizer.lr = 0.25;
  const std::vector<float> values(4, 1.0F);
  const nlohmann::json state_a{{"step", 3}, {"cursors", {1, 2}}, {"zero", 0.0}, {"config", before}, {"only", 1}},
      state_b{{"step", 3}, {"cursors", {1, 4, 5}}, {"zero", -0.0}, {"config", dump_run_config(config)}};
  const auto a = write_tensor("a", values, {4}, false, state_a), b = write_tensor("b", values, {4}, false, state_b);
  std::vector<std::string> lines;
  for (const auto& each : diff_checkpoints(a, b, {}).values)
    lines.push_back(fmt::format("{}: {} and {}", each.path, each.a, each.b));
  EXPECT_EQ(lines, (std::vector<std::string>{"state.config: optimizer.lr: 0.125 and 0.25", "state.cursors[1]: 2 and 4",
                                             "state.cursors[2]: absent and 5", "state.only: 1 and absent",
                                             "state.zero: 0.0 and -0.0"}));
  EXPECT_TRUE(diff_checkpoints(a, b, {.values = false}).is_empty());
}

// The manifest alone claims them; the first look at its file finds that it is not there.
TEST_F(Diff, ATensorOf2To60ElementsTakesNoMemory) {
  const auto write_claim = [&](const char* name) {
    Manifest manifest;
    const Shape shape{int64_t{1} << 30, int64_t{1} << 30};
    const auto* file = &*manifest.files.emplace("x.safetensors", (uint64_t{1} << 62) + 100).first;
    manifest.add_piece(manifest.add_tensor("master/a", shape), file, whole_slice(shape), 100, {});
    write(std::string(name) + "/manifest.json", manifest_text(manifest));
    return CheckpointReader::open(folder_ / name);
  };
  const auto a = write_claim("a"), b = write_claim("b");
  EXPECT_SAYS(refusal<CheckpointError>([&] { diff_checkpoints(a, b, {.num_threads = 2}); }),
              "x.safetensors is missing");
}

}  // namespace
}  // namespace athanor::diff_test
