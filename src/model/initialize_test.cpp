// Tests initial weights under any split of the experts.

#include "model/initialize.h"

#include <gtest/gtest.h>

#include "model/decoder.h"

namespace athanor::initialize_test {
namespace {

ModelConfig sparse_model() {
  ModelConfig m;
  m.hidden_size = 16;
  m.num_hidden_layers = 2;
  m.num_attention_heads = 2;
  m.intermediate_size = 12;
  m.num_experts = 6;
  m.num_experts_per_tok = 2;
  m.vocab_size = 20;
  return m;
}

TEST(Initialize, ARankThatHoldsSomeExpertsDrawsThoseOfTheWholeModel) {
  const ModelConfig model = sparse_model();
  ParameterStore whole(make_bucket_entries(model), at::kFloat, ParameterStore::Use::kTraining);
  initialize_parameters(model, 1, whole);
  for (int64_t rank = 0; rank < 3; ++rank) {
    ParameterStore part(make_bucket_entries(model, rank, 3), at::kFloat, ParameterStore::Use::kTraining);
    initialize_parameters(model, 1, part);
    EXPECT_LT(part.num_elements(), whole.num_elements());
    for (const BucketEntry& entry : part.table()) {
      Tensor expected = whole.weight(entry.name).value;
      if (entry.replication.is_expert()) expected = expected.narrow(0, rank * 2, 2);
      EXPECT_TRUE(at::equal(part.weight(entry.name).value, expected)) << entry.name << " of rank " << rank;
    }
  }
}

TEST(Initialize, ADegreeThatDoesNotDivideTheExpertsIsRefused) {
  EXPECT_THROW(make_bucket_entries(sparse_model(), 0, 4), ConfigError);
}

}  // namespace
}  // namespace athanor::initialize_test
