// athanor tokenizer trains a tokenizer, and shows what one does to text.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text_lines.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output_check.h"
#include "documents/documents.h"
#include "documents/standard_input.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_files.h"

namespace athanor::inline cli {
namespace {

struct TrainTokenizerArguments {
  BpeTraining training;
  DocumentOptions documents;
  std::string out;
  bool overwrite = false;
  std::vector<std::string> inputs;
};

// Errors that can be found before the documents are read are found here, since reading may take long.
std::vector<std::filesystem::path> check(const TrainTokenizerArguments& arguments) {
  check_bpe_training(arguments.training);
  check_standard_input(arguments.inputs, arguments.documents);
  ATHANOR_CHECK(arguments.overwrite || !std::filesystem::exists(arguments.out),
                "{} exists; choose another --out, or give --overwrite to replace it", arguments.out);
  return expand_inputs(arguments.inputs);
}

// A pipe has no size, and counts as nothing in the progress bar.
uint64_t size_of(const std::filesystem::path& file) {
  return std::filesystem::is_regular_file(file) ? std::filesystem::file_size(file) : 0;
}

void train(const TrainTokenizerArguments& arguments) {
  const auto files = check(arguments);
  if (std::ranges::count(arguments.inputs, kStandardInput) > 0) announce_terminal("documents");
  uint64_t num_bytes = 0, num_documents = 0;
  for (const auto& file : files) num_bytes += size_of(file);
  WordCounts words;
  SkipCounts skipped;
  ProgressBar progress("counting words", num_bytes, "B");
  for (const auto& file : files) {
    const auto counts = read_documents(file, arguments.documents, [&](Document&& document) {
      words.add(document.text);
      ++num_documents;
    });
    for (const auto& [cause, count] : counts) skipped[cause] += count;
    progress.add(size_of(file));
  }
  progress.finish();
  ATHANOR_CHECK_DATA(words.num_words() > 0, "no text in {}; name files with documents", join(arguments.inputs));
  const auto json = train_bpe(words, arguments.training);
  const auto tokenizer = Tokenizer::parse(json, arguments.out);
  write_file_atomically(arguments.out, json);
  fmt::print("{}: {} tokens, from {} different words of {} documents; skipped: {}\n", arguments.out,
             tokenizer.vocab_size(), words.num_words(), num_documents, describe_skips(skipped));
  if (tokenizer.vocab_size() < arguments.training.vocab_size) {
    log::warn("the text has too few frequent pairs for {} tokens; give more text or a lower --min-frequency",
              arguments.training.vocab_size);
  }
}

void add_train(CLI::App& parent) {
  const auto arguments = std::make_shared<TrainTokenizerArguments>();
  auto* command = parent.add_subcommand("train", "Train a byte-level BPE tokenizer; writes a tokenizer.json");
  command->add_option("--vocab-size", arguments->training.vocab_size, "Tokens wanted, special ones included")
      ->required();
  command
      ->add_option("--special-token", arguments->training.special_tokens,
                   "A text that is one token; may be given several times")
      ->allow_extra_args(false)  // or the option would take the inputs
      ->capture_default_str();
  command->add_option("--min-frequency", arguments->training.min_frequency, "How often a pair must occur to be joined")
      ->transform(without_sign())
      ->capture_default_str();
  command->add_option("--text-field", arguments->documents.text_field, "The field of JSON rows that contains the text")
      ->capture_default_str();
  add_format_option(*command, arguments->documents);
  add_on_error_option(*command, arguments->documents.on_error);
  command->add_option("--out", arguments->out, "The file to write")->required()->check(new_file());
  command->add_flag("--overwrite", arguments->overwrite, "Replace the file if it exists");
  command
      ->add_option(
          "INPUT", arguments->inputs,
          "Files, folders or patterns: .txt .md .jsonl .json, also .gz and .zst; .parquet; or - for standard input")
      ->required();
  command->callback([arguments] { train(*arguments); });
}

int open_lines(const std::string& input) {
  if (is_standard_input(input)) {
    announce_terminal("lines");
    return STDIN_FILENO;
  }
  ATHANOR_CHECK_DATA(!std::filesystem::is_directory(input), "{} is a folder; name a file of lines", input);
  ATHANOR_CHECK_DATA(std::filesystem::exists(input), "{} does not exist; name a file of lines, or - for standard input",
                     input);
  const int descriptor = ::open(input.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_errno("cannot open", input);
  return descriptor;
}

// Calls `work` with each line of a file or of standard input; an exception gets the line's number.
template <class Work>
void for_each_input_line(const std::string& input, Work&& work) {
  TextLines lines(shown_name(input), open_lines(input));
  while (const auto line = lines.next()) {
    try {
      work(*line);
    } catch (const DataError& error) {
      fail<DataError>("{}, line {}: {}", shown_name(input), lines.number(), error.what());
    } catch (const nlohmann::json::exception& error) {
      fail<DataError>("{}, line {}: {}", shown_name(input), lines.number(), error.what());
    }
  }
}

constexpr const char* kLinesHelp = "A file with the lines; -: standard input";

struct LineArguments {
  std::string tokenizer, input = kStandardInput;
  bool jsonl = false, add_special_tokens = false, skip_special_tokens = false;
};

// Writes a JSON array directly, without building one: a line may be a document of a hundred megabytes.
void print_ids(const std::vector<uint32_t>& ids) {
  fmt::memory_buffer line;
  fmt::format_to(std::back_inserter(line), "[{}]\n", fmt::join(ids, ","));
  std::cout.write(line.data(), static_cast<std::streamsize>(line.size()));
}

void encode(const LineArguments& arguments) {
  const auto tokenizer = Tokenizer::load(arguments.tokenizer);
  const auto around = arguments.add_special_tokens ? tokenizer.text_template() : TextTemplate();
  for_each_input_line(arguments.input, [&](const std::string& line) {
    const auto text =
        tokenizer.encode(arguments.jsonl ? parse_json(line, "a line of the input").get<std::string>() : line);
    const auto ids = around.around(text);
    print_ids(ids);
  });
}

std::vector<uint32_t> parse_ids(const std::string& line) {
  const auto json = read_json(line);
  const bool right = json.is_array() && std::all_of(json.begin(), json.end(), [](const auto& id) {
                       return id.is_number_unsigned() && id <= UINT32_MAX;
                     });
  ATHANOR_CHECK_DATA(right, "expected a list of token ids, such as [1,2], got {:.64}", line);
  return json.get<std::vector<uint32_t>>();
}

void decode(const LineArguments& arguments) {
  const auto tokenizer = Tokenizer::load(arguments.tokenizer);
  for_each_input_line(arguments.input, [&](const std::string& line) {
    const auto ids = parse_ids(line);
    for (const uint32_t id : ids) {
      ATHANOR_CHECK_DATA(id < tokenizer.vocab_size(), "token id {} is beyond the vocabulary of {} tokens", id,
                         tokenizer.vocab_size());
    }
    const auto text = tokenizer.decode(ids, arguments.skip_special_tokens);
    std::cout << (arguments.jsonl ? nlohmann::json(text).dump() : text) << '\n';
  });
}

void add_encode(CLI::App& parent) {
  const auto arguments = std::make_shared<LineArguments>();
  auto* command = parent.add_subcommand("encode", "Turn lines into token ids, a JSON array for each");
  command->add_option("--tokenizer", arguments->tokenizer, kTokenizerHelp)->required();
  command->add_flag("--jsonl", arguments->jsonl, "Each line is a JSON string (so a text may have several lines)");
  command->add_flag("--add-special-tokens", arguments->add_special_tokens,
                    "Add the tokens that the tokenizer puts around a text (by its post_processor, or add_bos_token of "
                    "a SentencePiece "
                    "model)");
  command->add_option("INPUT", arguments->input, kLinesHelp)->capture_default_str();
  command->callback([arguments] { encode(*arguments); });
}

void add_decode(CLI::App& parent) {
  const auto arguments = std::make_shared<LineArguments>();
  auto* command = parent.add_subcommand("decode", "Turn lines, each a JSON array of ids, into text");
  command->add_option("--tokenizer", arguments->tokenizer, kTokenizerHelp)->required();
  command->add_flag("--jsonl", arguments->jsonl, "Print JSON strings, so that each text stays on its line");
  command->add_flag("--skip-special-tokens", arguments->skip_special_tokens, "Leave special tokens out");
  command->add_option("INPUT", arguments->input, kLinesHelp)->capture_default_str();
  command->callback([arguments] { decode(*arguments); });
}

}  // namespace

void add_tokenizer_command(CLI::App& app) {
  auto* command = app.add_subcommand("tokenizer", "Train a tokenizer; encode and decode text");
  command->require_subcommand(1);
  add_train(*command);
  add_encode(*command);
  add_decode(*command);
}

}  // namespace athanor::inline cli
