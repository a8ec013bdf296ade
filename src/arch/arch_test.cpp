#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "arch/flops.h"
#include "arch/inventory.h"
#include "config/toml_reader.h"

namespace athanor::arch_test {
namespace {

RunConfig recipe(const std::string& name) {
  const char* source = std::getenv("ATHANOR_SOURCE_DIR");
  const std::filesystem::path root = source ? source : ".";
  return load_run_config(root / "recipes" / (name + ".toml"));
}

struct PaperRow {
  const char* recipe;
  double total_billions, active_billions;
  double half_unit_total, half_unit_active;  // half a unit of the last digit in the table
};

class PaperTable : public testing::TestWithParam<PaperRow> {};

// Optimus, Table 1, rounded there to two digits.
TEST_P(PaperTable, TotalAndActiveParametersAgree) {
  const auto& row = GetParam();
  const auto config = recipe(row.recipe);
  EXPECT_NEAR(static_cast<double>(count_parameters(config.model)) * 1e-9, row.total_billions, row.half_unit_total);
  EXPECT_NEAR(static_cast<double>(count_active_parameters(config.model)) * 1e-9, row.active_billions,
              row.half_unit_active);
}

INSTANTIATE_TEST_SUITE_P(
    Mula, PaperTable,
    testing::Values(PaperRow{"mula-1b", 1.28, 1.28, 0.005, 0.005}, PaperRow{"mula-7b-a1b", 6.9, 1.3, 0.05, 0.05},
                    PaperRow{"mula-20b-a2b", 20, 2.4, 0.5, 0.05}, PaperRow{"mula-100b-a7b", 100, 7.6, 0.5, 0.05},
                    PaperRow{"mula-220b-a10b", 220, 10, 5, 0.5}, PaperRow{"olmoe-1b-7b", 6.92, 1.28, 0.005, 0.005},
                    PaperRow{"gpt2-124m", 0.12444, 0.12444, 0.000005, 0.000005},
                    PaperRow{"olmo-1b", 1.177, 1.177, 0.0005, 0.0005}));

// AuroraGPT-2B: "1.986B params", cut off there; Qwen3-30B-A3B: "30.5B in total and 3.3B activated", cut off too.
INSTANTIATE_TEST_SUITE_P(Others, PaperTable,
                         testing::Values(PaperRow{"auroragpt-2b", 1.9865, 1.9865, 0.0005, 0.0005},
                                         PaperRow{"auroragpt-20b", 20, 20, 0.5, 0.5},
                                         PaperRow{"auroragpt-80b", 80, 80, 0.5, 0.5},
                                         PaperRow{"qwen3-30b-a3b", 30.5, 3.35, 0.05, 0.05}));

// BaGuaLu, Table 3: "1.160T" to "173.9T".
TEST(Inventory, ModaModelsHaveTheParametersOfTheirTable) {
  for (const auto& [name, parameters] :
       {std::pair{"moda-1.16t", 1.160e12}, {"moda-1.93t", 1.934e12}, {"moda-14.5t", 14.50e12}, {"moda-174t", 173.9e12}})
    EXPECT_NEAR(static_cast<double>(count_parameters(recipe(name).model)), parameters, 0.001 * parameters) << name;
}

TEST(Inventory, AuroraGptCountsAsByHand) {
  const int64_t d = 2048, kv = 4 * 128, f = 11008, vocabulary = 256128;
  const int64_t layer = 2 * d * d + 2 * d * kv + 3 * d * f + 2 * d;
  EXPECT_EQ(count_parameters(recipe("auroragpt-2b").model), 12 * layer + 2 * vocabulary * d + d);
}

TEST(Inventory, Qwen3MoeHasHeadsOfTheirOwnWidthAndOneScaleForAll) {
  const auto model = recipe("qwen3-30b-a3b").model;
  const int64_t d = 2048, q = 32 * 128, kv = 4 * 128, experts = 128, f = 768, vocabulary = 151936;
  const int64_t attention = 2 * q * d + 2 * kv * d + 2 * 128, norms = 2 * d, router = experts * d;
  EXPECT_EQ(count_parameters(model), 48 * (attention + norms + router + experts * 3 * d * f) + 2 * vocabulary * d + d);
  EXPECT_EQ(count_active_parameters(model), 48 * (attention + norms + router + 8 * 3 * d * f) + 2 * vocabulary * d + d);
}

TEST(Inventory, DenseLayersAmongSparseOnesHaveTheDenseWidth) {
  auto model = recipe("qwen3-moe-tiny").model;
  model.num_hidden_layers = 4;
  model.decoder_sparse_step = 2;
  model.mlp_only_layers = {3};
  model.intermediate_size = 300;
  std::map<int64_t, std::vector<int64_t>> gate_of_layer;
  for (const auto& spec : make_inventory(model)) {
    if (spec.role == Role::kGate || spec.role == Role::kExpertGate) gate_of_layer[spec.layer] = spec.shape;
  }
  const int64_t d = model.hidden_size;
  const std::vector<int64_t> dense = {300, d}, sparse = {model.num_experts, model.moe_intermediate_size, d};
  EXPECT_EQ(gate_of_layer, (std::map<int64_t, std::vector<int64_t>>{{0, dense}, {1, sparse}, {2, dense}, {3, dense}}));
}

TEST(Inventory, SharedExpertsAreOneDenseLayerBesideTheChosenOnes) {
  auto model = recipe("qwen3-moe-tiny").model;
  const int64_t without = count_parameters(model), active = count_active_parameters(model);
  const double flops = count_forward_flops(model, 1, 64).feed_forward;
  model.num_shared_experts = 3;
  const int64_t f = 3 * model.moe_intermediate_size, d = model.hidden_size,
                added = model.num_sparse_layers() * 3 * f * d;
  EXPECT_EQ(count_parameters(model) - without, added);
  EXPECT_EQ(count_active_parameters(model) - active, added);
  EXPECT_DOUBLE_EQ(count_forward_flops(model, 1, 64).feed_forward - flops, 2.0 * 64 * static_cast<double>(added));
  std::map<std::string, std::vector<int64_t>> shared;
  for (const auto& spec : make_inventory(model)) {
    if (spec.name.find("shared_experts") == std::string::npos) continue;
    EXPECT_FALSE(spec.is_expert()) << spec.name;
    if (spec.layer == 0) shared[spec.name] = spec.shape;
  }
  const std::string prefix = "model.layers.0.mlp.shared_experts.";
  EXPECT_EQ(shared, (std::map<std::string, std::vector<int64_t>>{{prefix + "gate_proj.weight", {f, d}},
                                                                 {prefix + "up_proj.weight", {f, d}},
                                                                 {prefix + "down_proj.weight", {d, f}}}));
}

TEST(Inventory, NamesAreUniqueAndTiedOutputIsTheEmbedding) {
  auto model = recipe("olmoe-tiny").model;
  std::vector<std::string> names;
  for (const auto& spec : make_inventory(model)) names.push_back(spec.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  EXPECT_TRUE(std::binary_search(names.begin(), names.end(), "lm_head.weight"));
  const int64_t untied = count_parameters(model);
  model.tie_word_embeddings = true;
  EXPECT_EQ(untied - count_parameters(model), model.vocab_size * model.hidden_size);
}

class FlopsOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Recipes, FlopsOf,
                         testing::Values("mula-1b", "olmoe-1b-7b", "auroragpt-2b", "qwen3-30b-a3b", "gpt2-124m"));

TEST_P(FlopsOf, ForwardIsTwiceTheActiveMatrixParametersPerTokenPlusScores) {
  auto model = recipe(GetParam()).model;
  if (model.family == "qwen3_moe") model.mlp_only_layers = {0, 3};
  const int64_t seq_len = 512;
  double matrix_parameters = 0;
  for (const auto& spec : make_inventory(model)) {
    const bool is_matrix = spec.shape.size() > 1 && spec.role != Role::kPositions;
    if (!is_matrix || (spec.role == Role::kEmbedding && !model.tie_word_embeddings)) continue;  // a look-up costs none
    const double share = spec.is_expert() ? static_cast<double>(model.num_experts_per_tok) / model.num_experts : 1.0;
    matrix_parameters += share * static_cast<double>(spec.num_elements());
  }
  const auto count = count_forward_flops(model, 2, seq_len);
  EXPECT_DOUBLE_EQ(count.total() - count.attention_scores, 2 * matrix_parameters * 2 * seq_len);
  const int64_t width = model.num_attention_heads * model.head_dim(), pairs = seq_len * (seq_len + 1) / 2;
  EXPECT_DOUBLE_EQ(count.attention_scores, static_cast<double>(model.num_hidden_layers * 2 * 2 * 2 * pairs * width));
}

TEST(Flops, ForwardOfALargeModelCountsAsByHand) {
  const auto model = recipe("olmoe-1b-7b").model;
  const int64_t seq_len = 4096;
  double matrix_parameters = 0;
  for (const auto& spec : make_inventory(model)) {
    if (spec.is_norm() || spec.role == Role::kEmbedding) continue;  // a look-up costs no FLOPs
    const double share = spec.is_expert() ? static_cast<double>(model.num_experts_per_tok) / model.num_experts : 1.0;
    matrix_parameters += share * static_cast<double>(spec.num_elements());
  }
  const auto count = count_forward_flops(model, 1, seq_len);
  EXPECT_DOUBLE_EQ(count.total() - count.attention_scores, 2 * matrix_parameters * seq_len);
  // By hand: 16 layers, 2 multiplications, each of 4096 tokens over 2048.5 keys and 2048 wide.
  EXPECT_DOUBLE_EQ(count.attention_scores, 16.0 * 2 * 2 * 4096 * 2048.5 * 2048);
  EXPECT_DOUBLE_EQ(count_train_flops(model, 3, seq_len), 9 * count.total());
}

TEST(Flops, ATinyModelCountsAsByHand) {
  ModelConfig m;
  m.family = "olmo";
  m.hidden_size = 4;
  m.num_attention_heads = 2;
  m.num_hidden_layers = 1;
  m.intermediate_size = 6;
  m.vocab_size = 10;
  const auto count = count_forward_flops(m, 1, 3);
  EXPECT_EQ(count.attention_projections, 4 * 2 * 3 * 4 * 4);
  EXPECT_EQ(count.attention_scores, 2 * 2 * (1 + 2 + 3) * 4);  // 6 attended pairs
  EXPECT_EQ(count.feed_forward, 3 * 2 * 3 * 6 * 4);
  EXPECT_EQ(count.output, 2 * 3 * 10 * 4);
}

}  // namespace
}  // namespace athanor::arch_test
