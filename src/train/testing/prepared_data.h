#pragma once
// For tests that start whole runs: a small folder of prepared data.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/hash.h"
#include "base/random.h"
#include "config/run_config.h"
#include "dataset/manifest.h"
#include "dataset/npy.h"

namespace athanor::inline train {

/// Writes a folder of data as `athanor prepare` does it, with random tokens. The tokenizer knows the letters a to z.
inline void write_prepared_data(const std::filesystem::path& folder, const RunConfig& config,
                                bool with_validation = true) {
  std::filesystem::create_directories(folder);
  nlohmann::json vocabulary;
  for (int64_t id = 0; id < config.model.vocab_size; ++id)
    vocabulary[id < 26 ? std::string(1, static_cast<char>('a' + id)) : "t" + std::to_string(id)] = id;
  const nlohmann::json model = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}};
  write_file_atomically(folder / "tokenizer.json", nlohmann::json{{"model", model}}.dump());
  DataManifest manifest;
  manifest.tokenizer_file = "tokenizer.json";
  manifest.tokenizer_hash = hash_file(folder / "tokenizer.json");
  manifest.vocab_size = static_cast<uint32_t>(config.model.vocab_size);
  manifest.seq_len = config.data.seq_len;
  manifest.dtype = "uint16";
  const CounterRandom random(3, "tokens");
  PartEntry part;
  for (const auto& [split, rows] : {std::pair<std::string, int64_t>{"train", 128}, {"validation", 16}}) {
    if (split == "validation" && !with_validation) continue;
    std::vector<uint16_t> tokens(static_cast<size_t>(rows * config.data.seq_len));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(random.u64(i) % manifest.vocab_size);
    std::string bytes = npy_header(2, rows, config.data.seq_len);
    bytes.append(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size());
    const std::string file = split + "-00000.npy";
    write_file_atomically(folder / file, bytes);
    manifest.splits[split] = {rows, rows * config.data.seq_len, {{file, rows, hash_file(folder / file)}}};
    manifest.tokens += rows * config.data.seq_len;
    part.instances[split] = rows;
  }
  part.tokens = manifest.tokens;
  manifest.parts = {part};
  write_file_atomically(folder / kDataManifestName, data_manifest_text(manifest));
}

}  // namespace athanor::inline train
