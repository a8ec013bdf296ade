// athanor checkpoint diff A B names what differs between two full checkpoints.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "checkpoint/diff.h"
#include "checkpoint/rotation.h"
#include "checkpoint/step_words.h"
#include "cli/commands.h"

namespace athanor::inline cli {
namespace {

using nlohmann::ordered_json;

constexpr int kDiffer = 1;          // as `diff` does, and `athanor verify`
constexpr size_t kShownRows = 100;  // tensors, and values, that are printed; --json has all

struct DiffArguments {
  std::string a, b;
  DiffOptions options;
  int64_t threads = 0;
  bool json = false;
};

// Nine digits show every fp32 number. NaNs differ in their bits.
std::string shown_element(float value) {
  return std::isnan(value) ? fmt::format("nan ({:#010x})", std::bit_cast<uint32_t>(value))
                           : fmt::format("{:.9g}", value);
}

std::string describe_elements(const TensorDifference& each) {
  std::string text = fmt::format("{} of {} elements differ", each.num_differing, each.num_elements);
  std::vector<std::string> kinds;
  if (each.largest_absolute > 0)
    kinds.push_back(fmt::format("by at most {:.4g}, relatively {:.4g}", each.largest_absolute, each.largest_relative));
  if (each.num_signs_of_zero > 0) kinds.push_back(fmt::format("{} in the sign of zero", each.num_signs_of_zero));
  if (each.num_nan_on_one_side > 0) kinds.push_back(fmt::format("{} are NaN on one side", each.num_nan_on_one_side));
  if (each.num_nan_bits > 0) kinds.push_back(fmt::format("{} are NaN with other bits", each.num_nan_bits));
  return fmt::format("{} ({}); first {}: {} and {}", text, join(kinds), shape_text(each.first_index()),
                     shown_element(each.first_a), shown_element(each.first_b));
}

std::string describe_tensor(const TensorDifference& each) {
  switch (each.kind) {
    case TensorDifference::Kind::kOnlyInA: return fmt::format("{} is only in A", shape_text(each.shape_a));
    case TensorDifference::Kind::kOnlyInB: return fmt::format("{} is only in B", shape_text(each.shape_b));
    case TensorDifference::Kind::kShape:
      return fmt::format("has shape {} in A and {} in B", shape_text(each.shape_a), shape_text(each.shape_b));
    case TensorDifference::Kind::kElements:
      return fmt::format("{}: {}", shape_text(each.shape_a), describe_elements(each));
  }
  return "";
}

template <class Rows, class Show>
void print_first_rows(const Rows& rows, const Show& show) {
  for (size_t i = 0; i < std::min(kShownRows, rows.size()); ++i) fmt::print("{}\n", show(rows[i]));
  if (rows.size() > kShownRows) fmt::print("and {} more (--json)\n", rows.size() - kShownRows);
}

// JSON has no infinity and no NaN: these are texts.
ordered_json finite_or_text(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

ordered_json difference_json(const TensorDifference& each) {
  using Kind = TensorDifference::Kind;
  const char* kinds[] = {"only in a", "only in b", "shape", "elements"};
  ordered_json json{{"tensor", each.name}, {"differs", kinds[static_cast<int>(each.kind)]}};
  if (each.kind != Kind::kOnlyInB) json["shape_a"] = each.shape_a;
  if (each.kind != Kind::kOnlyInA) json["shape_b"] = each.shape_b;
  if (each.kind != Kind::kElements) return json;
  json["elements"] = each.num_elements;
  json["differing"] = each.num_differing;
  json["signs_of_zero"] = each.num_signs_of_zero;
  json["nan_on_one_side"] = each.num_nan_on_one_side;
  json["nan_bits"] = each.num_nan_bits;
  json["largest_absolute"] = finite_or_text(each.largest_absolute);
  json["largest_relative"] = finite_or_text(each.largest_relative);
  json["first"] = {{"index", each.first_index()},
                   {"a", finite_or_text(each.first_a)},
                   {"b", finite_or_text(each.first_b)},
                   {"bits_a", std::bit_cast<uint32_t>(each.first_a)},
                   {"bits_b", std::bit_cast<uint32_t>(each.first_b)}};
  return json;
}

void print_difference_json(const CheckpointDifference& found) {
  ordered_json json{{"equal", found.is_empty()},
                    {"compared_tensors", found.num_tensors},
                    {"tensors", ordered_json::array()},
                    {"values", ordered_json::array()}};
  for (const auto& each : found.tensors) json["tensors"].push_back(difference_json(each));
  for (const auto& each : found.values) json["values"].push_back({{"path", each.path}, {"a", each.a}, {"b", each.b}});
  fmt::print("{}\n", json.dump(1, ' ', false, ordered_json::error_handler_t::replace));
}

void print_difference_text(const CheckpointDifference& found, bool values) {
  print_first_rows(found.tensors, [](const auto& each) { return printable(each.name) + " " + describe_tensor(each); });
  print_first_rows(found.values, [](const auto& each) {
    return fmt::format("{}: {} and {}", printable(each.path), printable(each.a), printable(each.b));
  });
  const std::string of_values = !values ? "" : fmt::format("; values that differ: {}", found.values.size());
  fmt::print("{}: {} of {} tensors differ{}\n", found.is_empty() ? "equal" : "different", found.tensors.size(),
             found.num_tensors, of_values);
}

void print_difference(DiffArguments arguments) {
  arguments.options.num_threads = thread_count("--threads", arguments.threads);
  arguments.options.values = arguments.options.tensors == "*";
  const auto open = [](const std::filesystem::path& named) {
    return with_io_errors([&] {
      const std::string path = find_step_folder(named).string();
      ATHANOR_CHECK_CHECKPOINT(
          std::filesystem::is_regular_file(std::filesystem::path(path) / kManifestName),
          "{}: expected a full checkpoint, such as RUN/checkpoints/step-00000500: a folder with {}", named.string(),
          kManifestName);
      return CheckpointReader::open(path);
    });
  };
  const auto a = open(arguments.a);
  // "step-80" alone is one of the same run.
  const bool is_beside = step_of_words(arguments.b) && !std::filesystem::exists(arguments.b);
  const auto b = open(is_beside ? a.folder().parent_path() / step_folder_name(*step_of_words(arguments.b))
                                : std::filesystem::path(arguments.b));
  const auto difference = diff_checkpoints(a, b, arguments.options);
  if (arguments.json) {
    print_difference_json(difference);
  } else {
    print_difference_text(difference, arguments.options.values);
  }
  if (!difference.is_empty()) throw ExitCode{kDiffer};
}

}  // namespace

void add_checkpoint_diff_command(CLI::App& parent) {
  const auto arguments = std::make_shared<DiffArguments>();
  auto* command = parent.add_subcommand(
      "diff", "Compare two full checkpoints bit by bit, whatever layouts wrote them; exits with 1 if they differ");
  command->add_option("A", arguments->a, "A full checkpoint: RUN/checkpoints/step-00000040, or RUN/step-40")
      ->required();
  command->add_option("B", arguments->b, "Another one; step-80 alone is one of the same run")->required();
  command
      ->add_option("--tensors", arguments->options.tensors,
                   "Compare only these tensors, and neither state nor configuration: KIND/NAME with * and ?, such as "
                   "\"master/*.mlp.*\"; the kinds are master, exp_avg and exp_avg_sq for AdamW")
      ->type_name("PATTERN")
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "0: one for each core; the result does not depend on it")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "One JSON object with everything that differs");
  command->callback([arguments] { print_difference(*arguments); });
}

}  // namespace athanor::inline cli
