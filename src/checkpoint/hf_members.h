#pragma once
// The members of config.json: their names in a family, and those that nobody reads.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/families.h"

namespace athanor::inline checkpoint {

/// Far above any model: files that claim more layers are refused, and nothing walks their layers before.
inline constexpr int64_t kMostLayers = 10'000;

/// Returns the family's name of a member that `name` is in Llama; mostly it is the same. What is returned lives as long
/// as the family or `name`.
const char* own_name(const Family& family, const char* name);
/// Returns the name under which a file has the member: its own, or that of Llama where `transformers` reads this, too.
const char* given_name(const Family& family, const nlohmann::json& json, const char* name);

/// Adds a problem for each member that a file has under both names with two values.
void refuse_two_values(const Family& family, const nlohmann::json& json, std::vector<std::string>& problems);
/// Adds a problem if the activation is not the family's.
void refuse_activation(const Family& family, const nlohmann::json& json, std::vector<std::string>& problems);

/// Returns the rates of dropout above 0, by their members. Faults are added to `problems`.
std::map<std::string, double> read_dropouts(const nlohmann::json& json, std::vector<std::string>& problems);

/// Returns the members that are neither read for this family nor known to be without effect, as "key = value".
std::vector<std::string> find_unknown_members(const Family& family, const nlohmann::json& json);

}  // namespace athanor::inline checkpoint
