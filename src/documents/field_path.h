#pragma once
// How --text-field names a field, the same in every format: a field of exactly this name, or else, if the name has
// points, the path through objects (JSON) or structs (Parquet).

#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline documents {

using FieldPath = std::vector<std::string>;  ///< names from the row inwards

/// Returns the paths that `field` may mean, in the order in which they are looked for: "doc.body" is {"doc.body"}, then
/// {"doc", "body"}.
inline std::vector<FieldPath> paths_of_field(std::string_view field) {
  std::vector<FieldPath> paths{{std::string(field)}};
  if (field.find('.') == std::string_view::npos) return paths;
  auto& path = paths.emplace_back();
  for (size_t point = field.find('.'); point != std::string_view::npos; point = field.find('.')) {
    path.emplace_back(field.substr(0, point));
    field.remove_prefix(point + 1);
  }
  path.emplace_back(field);
  return paths;
}

}  // namespace athanor::inline documents
