#pragma once
// athanor bench data measures how fast documents are read, cut into words, encoded and prepared, and what the limit is.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor {

struct BenchDataArguments {
  std::string tokenizer, json, text_field = "text";
  std::vector<std::string> inputs;
  int rounds = 5, num_threads = 0;
  uint64_t max_bytes = uint64_t{64} << 20;
  bool encode_only = false;
};

/// Verifies the encoding against the form without any short cut, measures, and prints the table.
/// @throws ConfigError, DataError, IoError.
void bench_data(const BenchDataArguments& arguments);

}  // namespace athanor
