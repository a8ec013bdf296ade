#include "arch/blocks/ends.h"

namespace athanor::inline arch {

ParameterSpec TableSpec::parameter() const {
  return {.name = weight(),
          .shape = {rows, width},
          .role = role,
          .layer = -1,
          .sharded = {.tensor = tensor},
          .gradient = TensorGradient::kOfTokens,
          .width = WidthClass::kInput};
}

TableSpec make_embedding(const ModelConfig& m) {
  return {family_of(m).names.embedding, m.vocab_size, m.hidden_size, Role::kEmbedding, 0};
}

std::optional<TableSpec> make_positions(const ModelConfig& m) {
  if (family_of(m).positions != Positions::kLearned) return std::nullopt;
  return TableSpec{family_of(m).names.positions, m.max_position_embeddings, m.hidden_size, Role::kPositions};
}

std::optional<LinearSpec> make_output(const ModelConfig& m) {
  if (m.tie_word_embeddings) return std::nullopt;
  return LinearSpec{family_of(m).names.head, m.vocab_size, m.hidden_size, Role::kOutput, -1, false, 0};
}

}  // namespace athanor::inline arch
