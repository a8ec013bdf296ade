#include "arch/model_spec.h"

#include <charconv>

namespace athanor::inline arch {
namespace {

NormSpec make_norm(const ModelConfig& m, int64_t layer, std::string name) {
  const Family& family = family_of(m);
  return {std::move(name), layer, family.norm, m.hidden_size, norm_eps(m), family.norm_offset};
}

}  // namespace

void LayerSpec::append_parameters(std::vector<ParameterSpec>& all) const {
  const auto append = [&](const auto& block) { block.append_parameters(all); };
  if (attention_norm) append(*attention_norm);
  append(attention);
  if (attention_out_norm) append(*attention_out_norm);
  if (feed_forward_norm) append(*feed_forward_norm);
  std::visit(append, feed_forward);
  if (feed_forward_out_norm) append(*feed_forward_out_norm);
}

std::vector<ParameterSpec> ModelSpec::parameters() const {
  std::vector<ParameterSpec> all = {embedding.parameter()};
  if (positions) all.push_back(positions->parameter());
  for (const LayerSpec& layer : layers) layer.append_parameters(all);
  final_norm.append_parameters(all);
  if (output) output->append_parameters(all);
  return all;
}

LayerSpec make_layer_spec(const ModelConfig& m, int64_t layer) {
  const FamilyNames& names = family_of(m).names;
  LayerSpec spec;
  spec.name = names.layers + "." + std::to_string(layer);
  spec.previous = layer > 0 ? names.layers + "." + std::to_string(layer - 1) : names.embedding;
  spec.index = layer;
  spec.parallel = family_of(m).parallel;
  const std::string prefix = spec.name + ".", feed_forward = prefix + names.feed_forward;
  const auto norm = [&](const std::string& name) {
    return name.empty() ? std::nullopt : std::optional(make_norm(m, layer, prefix + name));
  };
  spec.attention_norm = norm(names.attention_norm);
  spec.attention = make_attention(m, layer, prefix);
  spec.attention_out_norm = norm(names.attention_out_norm);
  spec.feed_forward_norm = norm(names.feed_forward_norm);
  spec.feed_forward_out_norm = norm(names.feed_forward_out_norm);
  if (m.is_sparse_layer(layer))
    spec.feed_forward = make_sparse(m, layer, feed_forward);
  else
    spec.feed_forward = make_feed_forward(m, layer, feed_forward, m.intermediate_size);
  return spec;
}

ModelSpec make_model_spec(const ModelConfig& m) {
  ModelSpec spec;
  spec.embedding = make_embedding(m);
  spec.embedding_scale = embedding_scale(m);
  spec.positions = make_positions(m);
  for (int64_t layer = 0; layer < m.num_hidden_layers; ++layer) spec.layers.push_back(make_layer_spec(m, layer));
  spec.final_norm = make_norm(m, -1, family_of(m).names.final_norm);
  // The same logits as if the output were multiplied by the width's ratio, with nothing but weights.
  if (m.tie_word_embeddings) spec.final_norm.width_class = WidthClass::kOutput;
  spec.output = make_output(m);
  spec.output_cap = m.final_logit_softcapping;
  return spec;
}

PlaceInLayer place_in_layer(const FamilyNames& names, std::string_view place) {
  const size_t number = names.layers.size() + 1;  // after "model.layers."
  if (!place.starts_with(names.layers) || place.size() <= number || place[number - 1] != '.') return {-1, place};
  PlaceInLayer found;
  const auto [end, error] = std::from_chars(place.data() + number, place.data() + place.size(), found.layer);
  found.part = place.substr(static_cast<size_t>(end - place.data()));
  return found;
}

}  // namespace athanor::inline arch
