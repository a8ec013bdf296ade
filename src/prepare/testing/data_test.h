#pragma once
// For tests: a byte tokenizer, the options of a small `prepare`, and the instances that it wrote.

#include <filesystem>
#include <string>
#include <vector>

#include "base/testing/folder_test.h"
#include "dataset/dataset.h"
#include "prepare/prepare.h"
#include "tokenizer/testing/tokenizer_json.h"

namespace athanor::inline preparation {

class DataTest : public FolderTest {
 protected:
  /// Writes a tokenizer whose ids 0-255 are the bytes and whose id 256 is <|endoftext|>.
  std::filesystem::path write_byte_tokenizer() const {
    auto json = byte_tokenizer_json();
    json["added_tokens"].push_back(added_token_json(256, "<|endoftext|>"));
    return write("tokenizer.json", json.dump());
  }

  /// Returns options for the byte tokenizer, which a test may change.
  PrepareOptions options(const std::vector<std::string>& inputs, int64_t seq_len = 8) const {
    PrepareOptions made;
    made.tokenizer = write_byte_tokenizer();
    made.inputs = inputs;
    made.out = folder_ / "out";
    made.seq_len = seq_len;
    made.num_threads = 1;
    return made;
  }
};

/// Returns all instances of a split in their order.
inline std::vector<std::vector<int32_t>> rows_of(const std::filesystem::path& folder, const std::string& split) {
  const auto dataset = Dataset::open(folder, split);
  std::vector<std::vector<int32_t>> rows;
  for (int64_t i = 0; i < dataset.num_instances(); ++i) {
    dataset.read(i, rows.emplace_back(static_cast<size_t>(dataset.seq_len())).data());
  }
  return rows;
}

}  // namespace athanor::inline preparation
