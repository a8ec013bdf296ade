#pragma once
// YAML files as JSON values, with the types that PyYAML gives to words and numbers (YAML 1.1).

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace athanor::tasks {

struct YamlDocument {
  /// Tags such as `!function utils.process_docs` are objects {"!function": "utils.process_docs"}.
  nlohmann::ordered_json value;
  std::map<std::string, int> lines;  ///< line of each key, from 1, by the path of the key: "fewshot_config.sampler"
  /// A message for each key that its mapping has already. The last one counts, as with PyYAML.
  std::vector<std::string> repeated;
};

/// Returns the documents of a file, which `---` separates. An empty file has none.
/// @throws ConfigError with file and line for what is no YAML or not UTF-8, and for what JSON does not have; IoError.
std::vector<YamlDocument> read_yaml(const std::filesystem::path& file);

/// Parses text; `name` stands for the file in messages.
std::vector<YamlDocument> parse_yaml(const std::string& text, const std::string& name);

}  // namespace athanor::tasks
