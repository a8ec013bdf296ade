#include "arch/blocks/ends.h"

#include "config/families.h"

namespace athanor::inline arch {

ParameterSpec TableSpec::parameter() const {
  return {.name = weight(),
          .shape = {rows, width},
          .role = role,
          .layer = -1,
          .sharded = {.tensor = role == Role::kEmbedding ? 0 : -1},
          .gradient = TensorGradient::kOfTokens,
          .width = WidthClass::kInput};
}

TableSpec make_embedding(const ModelConfig& m) { return {family_of(m).names.embedding, m.vocab_size, m.hidden_size}; }

std::optional<TableSpec> make_positions(const ModelConfig& m) {
  const Family& family = family_of(m);
  if (family.positions != Positions::kLearned) return std::nullopt;
  return TableSpec{family.names.positions, m.max_position_embeddings, m.hidden_size, Role::kPositions};
}

std::optional<LinearSpec> make_output(const ModelConfig& m) {
  if (m.tie_word_embeddings) return std::nullopt;
  return LinearSpec{family_of(m).names.head, m.vocab_size, m.hidden_size, Role::kOutput, -1, 0};
}

}  // namespace athanor::inline arch
