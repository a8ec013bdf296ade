#include "arch/blocks/ends.h"

#include "config/families.h"

namespace athanor::inline arch {

ParameterSpec EmbeddingSpec::parameter() const {
  return {.name = weight(),
          .shape = {rows, width},
          .role = Role::kEmbedding,
          .layer = -1,
          .sharded = {.tensor = 0},
          .width = WidthClass::kInput};
}

EmbeddingSpec make_embedding(const ModelConfig& m) {
  return {family_of(m).names.embedding, m.vocab_size, m.hidden_size};
}

std::optional<LinearSpec> make_output(const ModelConfig& m) {
  if (m.tie_word_embeddings) return std::nullopt;
  return LinearSpec{family_of(m).names.head, m.vocab_size, m.hidden_size, Role::kOutput, -1, 0};
}

}  // namespace athanor::inline arch
