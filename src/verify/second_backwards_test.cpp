// Second backwards of one rank against the reference's: what is wrong in them is named by its quantity, and rounding is
// not. Layouts are in tests/mpi/test_verify.py.

#include "verify/second_backwards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/testing/folder_test.h"
#include "verify/measured.h"
#include "verify/plants/stage_decorator.h"
#include "verify/small_model.h"
#include "verify/testing/traced_model.h"
#include "verify/traced_run.h"

namespace athanor::second_backwards_test {
namespace {

namespace fs = std::filesystem;

// The probabilities with which two runs draw different labels, for logits of several shapes and differences of
// deviation σ: at most that of the header, and half of it, since of independent differences it is σ / √π.
void expect_changes_as_predicted(int64_t rows) {
  constexpr int64_t kIds = 12;
  constexpr double kDeviation = 0.02;
  const Tensor targets = at::zeros({rows}, at::kLong);
  auto generator = at::detail::createCPUGenerator(5);
  for (const double size : {0.0, 1.0, 4.0}) {
    const Tensor logits = at::randn({rows, kIds}, generator) * size,
                 moved = logits + at::randn({rows, kIds}, generator) * kDeviation;
    const auto drawn = [&](const Tensor& x) { return ops::labels_of(x, targets, {true, 3, 0}); };
    const auto changed = drawn(logits).ne(drawn(moved)).sum().item<double>();
    EXPECT_LT(changed, static_cast<double>(rows) * kDeviation / std::sqrt(2.0)) << size;
    // One pair of ids after the other, whose columns are contiguous: all pairs at once take far more memory and time.
    const Tensor p = logits.softmax(1).to(at::kDouble).t().contiguous(),
                 difference = (moved - logits).to(at::kDouble).t().contiguous();
    double expected = 0;
    for (int64_t i = 0; i < kIds; ++i)
      for (int64_t j = 0; j < i; ++j)
        expected += (p[i] * p[j] * (difference[i] - difference[j]).abs()).sum().item<double>();
    // Binomial, within 5 standard deviations; the second order of δ is below a hundredth.
    EXPECT_NEAR(changed, expected, 5 * std::sqrt(expected) + 0.03 * expected) << size;
  }
}

TEST(DrawnLabels, AreChangedByARoundingAsOftenAsTheModelOfItPredicts) { expect_changes_as_predicted(100'000); }

TEST(TestAllDrawnLabels, AreChangedByARoundingAsOftenAsTheModelOfItPredicts) { expect_changes_as_predicted(400'000); }

TEST(DrawnLabels, MayChangeByAsManyAsTheChanceOfMoreIsTenToTheMinusTen) {
  EXPECT_EQ(most_changed_labels(1e-6), 1);
  EXPECT_EQ(most_changed_labels(1e-4), 2);
  EXPECT_EQ(most_changed_labels(2), 17);
  int64_t last = 0;
  for (const double mean : {1e-6, 0.01, 0.5, 3.0, 40.0, 1e4}) {
    const int64_t most = most_changed_labels(mean);
    EXPECT_GE(most, last);
    EXPECT_GT(static_cast<double>(most), mean);
    last = most;
  }
}

// Changes the labels of second backwards. A plant, as those of plants/ are, that acts on one rank.
class WrongDraw : public plants::Plant {
 public:
  using Change = void (*)(Labels& labels);
  explicit WrongDraw(Change change) : change_(change) {}

  std::unique_ptr<Stage> wrap_stage(Stage& stage, const StageLayers&, const Mesh&) override {
    struct Decorator : plants::StageDecorator {
      Decorator(Stage& stage, Change change) : StageDecorator(stage), change_(change) {}
      Tensor forward(int microbatch, Tensor x, const Labels* labels) override {
        Labels wrong = *labels;
        if (wrong.draw.draws) change_(wrong);
        return StageDecorator::forward(microbatch, std::move(x), &wrong);
      }
      Change change_;
    };
    return std::make_unique<Decorator>(stage, change_);
  }

 private:
  Change change_;
};

class SecondBackwards : public FolderTest {
 protected:
  SecondBackwards() { at::set_num_threads(1); }
  ~SecondBackwards() override { at::set_num_threads(threads_); }

  static RunConfig config(int64_t micro_batch_size, const std::string& dtype = "float32") {
    RunConfig c = traced_model(micro_batch_size);
    c.optimizer.name = "sophiag";
    return make_small_run(c, 1, {.steps = 3, .dtype = dtype, .keep_size = true});
  }
  WholeTrace read(const Trace& trace, const char* name) {
    fs::create_directories(folder_ / name);
    trace.write(folder_ / name / WholeTrace::file_name(0));
    return WholeTrace::read(folder_ / name, 1);
  }
  // A run of microbatches of three sequences, compared with one of twelve.
  Comparisons compare(plants::Plant* plant) {
    const WholeTrace layout = read(trace_run(config(3), 1, nullptr, plant), "layout");
    return compare_traces(config(3), 1, layout, read(trace_reference(config(12), 1, layout), "one"));
  }
  MeasuredComparison::Findings measure(plants::Plant* plant) {
    const RunConfig ours = config(3, "bfloat16"), one = config(12, "bfloat16");
    MeasuredComparison comparison(ours, 1);
    for (uint64_t draw = 1; draw <= 3; ++draw) {
      const WholeTrace layout = read(trace_run(ours, draw, nullptr, plant), "layout");
      comparison.add(layout, read(trace_reference(one, draw, layout), "one"),
                     read(trace_reference(make_truth_run(one), draw, layout), "truth"));
    }
    return comparison.finish();
  }
  // The quantities that lines name: "step 1: Hessians: …".
  static std::set<std::string> quantities_of(const std::vector<std::string>& lines) {
    std::set<std::string> quantities;
    for (const std::string& line : lines) {
      const size_t begin = line.find(": ") + 2;
      quantities.insert(line.substr(begin, line.find(": ", begin) - begin));
    }
    return quantities;
  }
  const int threads_ = at::get_num_threads();
};

TEST_F(SecondBackwards, OfASmallRunAreInEveryOtherStep) {
  const RunConfig c = config(3);
  EXPECT_TRUE(has_second_backward(c, 1) && !has_second_backward(c, 2) && has_second_backward(c, 3));
  RunConfig other = c;
  other.optimizer.name = "adamw";
  EXPECT_FALSE(has_second_backward(other, 1));
  EXPECT_EQ(targets_in_step(c), 12 * 11);
}

TEST_F(SecondBackwards, OfARightRunAgreeWithTheReferenceInBothTypes) {
  const Comparisons found = compare(nullptr);
  for (const auto& fault : found.faults) ADD_FAILURE() << fault;
  ASSERT_EQ(found.worst.size(), 10u);
  for (const auto& c : found.worst) EXPECT_LE(c.share(), 0.6) << c.quantity << " " << c.name;
  const auto [measured, failed] = measure(nullptr);
  for (const auto& fault : measured.faults) ADD_FAILURE() << fault;
  for (const auto& [name, line] : failed) ADD_FAILURE() << line;
  EXPECT_EQ(measured.worst.size(), 12u);
}

TEST_F(SecondBackwards, LabelsThatAreDrawnFromOtherNumbersAreNamedAndNothingElseIs) {
  WrongDraw plant([](Labels& labels) { ++labels.draw.key; });
  const auto faults = compare(&plant).faults;
  EXPECT_EQ(quantities_of(faults), std::set<std::string>{kDrawnLabels});
  EXPECT_EQ(quantities_of(measure(&plant).comparisons.faults), std::set<std::string>{kDrawnLabels});
}

TEST_F(SecondBackwards, GradientsOnDrawnLabelsThatAreOffByAThousandthAreNamedAndNothingElseIs) {
  WrongDraw plant([](Labels& labels) { labels.loss_scale *= 1.001; });
  EXPECT_EQ(quantities_of(compare(&plant).faults), std::set<std::string>{kDrawnGradients});
}

TEST_F(SecondBackwards, GradientsOnDrawnLabelsThatAreOffByATenthAreNamedInBfloat16) {
  WrongDraw plant([](Labels& labels) { labels.loss_scale *= 1.1; });
  const auto [measured, failed] = measure(&plant);
  EXPECT_TRUE(measured.faults.empty());
  EXPECT_TRUE(std::ranges::any_of(
      failed, [](const auto& one) { return one.first.find("on drawn labels") != std::string::npos; }));
  EXPECT_TRUE(std::ranges::none_of(failed, [](const auto& one) { return one.first.starts_with("gradients, step 1"); }));
}

}  // namespace
}  // namespace athanor::second_backwards_test
