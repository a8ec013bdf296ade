// athanor prepare turns documents into shuffled training instances.

#include "prepare/prepare.h"

#include <fmt/core.h>

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <memory>

#include "base/log.h"
#include "base/process.h"
#include "base/signals.h"
#include "base/text.h"
#include "base/wall_clock.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output_check.h"
#include "documents/selection.h"
#include "tokenizer/tokenizer_files.h"

namespace athanor::inline cli {
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
  if (manifest.special_token_documents > 0) {
    fmt::print("  {} documents have the text of a special token, which became that token (--split-special-tokens)\n",
               count(manifest.special_token_documents));
  }
  if (!manifest.skipped.empty()) fmt::print("  skipped: {}\n", describe_skips(manifest.skipped));
  if (options.documents.selection) {
    for (const auto& path : options.documents.selection->paths_never_found()) {
      log::warn("no document has {}: is it mistyped in --keep or --drop?", path);
    }
  }
  fmt::print("  at most {} of memory\n", format_bytes(static_cast<double>(peak_resident_bytes())));
  if (options.add) {  // the folder may already contain all of the files
    const auto& last = manifest.parts.back();
    fmt::print("  added last: {} files, {} documents, {} tokens\n", last.inputs, count(last.documents),
               count(last.tokens));
    return;
  }
  fmt::print("  {:.1f} MB of text in {:.1f} s: {:.1f} MB/s\n", bytes * 1e-6, elapsed_s, bytes * 1e-6 / elapsed_s);
}

void run(PrepareOptions options) {
  const auto start = std::chrono::steady_clock::now();
  // Freed memory is returned to the system, and few threads' heaps have gaps: --memory counts the memory of the
  // process.
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
  const SignalGuard signals("stopping, what is done is kept");
  options.stopping = [&] { return signals.stop_signal().has_value(); };
  try {
    const auto manifest = prepare(options);
    print_summary(options, manifest, seconds_since(start));
  } catch (const PrepareStopped& stopped) {
    log::info("{}", stopped.what());
    throw ExitCode{128 + signals.stop_signal().value_or(SIGTERM)};
  }
}

}  // namespace

void add_prepare_command(CLI::App& app) {
  const auto options = std::make_shared<PrepareOptions>();
  auto* command = app.add_subcommand("prepare", "Turn documents into shuffled training instances");
  command->add_option("--tokenizer", options->tokenizer, kTokenizerHelp);
  command->add_option("--seq-len", options->seq_len, "Tokens of an instance")->check(fits_in_64_bits());
  command->add_option("--seed", options->seed, "Seed of the permutation of the instances")
      ->transform(without_sign())
      ->default_str("1");
  command->add_option("--out", options->out, "The folder to write, completely or not at all")
      ->required()
      ->check(new_folder());
  auto* text_field = command->add_option("--text-field", options->documents.text_field,
                                         "The field of JSON rows that contains the text");
  text_field->capture_default_str();
  add_format_option(*command, options->documents);
  command->add_option(
      "--eos", options->eos,
      "The token put after each document, or its id (default: eos_token of the tokenizer's files, else its "
      "special token with a usual name)");
  command->add_flag(
      "--add-special-tokens", options->add_special_tokens,
      "Put around each document what the tokenizer puts around a text (BOS); runs and their models keep it");
  command->add_flag(
      "--split-special-tokens", options->split_special_tokens,
      "Read the text of a special token in a document (\"</s>\") as text; by default it becomes that token");
  command
      ->add_option("--validation-fraction", options->validation_fraction,
                   "Share of the instances kept for validation, at least one if above 0")
      ->default_str("0");
  command->add_option("--threads", options->num_threads, "0: one for each core; the result does not depend on it")
      ->capture_default_str();
  command
      ->add_option("--memory", options->memory_bytes,
                   "The memory that the whole process may take: 256M, 4G (default: half of the available memory); the "
                   "result does not depend on it")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->transform(without_sign())
      ->type_name("SIZE");
  add_on_error_option(*command, options->documents.on_error);
  command->add_option("--shard-bytes", options->shard_bytes, "Largest size of a shard")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->transform(without_sign())
      ->type_name("SIZE")
      ->default_str("256M");
  command->add_flag("--overwrite", options->overwrite, "Replace prepared data that the folder already contains");
  command->add_flag("--add", options->add,
                    "Add files to prepared data that the folder already contains, with its tokenizer and settings");
  command->add_flag("--restart", options->restart, "Delete what an unfinished run left, instead of continuing with it");
  command
      ->add_option(
          "INPUT", options->inputs,
          "Files, folders or patterns: .txt .md .jsonl .json, also .gz and .zst; .parquet; or - for standard input")
      ->required();
  command->footer(
      "While it works, <out>.partial contains what is done: at most twice the size of the result. After a kill, a "
      "signal or\nan error the same command continues from there. At the end the folder replaces --out in one step.");
  const auto selection = std::make_shared<SelectionOptions>();
  command
      ->add_option("--attributes", selection->attributes,
                   "Names of Dolma's attributes, which are in attributes/NAME next to the folder \"documents\"")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option(
          "--keep", selection->keep,
          "Keep only documents for which this is true, e.g. 'metadata.length > 500'; may be given several times")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--drop", selection->drop,
          "Drop documents for which this is true, e.g. 'max(attributes.toxicity) > 0.8'; may be given several times")
      ->allow_extra_args(false);
  command->callback([options, text_field, selection] {
    options->documents.selection = make_selection(*selection);
    options->text_field_given = text_field->count() > 0;
    run(*options);
  });
}

}  // namespace athanor::inline cli
