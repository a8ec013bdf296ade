#include "memory/out_of_memory.h"

#include <fmt/core.h>

#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/text.h"
#include "layout/memory.h"
#include "memory/memory_remedies.h"
#include "ops/graph.h"

namespace athanor::inline memory {
namespace {

// Reads "2.50 GiB" or "512 bytes" at the beginning of a text; −1 if it is neither.
double read_bytes(std::string_view text) {
  const std::string begin(text.substr(0, 40));
  char* unit = nullptr;
  const double number = std::strtod(begin.c_str(), &unit);
  if (unit == begin.c_str()) return -1;
  constexpr std::array<std::pair<std::string_view, double>, 4> kUnits = {
      {{" bytes", 1}, {" KiB", 0x1p10}, {" MiB", 0x1p20}, {" GiB", 0x1p30}}};
  for (const auto& [name, bytes] : kUnits)
    if (std::string_view(unit).starts_with(name)) return number * bytes;
  return -1;
}

double bytes_after(std::string_view text, std::string_view words) {
  const size_t at = text.find(words);
  return at == text.npos ? -1 : read_bytes(text.substr(at + words.size()));
}

// The number before words of which the text has others, too: "… and 2.00 GiB is reserved".
double bytes_before(std::string_view text, std::string_view words) {
  const size_t end = text.find(words);
  if (end == text.npos) return -1;
  const size_t unit = text.rfind(' ', end - 1);
  const size_t number = unit == text.npos || unit == 0 ? text.npos : text.rfind(' ', unit - 1);
  return number == text.npos ? -1 : read_bytes(text.substr(number + 1));
}

std::string bytes_or_unknown(double bytes) { return bytes < 0 ? "an unknown amount" : format_bytes(bytes); }

double num_bytes(const Tensor& x) { return x.defined() ? static_cast<double>(x.nbytes()) : 0; }

}  // namespace

FailedAllocation read_failed_allocation(std::string_view message) {
  return {bytes_after(message, "Tried to allocate "), bytes_after(message, "Of the allocated memory "),
          bytes_before(message, " is reserved by PyTorch but unallocated"), bytes_after(message, " of which ")};
}

std::string describe_out_of_memory(const TrainState& state, int64_t step, const c10::OutOfMemoryError& error) {
  const FailedAllocation failed = read_failed_allocation(error.what_without_backtrace());
  const ParameterStore& parameters = state.model.parameters;
  const double weights = num_bytes(parameters.compute()), gradients = num_bytes(parameters.grad()),
               optimizer = num_bytes(parameters.master_low()) + static_cast<double>(state.optimizer.set.state_bytes());
  const RunConfig& config = state.config;
  const DeviceRank own{state.model.mesh.rank(), state.model.mesh.layout().world_size(), {}};
  const MemoryNeed need = need_of_device(config, own);
  const auto graphs = static_cast<double>(ops::Graph::held_bytes_of_all());
  const double rest = failed.in_use - weights - gradients - optimizer - graphs;
  return fmt::format(
      "step {}: out of memory on {}: {} more were needed, where {} are in use, {} kept for reuse and {} free; {} are "
      "weights, {} masters and moments, {} gradients, {}and {} activations and scratch ({}estimated as {}). These "
      "settings save most, by the estimate: {}",
      step, parameters.compute().device().str(), bytes_or_unknown(failed.asked), bytes_or_unknown(failed.in_use),
      bytes_or_unknown(failed.kept), bytes_or_unknown(failed.free), format_bytes(weights), format_bytes(optimizer),
      format_bytes(gradients), graphs > 0 ? format_bytes(graphs) + " held by recorded graphs, " : "",
      bytes_or_unknown(rest), graphs > 0 ? "with the graphs " : "",
      format_bytes(need.passing_bytes() + need.graph_bytes + need.workspace_bytes), what_saves_most(config, own));
}

}  // namespace athanor::inline memory
