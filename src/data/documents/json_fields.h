#pragma once
// A few fields of a JSON row, without building the others.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace athanor {

/// The members of the object `row` whose names are in `names` (sorted); the last one of a name counts. What is no
/// object gives an empty one.
/// @param row  JSON that a parser has read already: here only what is wanted is looked at closely.
/// @throws nlohmann::json::exception if a wanted member is no JSON after all.
nlohmann::json read_json_fields(std::string_view row, const std::vector<std::string>& names);

}  // namespace athanor
