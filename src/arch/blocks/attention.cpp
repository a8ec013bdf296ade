#include "arch/blocks/attention.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace athanor::inline arch {
namespace {

constexpr double kLatentEps = 1e-6;  // as in `transformers`, whatever rms_norm_eps is

ParameterSpec norm_scale(const AttentionSpec& a, const std::string& name, const LinearSpec& normed) {
  const bool whole = a.qk_norm == QkNorm::kWhole;
  return {.name = name,
          .shape = {whole ? normed.rows : a.head_dim},
          .role = Role::kQkNorm,
          .layer = a.layer,
          .sharded = {.tensor = whole ? 0 : -1},
          .of_key_heads = whole && normed.of_key_heads,
          .gradient = TensorGradient::kOfHeads,
          .initial = a.norm_offset == 0 ? Initial::kOne : Initial::kZero,
          .width = WidthClass::kInput};
}

// Sets the forms of queries, keys and values in files that have them as one tensor: one after the other, or those of
// each head.
void fuse(AttentionSpec& a, const std::string& tensor, bool by_heads) {
  const int64_t rows = a.query.rows + a.key.rows + a.value.rows;
  int64_t first = 0;
  for (LinearSpec* part : {&a.query, &a.key, &a.value}) {
    part->form.fused = a.name + "." + tensor;
    part->form.first_row = first;
    part->form.rows = rows;
    if (by_heads) part->form.heads = a.heads, part->form.head_step = rows / a.heads;
    first += by_heads ? a.head_dim : part->rows;
  }
}

// Sets the forms of queries and keys of which a part is turned.
void turn_partly(AttentionSpec& a, int64_t rotated) {
  for (LinearSpec* part : {&a.query, &a.key}) {
    FileForm& form = part->form;
    if (form.heads == 1) form.heads = part->rows / a.head_dim, form.head_step = a.head_dim;
    form.rotated = rotated;
  }
}

// A latent's matrix and norm are the same on all tensor ranks, of which each knows the gradient of its heads.
LatentSpec make_latent(const AttentionSpec& a, const ModelConfig& m, const std::string& down, const std::string& norm,
                       int64_t rank) {
  LatentSpec latent{{a.name + "." + down, rank, m.hidden_size, Role::kLatent, a.layer},
                    {.name = a.name + "." + norm, .layer = a.layer, .width = rank, .eps = kLatentEps}};
  latent.down.gradient = latent.norm.gradient = TensorGradient::kOfHeads;
  return latent;
}

// Makes of queries, keys and values those that read latents. Files have the dims that positions turn after the others.
void make_latents(AttentionSpec& a, const ModelConfig& m, const FamilyNames& names) {
  const int64_t turned = m.qk_rope_head_dim, rank = m.kv_lora_rank, of_values = m.v_head_dim,
                of_keys = m.qk_nope_head_dim;
  if (m.q_lora_rank > 0) {
    a.query_latent = make_latent(a, m, names.query_down, names.query_down_norm, m.q_lora_rank);
    a.query.name = a.name + "." + names.query_up;
    a.query.columns = m.q_lora_rank;
  }
  a.query.form.heads = a.heads, a.query.form.head_step = a.head_dim;
  a.query.form.rotated = turned, a.query.form.interleaved = true;
  a.key_value_latent = make_latent(a, m, names.latent, names.key_value_norm, rank);
  a.key_value_latent->down.form = {.fused = a.name + "." + names.key_value_down, .rows = rank + turned};
  a.shared_key = {a.name + "." + names.shared_key, turned, m.hidden_size, Role::kLatent, a.layer};
  a.shared_key->gradient = TensorGradient::kOfHeads;
  a.shared_key->form = a.key_value_latent->down.form;
  a.shared_key->form.first_row = rank, a.shared_key->form.head_step = turned;
  a.shared_key->form.rotated = turned, a.shared_key->form.interleaved = true;
  a.key.rows = a.heads * of_keys, a.value.rows = a.heads * of_values;
  a.key.columns = a.value.columns = rank;
  a.key.form = {.fused = a.name + "." + names.key_value_up,
                .rows = a.heads * (of_keys + of_values),
                .heads = a.heads,
                .head_step = of_keys + of_values};
  a.value.form = a.key.form;
  a.value.form.first_row = of_keys;
  const double temperature = m.rope_scaling.temperature(m.rope_scaling.mscale_all_dim);  // 1 without yarn
  a.scale = temperature * temperature / std::sqrt(static_cast<double>(a.head_dim));
}

}  // namespace

void AttentionSpec::append_parameters(std::vector<ParameterSpec>& all) const {
  for (const auto* latent : {&query_latent, &key_value_latent}) {
    if (!*latent) continue;
    (*latent)->down.append_parameters(all);
    (*latent)->norm.append_parameters(all);
  }
  if (shared_key) shared_key->append_parameters(all);
  for (const LinearSpec* linear : {&query, &key, &value, &out}) linear->append_parameters(all);
  if (!sinks.empty())
    all.push_back({.name = sinks,
                   .shape = {heads},
                   .role = Role::kBias,
                   .layer = layer,
                   .sharded = {.tensor = 0},
                   .width = WidthClass::kInput});
  if (qk_norm == QkNorm::kNone) return;
  all.push_back(norm_scale(*this, query_norm, query));
  all.push_back(norm_scale(*this, key_norm, key));
}

double AttentionSpec::projection_flops(double tokens) const {
  double flops = query.flops(tokens) + key.flops(tokens) + value.flops(tokens) + out.flops(tokens);
  for (const auto* latent : {&query_latent, &key_value_latent})
    if (*latent) flops += (*latent)->down.flops(tokens);
  return flops + (shared_key ? shared_key->flops(tokens) : 0);
}

namespace {

// A token attends to itself and those before it: to half of a sequence on average, less what the window leaves out.
double tokens_attended(double seq_len, int64_t window) {
  const double far = window > 0 ? std::max(seq_len - static_cast<double>(window), 0.0) : 0;
  return (seq_len + 1) / 2 - far * (far + 1) / 2 / seq_len;
}

}  // namespace

double AttentionSpec::logit_flops(double tokens, double seq_len) const {
  return matmul_flops(tokens, tokens_attended(seq_len, window), static_cast<double>(query.rows));
}

double AttentionSpec::score_flops(double tokens, double seq_len) const {
  return logit_flops(tokens, seq_len) +
         matmul_flops(tokens, tokens_attended(seq_len, window), static_cast<double>(heads * value_dim));
}

// Keys and values are divided, or neighbours hold the same head.
void AttentionSpec::check_tensor_ranks(int64_t degree, Findings& found) const {
  if (heads % degree != 0)
    found.require(false,
                  "parallelism.tensor_parallel_degree ({}) must divide model.num_attention_heads ({}): no two ranks "
                  "share a query head; set it to one of {}",
                  degree, heads, divisors_of(heads));
  if (kv_heads != heads && kv_heads % degree != 0 && degree % kv_heads != 0)
    found.require(
        false,
        "parallelism.tensor_parallel_degree ({}) must divide model.num_key_value_heads ({}), or be a multiple "
        "of it: ranks have different heads, or equally many ranks share each head; set it to one of {}",
        degree, kv_heads, divisors_of(kv_heads));
}

AttentionSpec make_attention(const ModelConfig& m, int64_t layer, const std::string& prefix) {
  const Family& family = family_of(m);
  const FamilyNames& names = family.names;
  AttentionSpec a;
  a.name = prefix + names.attention;
  a.layer = layer;
  a.heads = m.num_attention_heads, a.kv_heads = m.kv_heads();
  a.head_dim = m.head_dim(), a.value_dim = m.value_dim();
  const auto linear = [&](const std::string& name, int64_t rows, int64_t columns, Role role, int tensor) {
    const bool of_key_heads = role == Role::kKey || role == Role::kValue;
    LinearSpec spec{a.name + "." + name, rows, columns, role, layer, tensor, of_key_heads};
    spec.has_bias = family.biases == Biases::kAll || (family.biases == Biases::kQkv && role != Role::kAttentionOut);
    spec.form.transposed = family.transposed;
    return spec;
  };
  a.query = linear(names.query, a.heads * a.head_dim, m.hidden_size, Role::kQuery, 0);
  a.key = linear(names.key, a.kv_heads * a.head_dim, m.hidden_size, Role::kKey, 0);
  a.value = linear(names.value, a.kv_heads * a.head_dim, m.hidden_size, Role::kValue, 0);
  a.out = linear(names.attention_out, m.hidden_size, a.heads * a.value_dim, Role::kAttentionOut, 1);
  a.out.deviation = residual_deviation(m);
  if (!names.fused_qkv.empty()) fuse(a, names.fused_qkv, family.qkv_by_heads);
  if (m.has_latents())
    make_latents(a, m, names);
  else if (m.rotated_dims() < a.head_dim)
    turn_partly(a, m.rotated_dims());
  a.qk_norm = family.qk_norm;
  a.query_norm = a.name + "." + names.query_norm + ".weight";
  a.key_norm = a.name + "." + names.key_norm + ".weight";
  a.norm_eps = norm_eps(m), a.norm_offset = family.norm_offset;
  a.clip = m.clip_qkv;
  a.rotates = family.positions == Positions::kRotary;
  a.window = m.window_of(layer);
  a.scales_rotation = a.window == 0 || !m.rotates_windows_apart();
  if (m.query_pre_attn_scalar > 0) a.scale = 1 / std::sqrt(static_cast<double>(m.query_pre_attn_scalar));
  if (m.scale_attn_by_inverse_layer_idx)
    a.scale = 1 / (std::sqrt(static_cast<double>(a.head_dim)) * static_cast<double>(layer + 1));
  a.soft_cap = m.attn_logit_softcapping;
  if (!names.sinks.empty()) a.sinks = a.name + "." + names.sinks;
  return a;
}

}  // namespace athanor::inline arch
