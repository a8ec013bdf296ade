// Matrices that a folder has transposed and fused are read in slabs of a million elements.

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "checkpoint/hf_import.h"

namespace athanor::hf_transposed_test {
namespace {

// A different number for each element of a tensor.
std::vector<float> counted(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i);
  return values;
}

class HfTransposed : public FolderTest {
 protected:
  static constexpr int64_t kWidth = 600, kInner = 4001;  // 2.4 M elements, of which a slab has no whole part

  // Writes a GPT-2 of one layer, every tensor with the numbers of `counted`.
  void SetUp() override {
    FolderTest::SetUp();
    HfConfig config;
    config.model.family = "gpt2";
    config.model.hidden_size = kWidth;
    config.model.num_hidden_layers = 1;
    config.model.num_attention_heads = 4;
    config.model.intermediate_size = kInner;
    config.model.vocab_size = 3;
    config.model.max_position_embeddings = 2;
    config.model.tie_word_embeddings = true;
    write_raw(folder_ / kHfConfigName, hf_config_text(config, Dtype::kF32));
    std::map<std::string, Shape> shapes;
    for (const ParameterSpec& parameter : make_inventory(config.model))
      for (const HfPart& part : hf_parts(parameter)) shapes[part.tensor] = part.shape;
    std::vector<TensorSpec> specs;
    for (const auto& [name, shape] : shapes) specs.push_back({name, Dtype::kF32, shape});
    SafetensorsWriter writer(folder_ / kHfWeightsName, specs);
    for (const TensorSpec& spec : specs) writer.append_floats(Dtype::kF32, counted(num_elements(spec.shape).value()));
    writer.commit();
  }
};

// Element (row, column) of the parameter is element (column, first_row + row) of the tensor, which has `rows` columns.
void expect_transposed(const HfFolder& folder, const std::string& name, int64_t columns, int64_t first_row,
                       int64_t rows, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  folder.read(name, first, values);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = (first + i) / columns, column = (first + i) % columns;
    ASSERT_EQ(values[static_cast<size_t>(i)], static_cast<float>(column * rows + first_row + row)) << name << " " << i;
  }
}

TEST_F(HfTransposed, AnyRangeHasTheElementsOfTheTensor) {
  const HfFolder folder = HfFolder::open(folder_);
  const std::string mlp = "transformer.h.0.mlp.", attn = "transformer.h.0.attn.";
  expect_transposed(folder, mlp + "c_fc.weight", kWidth, 0, kInner, 0, kInner * kWidth);
  expect_transposed(folder, mlp + "c_proj.weight", kInner, 0, kWidth, 0, kInner * kWidth);
  // Parts of rows, on both sides of the ends of slabs, of several parameters in turns.
  for (const int64_t first : {0L, 1'047'999L, 1'048'001L, 2'097'000L, 2'400'599L - 100}) {
    expect_transposed(folder, mlp + "c_fc.weight", kWidth, 0, kInner, first, 100);
    expect_transposed(folder, attn + "k_proj.weight", kWidth, kWidth, 3 * kWidth, first % 300'000, 1000);
    expect_transposed(folder, attn + "v_proj.weight", kWidth, 2 * kWidth, 3 * kWidth, first % 300'000, 1000);
  }
}

TEST_F(HfTransposed, RunsBeyondTheTensorAreRefused) {
  const auto file = SafetensorsFile::open(folder_ / kHfWeightsName);
  std::vector<float> values(6);
  file.read_runs("transformer.wpe.weight", 1, kWidth, 2, 3, values);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, kWidth + 1, kWidth + 2, kWidth + 3}));
  EXPECT_SAYS(message_of<CheckpointError>([&] { file.read_runs("transformer.wpe.weight", 598, kWidth, 2, 3, values); }),
              "has 1200 elements");
}

}  // namespace
}  // namespace athanor::hf_transposed_test
