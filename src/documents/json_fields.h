#pragma once
// Reads a few fields of a JSON row without building the others.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline documents {

/// Returns the members of the object `row` whose names are in `names` (sorted); of equal names the last one counts. If
/// `row` is not an object, the result is empty.
/// @param row  JSON that a parser has already read: here only the wanted members are examined closely.
/// @throws DataError, with the reason alone, if a wanted member is not JSON after all, or nests too deep.
nlohmann::json read_json_fields(std::string_view row, const std::vector<std::string>& names);

}  // namespace athanor::inline documents
