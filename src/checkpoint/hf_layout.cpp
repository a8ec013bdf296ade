#include "checkpoint/hf_layout.h"

#include <fmt/core.h>

#include <string_view>

#include "config/families.h"

namespace athanor::inline checkpoint {
namespace {

constexpr std::string_view kExperts = ".experts.";

// Outputs [first, first + count) of a parameter, which begin at output `at` of the tensor in files, each `step` after
// the one before it.
struct Rows {
  int64_t first, count, at, step = 1;
};

// Returns the outputs of a parameter, in runs that are consecutive in the file, or every second one there.
std::vector<Rows> rows_in_file(const FileForm& form, int64_t rows) {
  std::vector<Rows> all;
  const int64_t of_head = rows / form.heads;
  for (int64_t head = 0; head < form.heads; ++head) {
    const int64_t first = head * of_head, at = form.first_row + head * form.head_step;
    if (form.rotated == 0) {
      all.push_back({first, of_head, at});
      continue;
    }
    const int64_t half = of_head / 2, turned = form.rotated / 2;
    const int64_t turned_at = form.interleaved ? at + of_head - 2 * turned : at,
                  others_at = form.interleaved ? at : at + 2 * turned, others = half - turned,
                  step = form.interleaved ? 2 : 1;
    all.push_back({first, turned, turned_at, step});
    if (others > 0) all.push_back({first + turned, others, others_at});
    all.push_back({first + half, turned, form.interleaved ? turned_at + 1 : turned_at + turned, step});
    if (others > 0) all.push_back({first + half + turned, others, others_at + others});
  }
  return all;
}

// A vector is a matrix of one column.
std::vector<HfPart> in_its_form(const ParameterSpec& parameter) {
  const FileForm& form = parameter.form;
  const int64_t rows = parameter.shape[0], columns = parameter.num_elements() / rows;
  const bool is_fused = !form.fused.empty();
  const int64_t rows_of_tensor = is_fused ? form.rows : rows;
  Shape shape = parameter.shape;
  shape[0] = rows_of_tensor;
  if (form.transposed) std::swap(shape[0], shape[1]);
  std::vector<HfPart> parts;
  for (const auto& [first, count, at, step] : rows_in_file(form, rows)) {
    HfPart part{is_fused ? form.fused : parameter.name,
                shape,
                first * columns,
                count,
                columns,
                at * columns,
                step * columns,
                1};
    if (form.transposed) part.at = at, part.row_stride = 1, part.column_stride = rows_of_tensor;
    parts.push_back(std::move(part));
  }
  return parts;
}

// Returns the parts of experts in a tensor that has all of them: a part for each, whose outputs lie in turns with
// others.
std::vector<HfPart> stacked_in_its_form(const ParameterSpec& parameter) {
  const FileForm& form = parameter.form;
  const int64_t experts = parameter.shape[0], rows = parameter.shape[1],
                columns = parameter.num_elements() / experts / rows, of_expert = form.rows * columns;
  Shape shape = parameter.shape;
  shape[1] = form.rows;
  if (form.transposed) std::swap(shape[1], shape[2]);
  std::vector<HfPart> parts;
  for (int64_t expert = 0; expert < experts; ++expert) {
    HfPart part{form.fused,
                shape,
                expert * rows * columns,
                rows,
                columns,
                expert * of_expert + form.first_row * columns,
                form.row_step * columns,
                1};
    if (form.transposed)
      part.at = expert * of_expert + form.first_row, part.row_stride = form.row_step, part.column_stride = form.rows;
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

std::vector<HfPart> hf_parts(const ParameterSpec& parameter) {
  if (!parameter.is_expert()) return in_its_form(parameter);
  if (parameter.form.stacked) return stacked_in_its_form(parameter);
  const auto cut = parameter.name.find(kExperts) + kExperts.size();
  const Shape shape(parameter.shape.begin() + 1, parameter.shape.end());
  const int64_t rows = shape[0], columns = shape[1];
  std::vector<HfPart> parts;
  for (int64_t expert = 0; expert < parameter.shape[0]; ++expert) {
    const std::string name = parameter.name.substr(0, cut) + std::to_string(expert) + "." + parameter.name.substr(cut);
    parts.push_back({name, shape, expert * rows * columns, rows, columns, 0, columns, 1});
  }
  return parts;
}

std::vector<HfPart> hf_stacked_parts(const ParameterSpec& parameter) {
  if (!parameter.is_expert() || parameter.form.stacked) return {};
  const bool is_down = parameter.role == Role::kExpertDown;
  const auto experts = parameter.name.substr(0, parameter.name.find(kExperts) + kExperts.size());
  const int64_t rows = parameter.shape[1], columns = parameter.shape[2];
  Shape shape = parameter.shape;
  if (!is_down) shape[1] *= 2;  // the rows of gate come before those of up
  const int64_t of_expert = shape[1] * columns, before = parameter.role == Role::kExpertUp ? rows * columns : 0;
  std::vector<HfPart> parts;
  for (int64_t expert = 0; expert < parameter.shape[0]; ++expert)
    parts.push_back({experts + (is_down ? "down_proj" : "gate_up_proj"), shape, expert * rows * columns, rows, columns,
                     expert * of_expert + before, columns, 1});
  return parts;
}

std::vector<std::string> hf_router_biases(const ModelConfig& model) {
  const FamilyNames& names = family_of(model).names;
  std::vector<std::string> tensors;
  if (names.router_bias.empty()) return tensors;
  for (int64_t l = 0; l < model.num_hidden_layers; ++l) {
    if (model.is_sparse_layer(l))
      tensors.push_back(
          fmt::format("{}.{}.{}.{}.{}", names.layers, l, names.feed_forward, names.router, names.router_bias));
  }
  return tensors;
}

}  // namespace athanor::inline checkpoint
