#include "run/matmul_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/precision.h"
#include "ops/matmul_timing.h"
#include "ops/tensor.h"
#include "record/run_folder.h"

namespace athanor::inline run {
namespace {

using ops::MatmulPath;
using ops::MatmulPaths;
using ops::ProductKind;

constexpr ProductKind kKinds[] = {ProductKind::kDense, ProductKind::kGrouped, ProductKind::kAttention};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};

nlohmann::ordered_json json_of(const MatmulPaths& paths) {
  nlohmann::ordered_json all;
  for (const auto type : kTypes) {
    for (const ProductKind kind : kKinds) all[ops::type_name(type)][ops::name_of(kind)] = name_of(paths.of(type)[kind]);
  }
  return all;
}

// Returns the names of paths that this CPU lacks; empty if it has them all.
std::string lacking(const MatmulPaths& paths) {
  std::vector<MatmulPath> lacks;
  for (const auto type : kTypes) {
    for (const ProductKind kind : kKinds) {
      const MatmulPath path = paths.of(type)[kind];
      if (!kernels::has_path(path) && std::ranges::find(lacks, path) == lacks.end()) lacks.push_back(path);
    }
  }
  return kernels::names_of(lacks);
}

std::string record_of(const MatmulPaths& paths, const char* by, const std::vector<ops::PathRate>& rates) {
  nlohmann::ordered_json file = json_of(paths);
  file["by"] = by;
  for (const auto& rate : rates) {
    file["measured"].push_back(
        {{"kind", ops::name_of(rate.kind)}, {"path", name_of(rate.path)}, {"gflops_of_a_thread", rate.gflops}});
  }
  return file.dump(2) + "\n";
}

// Returns "bfloat16 is multiplied by library, attention's by avx512"; a model without experts has the same path for
// both kinds.
std::string described(const MatmulPaths::OfType& of, at::ScalarType type) {
  std::string line = fmt::format("{} is multiplied by {}", ops::type_name(type), name_of(of.dense));
  if (of.grouped != of.dense) line += fmt::format(", experts' by {}", name_of(of.grouped));
  if (of.attention != of.dense || of.grouped != of.dense)
    line += fmt::format(", attention's by {}", name_of(of.attention));
  return line;
}

// The products of a small model may be far below 1 GFLOP/s.
std::string digits_of(double gflops) { return gflops < 10 ? format_digits(gflops) : fmt::format("{:.0f}", gflops); }

std::string figures_of(const std::vector<ops::PathRate>& rates) {
  std::string text;
  for (const ProductKind kind : kKinds) {
    std::string of_kind;
    for (const auto& rate : rates) {
      if (rate.kind == kind)
        of_kind += fmt::format("{} {} {}", of_kind.empty() ? "" : ",", name_of(rate.path), digits_of(rate.gflops));
    }
    if (!of_kind.empty()) text += fmt::format("{}{}{}", text.empty() ? "" : "; ", ops::name_of(kind), of_kind);
  }
  return text;
}

// Returns the paths that ATHANOR_MATMUL asks for; they also replace a damaged record.
MatmulChoice choice_of(const MatmulPaths& asked, at::ScalarType type, const std::filesystem::path& file) {
  std::string line = fmt::format("{}, as ATHANOR_MATMUL asks", described(asked.of(type), type));
  if (std::filesystem::is_regular_file(file)) {
    try {
      const MatmulPaths kept = paths_of(read_file(file), file.string());
      if (kept != asked) line += fmt::format("; before: {}", described(kept.of(type), type));
    } catch (const Error&) {
      line += fmt::format("; {} could not be read", file.string());
    }
  }
  return {asked, record_of(asked, "asked", {}), line};
}

at::ScalarType type_of(const RunConfig& config) { return ops::scalar_type(precision_of(config).compute); }

MatmulChoice measured(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const at::ScalarType type = type_of(config);
  const int64_t tokens = config.train.micro_batch_size * config.data.seq_len;
  ATHANOR_ASSERT(tokens > 0);  // data.seq_len is that of the data by now
  std::vector<ProductKind> kinds = {ProductKind::kDense, ProductKind::kAttention};
  int64_t rows = 0;
  if (model.num_experts > 0) {
    kinds.push_back(ProductKind::kGrouped);
    rows = tokens * model.num_experts_per_tok / model.num_experts;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto rates =
      ops::measure_matmul_paths(type, kinds,
                                ops::sample_shape(tokens, model.hidden_size, model.expert_intermediate_size(), rows,
                                                  model.head_dim(), config.data.seq_len));
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  MatmulChoice choice{ops::default_matmul_paths(), "", ""};
  choice.paths.of(type) = ops::fastest_paths(rates, choice.paths.of(type));
  if (model.num_experts == 0) choice.paths.of(type).grouped = choice.paths.of(type).dense;
  choice.record = record_of(choice.paths, "measured", rates);
  choice.line = fmt::format("{} (GFLOP/s of a thread: {}; measured in {:.0f} ms)",
                            described(choice.paths.of(type), type), figures_of(rates), taken.count());
  return choice;
}

}  // namespace

std::string text_of(const MatmulPaths& paths) { return json_of(paths).dump(); }

MatmulPaths paths_of(const std::string& text, const std::string& name) {
  MatmulPaths paths{};
  const nlohmann::ordered_json file = read_ordered_json(text);
  for (const auto type : kTypes) {
    for (const ProductKind kind : kKinds) {
      const nlohmann::ordered_json::json_pointer at(fmt::format("/{}/{}", ops::type_name(type), ops::name_of(kind)));
      const auto path = !file.is_discarded() && file.contains(at) && file[at].is_string()
                            ? kernels::path_named(file[at].get<std::string>())
                            : std::nullopt;
      const bool exists = path && ops::all_on(*path).of(type)[kind] == *path;
      ATHANOR_CHECK(exists,
                    "{} does not record how {} is multiplied ({}). Set ATHANOR_MATMUL to the path that the run used "
                    "(events.jsonl has it), or remove the file to continue with the default of this CPU: the last bits "
                    "of what follows may then differ",
                    name, ops::type_name(type), ops::name_of(kind));
      paths.of(type)[kind] = *path;
    }
  }
  return paths;
}

MatmulChoice choose_matmul_paths(const RunConfig& config, const ResumePoint& begin) {
  const at::ScalarType type = type_of(config);
  const auto file = RunFolder{config.train.run_dir}.matmul();
  // A run that begins at another run's checkpoint chooses for itself.
  const bool goes_on =
      begin.from == ResumePoint::From::kNewest || (begin.from == ResumePoint::From::kPath && begin.attempt > 1);
  if (const auto asked = ops::asked_matmul_paths()) return choice_of(*asked, type, file);
  std::optional<MatmulPaths> kept;
  if (std::filesystem::exists(file)) kept = paths_of(read_file(file), file.string());
  if (!goes_on && kept && !lacking(*kept).empty()) kept.reset();  // step 0 again, on another CPU
  if (kept) {
    const std::string lacks = lacking(*kept);
    ATHANOR_CHECK(
        lacks.empty(),
        "this run multiplies its matrices with {} ({}), which this CPU lacks; it has {}. Resume it on a CPU that has "
        "it, or set ATHANOR_MATMUL to one of these: the last bits of the following steps then differ",
        lacks, file.string(), kernels::names_of(kernels::paths_here()));
    return {*kept, "", fmt::format("{}, as before", described(kept->of(type), type))};
  }
  if (goes_on) {
    const MatmulPaths paths = ops::default_matmul_paths();
    return {paths, record_of(paths, "default", {}), described(paths.of(type), type)};
  }
  return measured(config);
}

namespace {

// Puts what the first rank chooses in force on all. Collective.
MatmulChoice put_in_force(const std::function<MatmulChoice()>& choose, const Team& team) {
  MatmulChoice choice;
  const std::string text = team.from_first([&] {
    choice = choose();
    return text_of(choice.paths);
  });
  team.on_all([&] {
    choice.paths = paths_of(text, "the first rank's choice");
    const std::string lacks = lacking(choice.paths);
    ATHANOR_CHECK(lacks.empty(),
                  "the first rank multiplies matrices with {}, which the CPU of rank {} lacks; it has {}. Set "
                  "ATHANOR_MATMUL to what all of them have",
                  lacks, team.index, kernels::names_of(kernels::paths_here()));
    const auto asked = ops::asked_matmul_path();
    ATHANOR_CHECK(
        !asked || ops::all_on(*asked) == choice.paths,
        "rank {} was started with ATHANOR_MATMUL = \"{}\", while the first rank multiplies otherwise ({}); set "
        "it to the same on all ranks",
        team.index, name_of(*asked), text);
  });
  ops::set_matmul_paths(choice.paths);
  return choice;
}

}  // namespace

MatmulChoice settle_matmul_paths(const RunConfig& config, const ResumePoint& begin, const Team& team) {
  return put_in_force([&] { return choose_matmul_paths(config, begin); }, team);
}

void settle_matmul_paths(const Team& team) {
  put_in_force(
      [] {
        return MatmulChoice{ops::asked_matmul_paths().value_or(ops::default_matmul_paths()), "", ""};
      },
      team);
}

}  // namespace athanor::inline run
