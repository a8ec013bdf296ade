// athanor data prints the contents of a prepared folder, prints an instance of it as text, and checks that it is whole.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/console.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "dataset/dataset.h"
#include "dataset/manifest.h"
#include "dataset/verify.h"
#include "documents/document_error.h"
#include "documents/standard_input.h"
#include "prepare/verify_folder.h"
#include "tokenizer/tokenizer.h"

namespace athanor::inline cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kShownInputs = 10;

std::string shown_count(int64_t value) { return format_thousands(static_cast<double>(value)); }
std::string shown_bytes(uint64_t value) { return format_bytes(static_cast<double>(value)); }

// Returns the text of the token `id`; special tokens as they are.
std::string shown_token(const Tokenizer& tokenizer, uint32_t id) {
  return printable(tokenizer.decode(std::vector<uint32_t>{id}));
}

// Returns "50256 (<|endoftext|>)"; a SentencePiece model's control token has no text.
std::string shown_id(uint32_t id, const std::string& text) {
  return text.empty() ? std::to_string(id) : fmt::format("{} ({})", id, text);
}

// ---- info ----------------------------------------------------------------------------------------------------------

struct InfoArguments {
  std::string folder;
  bool json = false, all_inputs = false;
};

void print_splits(const DataManifest& manifest) {
  fmt::print("  {:<12} {:>14} {:>18} {:>7} {:>10}\n", "split", "instances", "tokens", "shards", "size");
  for (const auto& [name, split] : manifest.splits) {
    fmt::print("  {:<12} {:>14} {:>18} {:>7} {:>10}\n", printable(name), shown_count(split.instances),
               shown_count(split.tokens), split.files.size(),
               shown_bytes(static_cast<uint64_t>(split.tokens) * static_cast<uint64_t>(manifest.item_bytes())));
  }
}

void print_parts(const DataManifest& manifest) {
  if (manifest.parts.size() < 2) return;
  fmt::print("  {:<12} {:>14} {:>18} {:>7} {:>10}\n", "prepared", "instances", "tokens", "files", "documents");
  for (size_t i = 0; i < manifest.parts.size(); ++i) {
    const auto& part = manifest.parts[i];
    int64_t instances = 0;
    for (const auto& [split, count] : part.instances) instances += count;
    fmt::print("  {:<12} {:>14} {:>18} {:>7} {:>10}\n", i == 0 ? "first" : fmt::format("added {}", i),
               shown_count(instances), shown_count(part.tokens), part.inputs, shown_count(part.documents));
  }
}

void print_inputs(const DataManifest& manifest, bool all) {
  fmt::print("  inputs: {} file{}\n", manifest.inputs.size(), manifest.inputs.size() == 1 ? "" : "s");
  const size_t count = all ? manifest.inputs.size() : std::min(kShownInputs, manifest.inputs.size());
  for (size_t i = 0; i < count; ++i) {
    const auto& input = manifest.inputs[i];
    fmt::print("    {}: {} documents, {} tokens\n", printable(shown_name(input.path)), shown_count(input.documents),
               shown_count(input.tokens));
  }
  if (count < manifest.inputs.size()) fmt::print("    and {} more (--inputs)\n", manifest.inputs.size() - count);
}

// The programs that prepared the parts, each once.
void print_programs(const DataManifest& manifest) {
  std::vector<std::string> programs;
  for (const auto& part : manifest.parts) {
    const auto program = fmt::format("athanor {} ({})", part.version, part.commit);
    if (!part.version.empty() && std::ranges::find(programs, program) == programs.end()) programs.push_back(program);
  }
  if (!programs.empty()) fmt::print("  prepared by: {}\n", printable(join(programs)));
}

void print_selection(const SelectionOptions& selection) {
  if (!selection.attributes.empty()) fmt::print("  attributes: {}\n", printable(join(selection.attributes)));
  for (const auto& text : selection.keep) fmt::print("  keep: {}\n", printable(text));
  for (const auto& text : selection.drop) fmt::print("  drop: {}\n", printable(text));
}

std::string shown_ids(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids) {
  std::vector<std::string> shown;
  for (const uint32_t id : ids) shown.push_back(shown_id(id, shown_token(tokenizer, id)));
  return shown.empty() ? "nothing" : join(shown, " ");
}

void info(const InfoArguments& arguments) {
  const fs::path folder = arguments.folder;
  const auto manifest = read_data_manifest(folder);
  const auto bytes = listed_bytes(folder, manifest);
  const auto tokenizer = Tokenizer::load(folder / manifest.tokenizer_file);
  const auto eos = shown_token(tokenizer, manifest.eos_id);
  if (arguments.json) {
    auto json = ordered_json::parse(data_manifest_text(manifest));
    json["bytes"] = bytes;
    json["eos_token"] = eos;
    fmt::print("{}\n", json.dump(1, ' ', false, ordered_json::error_handler_t::replace));
    return;
  }
  fmt::print("{}: {} tokens of {} documents, {}\n", folder.string(), shown_count(manifest.tokens),
             shown_count(manifest.documents), shown_bytes(bytes));
  print_splits(manifest);
  print_parts(manifest);
  fmt::print("  an instance has {} tokens, {}; shuffled with seed {}\n", manifest.seq_len, manifest.dtype,
             manifest.seed);
  fmt::print("  left over: {} tokens, too few for an instance\n", shown_count(manifest.remainder_tokens));
  fmt::print("  tokenizer: {}, {} tokens; a document ends with {}\n", manifest.tokenizer_file,
             shown_count(manifest.vocab_size), shown_id(manifest.eos_id, eos));
  if (const auto& around = manifest.text_template; !around.empty())
    fmt::print("  around each document: {} before, {} after\n", shown_ids(tokenizer, around.before),
               shown_ids(tokenizer, around.after));
  if (manifest.split_special_tokens) fmt::print("  the texts of special tokens in documents were read as text\n");
  if (manifest.special_token_documents > 0)
    fmt::print("  documents with the text of a special token, which became that token: {}\n",
               shown_count(manifest.special_token_documents));
  fmt::print("  text: {} ({:.2f} bytes a token)\n", shown_bytes(static_cast<uint64_t>(manifest.text_bytes)),
             static_cast<double>(manifest.text_bytes) / static_cast<double>(std::max<int64_t>(1, manifest.tokens)));
  print_selection(manifest.selection);
  fmt::print("  skipped: {}\n", describe_skips(manifest.skipped));
  print_programs(manifest);
  print_inputs(manifest, arguments.all_inputs);
}

void add_info(CLI::App& parent) {
  const auto arguments = std::make_shared<InfoArguments>();
  auto* command = parent.add_subcommand("info", "Print the manifest's counts, splits, tokenizer and inputs");
  command->add_option("DIR", arguments->folder, "A folder that `athanor prepare` wrote")->required();
  command->add_flag("--json", arguments->json, "One JSON object");
  command->add_flag("--inputs", arguments->all_inputs, "List all input files");
  command->callback([arguments] { info(*arguments); });
}

// ---- show ----------------------------------------------------------------------------------------------------------

struct ShowArguments {
  std::string folder, split = "train";
  int64_t row = 0;
  bool ids = false, json = false;
};

// The shard that holds `row` is read whole: a text from a damaged one would be no lie that anybody sees.
std::pair<const ShardEntry*, int64_t> checked_shard(const Dataset& dataset, int64_t row) {
  const auto& manifest = dataset.manifest();
  for (const auto& entry : manifest.splits.at(dataset.split()).files) {
    if (row < entry.instances) {
      verify_shard(dataset.folder() / entry.file, entry, manifest);
      return {&entry, row};
    }
    row -= entry.instances;
  }
  ATHANOR_ASSERT(false);
}

// A document, or the part of one that is in the instance.
struct Piece {
  size_t begin, end;  // tokens, without the one that ends the document
  bool ends;
};

std::vector<Piece> pieces_of(const std::vector<int32_t>& ids, uint32_t eos_id) {
  std::vector<Piece> pieces;
  size_t begin = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<uint32_t>(ids[i]) != eos_id) continue;
    pieces.push_back({begin, i, true});
    begin = i + 1;
  }
  if (begin < ids.size()) pieces.push_back({begin, ids.size(), false});
  return pieces;
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const Piece& piece) {
  return tokenizer.decode(std::vector<uint32_t>(ids.begin() + static_cast<std::ptrdiff_t>(piece.begin),
                                                ids.begin() + static_cast<std::ptrdiff_t>(piece.end)));
}

void print_piece(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const Piece& piece, bool as_ids) {
  if (as_ids) {
    for (size_t i = piece.begin; i < piece.end; ++i) fmt::print("{}{}", i == piece.begin ? "" : " ", ids[i]);
    fmt::print("\n");
  } else {
    fmt::print("{}\n", text_of(tokenizer, ids, piece));
  }
}

void show(const ShowArguments& arguments) {
  const auto dataset = Dataset::open(arguments.folder, arguments.split);
  ATHANOR_CHECK(arguments.row >= 0 && arguments.row < dataset.num_instances(),
                "--row {}: the split \"{}\" has {} instances, numbered from 0; give a number below {}", arguments.row,
                arguments.split, dataset.num_instances(), dataset.num_instances());
  const auto [shard, row_in_shard] = checked_shard(dataset, arguments.row);
  const auto tokenizer = Tokenizer::load(dataset.tokenizer_file());
  std::vector<int32_t> ids(static_cast<size_t>(dataset.seq_len()));
  dataset.read(arguments.row, ids.data());
  const auto pieces = pieces_of(ids, dataset.eos_id());
  if (arguments.json) {
    ordered_json documents = ordered_json::array();
    for (const auto& piece : pieces) {
      documents.push_back({{"text", text_of(tokenizer, ids, piece)},
                           {"first_token", piece.begin},
                           {"tokens", piece.end - piece.begin},
                           {"ends", piece.ends}});
    }
    const ordered_json json{{"split", arguments.split},     {"row", arguments.row}, {"shard", shard->file},
                            {"row_in_shard", row_in_shard}, {"ids", ids},           {"documents", documents}};
    fmt::print("{}\n", json.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    return;
  }
  const auto eos = shown_token(tokenizer, dataset.eos_id());
  fmt::print("── {}, row {} of {}: {}, row {}; {} tokens, {} documents or parts of one ──\n", arguments.split,
             arguments.row, dataset.num_instances(), shard->file, row_in_shard, ids.size(), pieces.size());
  for (const auto& piece : pieces) {
    print_piece(tokenizer, ids, piece, arguments.ids);
    if (piece.ends) fmt::print("── token {}: {} ends the document ──\n", piece.end, shown_id(dataset.eos_id(), eos));
  }
  if (!pieces.empty() && !pieces.back().ends) fmt::print("── the instance ends within a document ──\n");
}

void add_show(CLI::App& parent) {
  const auto arguments = std::make_shared<ShowArguments>();
  auto* command = parent.add_subcommand("show", "Print one instance as text, with the ends of its documents");
  command->add_option("DIR", arguments->folder, "A folder that `athanor prepare` wrote")->required();
  command->add_option("--split", arguments->split, "train or validation")->capture_default_str();
  command->add_option("--row", arguments->row, "Which instance, from 0")
      ->check(fits_in_64_bits())
      ->capture_default_str();
  command->add_flag("--ids", arguments->ids, "Token ids instead of text");
  command->add_flag("--json", arguments->json, "One JSON object with ids and texts");
  command->callback([arguments] { show(*arguments); });
}

// ---- verify --------------------------------------------------------------------------------------------------------

void verify(const std::string& folder) {
  const auto manifest = read_data_manifest(folder);
  ProgressBar progress("verifying", listed_bytes(folder, manifest), "B");
  const auto report = verify_folder(folder, manifest, progress);
  progress.finish();
  if (report.damage.empty()) {
    fmt::print("{}: whole: {} files, {}\n", folder, report.num_files, shown_bytes(report.num_bytes));
    return;
  }
  for (size_t i = 1; i < report.damage.size(); ++i) log::error("{}", report.damage[i]);
  fail<DataError>("{} of {} files are damaged, the first: {}", report.damage.size(), report.num_files,
                  report.damage.front());
}

void add_verify(CLI::App& parent) {
  const auto folder = std::make_shared<std::string>();
  auto* command = parent.add_subcommand(
      "verify", "Read every file and compare it with its checksum, shape and vocabulary; exits with 2 if one differs");
  command->add_option("DIR", *folder, "A folder that `athanor prepare` wrote")->required();
  command->callback([folder] { verify(*folder); });
}

}  // namespace

void add_data_command(CLI::App& app) {
  auto* command = app.add_subcommand("data", "Inspect prepared data: info, show, verify");
  command->require_subcommand(1);
  add_info(*command);
  add_show(*command);
  add_verify(*command);
}

}  // namespace athanor::inline cli
