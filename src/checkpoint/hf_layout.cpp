#include "checkpoint/hf_layout.h"

#include <string_view>

namespace athanor::inline checkpoint {
namespace {

constexpr std::string_view kExperts = ".experts.";

// A vector is a matrix of one column.
HfPart whole(const ParameterSpec& parameter) {
  const int64_t rows = parameter.shape[0], columns = parameter.num_elements() / rows;
  return {parameter.name, parameter.shape, 0, rows, columns, 0, columns, 1};
}

HfPart in_its_form(const ParameterSpec& parameter) {
  const FileForm& form = parameter.form;
  HfPart part = whole(parameter);
  int64_t rows_of_tensor = part.rows;
  if (!form.fused.empty()) {
    part.tensor = form.fused;
    rows_of_tensor = part.shape[0] = form.rows;
    part.at = form.first_row * part.columns;
  }
  if (!form.transposed) return part;
  std::swap(part.shape[0], part.shape[1]);
  part.at = form.first_row;
  part.row_stride = 1;
  part.column_stride = rows_of_tensor;
  return part;
}

}  // namespace

std::vector<HfPart> hf_parts(const ParameterSpec& parameter) {
  if (!parameter.is_expert()) return {in_its_form(parameter)};
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
  if (!parameter.is_expert()) return {};
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

}  // namespace athanor::inline checkpoint
