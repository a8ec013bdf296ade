#pragma once
// Reads generation_config.json of a `transformers` folder: which tokens end a text, and the settings that its makers
// give for sampling.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline checkpoint {

struct HfGeneration {
  std::string text;                    ///< the whole file, so that it can be written back; empty: there is none
  std::vector<int64_t> eos_token_ids;  ///< any of them ends a text; empty if the file does not tell
  /// Settings that would change a text, as "temperature = 0.6". They are told and kept, and never applied.
  std::vector<std::string> settings;
};

inline constexpr const char* kHfGenerationName = "generation_config.json";

/// @throws CheckpointError naming the key: a token id that is none.
HfGeneration parse_hf_generation(std::string_view text, const std::string& where);
/// Reads the file in `folder`; without it the result is empty. @throws as above; IoError.
HfGeneration read_hf_generation(const std::filesystem::path& folder);

}  // namespace athanor::inline checkpoint
