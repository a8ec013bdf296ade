// The options of athanor bench data. bench/data/data.cpp contains the benchmark.

#include "bench/data/data.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/bench.h"
#include "cli/output_check.h"
#include "cli/whole_number.h"
#include "tokenizer/tokenizer_files.h"

namespace athanor::inline cli {

void add_bench_data_command(CLI::App& bench) {
  const auto arguments = std::make_shared<BenchDataArguments>();
  auto* command = bench.add_subcommand("data", "Reading, tokenizing and preparing documents");
  command->add_option("--tokenizer", arguments->tokenizer, kTokenizerHelp)->required();
  command->add_option("--rounds", arguments->rounds, "How often each is measured")->capture_default_str();
  command->add_option("--threads", arguments->num_threads, "0: one for each core")->capture_default_str();
  command->add_option("--max-bytes", arguments->max_bytes, "How much text to hold in memory for the parts")
      ->transform(without_sign())
      ->capture_default_str();
  command->add_option("--text-field", arguments->text_field, "The field of JSON rows that contains the text")
      ->capture_default_str();
  command->add_flag("--encode-only", arguments->encode_only, "Only the encoding by one thread, for bench/peers");
  command->add_option("--json", arguments->json, "Write all numbers to this file, too")->check(new_file());
  command->add_option("INPUT", arguments->inputs, "Files, folders or patterns, as for prepare")->required();
  command->callback([arguments] { bench_data(*arguments); });
}

}  // namespace athanor::inline cli
