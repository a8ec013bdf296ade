#pragma once
// athanor bench data measures how fast documents are read, cut into words, encoded and prepared, and what the limit is.

#include <cstdint>
#include <string>
#include <vector>

namespace athanor {

struct BenchDataArguments {
  std::string tokenizer, json, text_field = "text";  ///< json: file to write the results to; empty: none
  std::vector<std::string> inputs;
  int rounds = 5, num_threads = 0;          ///< num_threads 0: one for each core
  uint64_t max_bytes = uint64_t{64} << 20;  ///< bytes of text after which no more documents are read
  bool encode_only = false;                 ///< measure only the encoding by one thread
};

/// Compares the ids with those of the tokenizer without fast paths, measures, and prints the table.
/// @throws ConfigError, DataError, IoError.
void bench_data(const BenchDataArguments& arguments);

}  // namespace athanor
