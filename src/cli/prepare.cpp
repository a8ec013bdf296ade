// athanor prepare: documents to shuffled training instances.

#include "data/prepare.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <memory>

#include "base/text.h"
#include "cli/commands.h"
#include "data/tokenizer/tokenizer_files.h"

namespace athanor {
namespace {

void print_summary(const PrepareOptions& options, const DataManifest& manifest, double elapsed_s) {
  const auto count = [](int64_t value) { return format_thousands(static_cast<double>(value)); };
  const auto bytes = static_cast<double>(manifest.text_bytes);
  fmt::print("{}: {} documents, {} tokens ({:.2f} bytes each)\n", options.out.string(), count(manifest.documents),
             count(manifest.tokens), bytes / static_cast<double>(manifest.tokens));
  for (const auto& [name, split] : manifest.splits) {
    fmt::print("  {}: {} instances of {} tokens, {} in {} file{}\n", name, count(split.instances), manifest.seq_len,
               manifest.dtype, split.files.size(), split.files.size() == 1 ? "" : "s");
  }
  fmt::print("  left over: {} tokens, too few for an instance\n", count(manifest.remainder_tokens));
  if (!manifest.skipped.empty()) fmt::print("  skipped: {}\n", describe_skips(manifest.skipped));
  fmt::print("  {:.1f} MB of text in {:.1f} s: {:.1f} MB/s\n", bytes * 1e-6, elapsed_s, bytes * 1e-6 / elapsed_s);
}

void run(const PrepareOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto manifest = prepare(options);
  print_summary(options, manifest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

}  // namespace

void add_prepare_command(CLI::App& app) {
  const auto options = std::make_shared<PrepareOptions>();
  auto* command = app.add_subcommand("prepare", "Turn documents into shuffled training instances");
  command->add_option("--tokenizer", options->tokenizer, kTokenizerHelp)->required();
  command->add_option("--seq-len", options->seq_len, "Tokens of an instance")->required();
  command->add_option("--seed", options->seed, "Of the permutation of the instances")->capture_default_str();
  command->add_option("--out", options->out, "The folder to write, whole or not at all")->required();
  command->add_option("--text-field", options->documents.text_field, "The field of JSON rows that holds the text")
      ->capture_default_str();
  command->add_option("--eos", options->eos, "The token put after each document, or its id (default: the usual one)");
  command
      ->add_option("--validation-fraction", options->validation_fraction,
                   "Share of the instances kept for validation, at least one if above 0")
      ->capture_default_str();
  command->add_option("--threads", options->num_threads, "0: one for each core; the result does not depend on it")
      ->capture_default_str();
  const std::map<std::string, OnError> choices{{"fail", OnError::kFail}, {"skip", OnError::kSkip}};
  command
      ->add_option("--on-error", options->documents.on_error,
                   "What a bad document does: fail ends with its file and line, skip counts it and goes on")
      ->transform(CLI::CheckedTransformer(choices))
      ->default_str("fail");
  command->add_option("--shard-bytes", options->shard_bytes, "Largest size of a shard")->capture_default_str();
  command->add_flag("--overwrite", options->overwrite, "Replace prepared data that is in the folder already");
  command->add_option("INPUT", options->inputs, "Files, folders or patterns: .txt .md .jsonl .json, also .gz and .zst")
      ->required();
  command->callback([options] { run(*options); });
}

}  // namespace athanor
