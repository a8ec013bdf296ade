#include "parallel/parameters.h"

#include <gtest/gtest.h>

#include "kernels/master.h"

namespace athanor::parameters_test {
namespace {

using Use = ParameterStore::Use;

std::vector<BucketEntry> two_parameters() {
  return {{"a", Replication::kDense, {5}, {0}, {5}}, {"b", Replication::kDense, {300, 700}, {0, 0}, {300, 700}}};
}

// Values of every size, ties to bf16 among them, the same for the same index.
float value_at(int64_t i) {
  const auto bits = static_cast<uint32_t>(i) * 2654435761u;
  return std::bit_cast<float>((bits & 0x807F0000u) | 0x3F000000u | (i % 3 == 0 ? 0x8000u : bits >> 16));
}
void values_from(int64_t first, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = value_at(first + static_cast<int64_t>(i));
}

TEST(ParameterStore, InFp32TheMasterIsWhatForwardReads) {
  ParameterStore store(two_parameters(), at::kFloat, Use::kTraining);
  store.fill_master("b", values_from);
  const Tensor weight = store.weight("b").value;
  for (int64_t i = 0; i < weight.numel(); ++i) ASSERT_EQ(weight.view({-1})[i].item<float>(), value_at(i));
  EXPECT_TRUE(at::equal(weight, store.master_copy("b")));
  EXPECT_FALSE(store.master_low().defined());
}

TEST(ParameterStore, InBf16ForwardReadsTheMasterRoundedAndTheMasterIsStillThere) {
  ParameterStore store(two_parameters(), at::kBFloat16, Use::kTraining);
  store.fill_master("b", values_from);
  const Tensor weight = store.weight("b").value.view({-1}), master = store.master_copy("b").view({-1});
  int64_t moved = 0;
  const auto* rounded = ops::pointer<kernels::Bf16>(weight);
  for (int64_t i = 0; i < master.numel(); ++i) {
    const float expected = kernels::storable_master(value_at(i)), actual = master.data_ptr<float>()[i];
    ASSERT_EQ(actual, expected) << i;
    ASSERT_EQ(rounded[i].bits, bf16_from_float(value_at(i))) << i;
    moved += actual != value_at(i);
  }
  EXPECT_GT(moved, 0);  // or the rule for ties was not put to the test
}

TEST(ParameterStore, RangesMeetWhereTheyAreCut) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    ParameterStore store(two_parameters(), dtype, Use::kTraining);
    const BucketEntry& b = store.entry("b");
    std::vector<float> values(1000), read(600);
    values_from(100, values);
    store.write_master(b, 100, values);
    store.read_master(b, 300, read);
    for (size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(read[i], dtype == at::kFloat ? values[200 + i] : kernels::storable_master(values[200 + i]));
    }
    EXPECT_EQ(store.master_copy("a").count_nonzero().item<int64_t>(), 0);
    EXPECT_EQ(store.master_copy("b").view({-1}).narrow(0, 1100, 1000).count_nonzero().item<int64_t>(), 0);
  }
}

TEST(ParameterStore, TrainingInBf16HoldsEightBytesBesideTheMoments) {
  const ParameterStore store(two_parameters(), at::kBFloat16, Use::kTraining);
  const size_t bytes = store.compute().nbytes() + store.master_low().nbytes() + store.grad().nbytes();
  EXPECT_EQ(bytes, static_cast<size_t>(store.flat_size()) * 8);
}

TEST(ParameterStore, InferenceInBf16HoldsTheWeightsAlone) {
  ParameterStore store(two_parameters(), at::kBFloat16, Use::kInference);
  store.fill_master("a", values_from);
  EXPECT_FALSE(store.grad().defined());
  EXPECT_FALSE(store.master_low().defined());
  EXPECT_EQ(store.weight("a").value[1].item<float>(), bf16_to_float(bf16_from_float(value_at(1))));
}

TEST(ParameterStore, EachParameterBeginsOnACacheLine) {
  const ParameterStore store(two_parameters(), at::kBFloat16, Use::kTraining);
  for (const auto& entry : store.table()) EXPECT_EQ(entry.flat_begin % 64, 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(store.compute().data_ptr()) % 64, 0U);
}

}  // namespace
}  // namespace athanor::parameters_test
