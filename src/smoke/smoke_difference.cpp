#include "smoke/smoke_difference.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace athanor::inline smoke {
namespace {

std::vector<int64_t> sizes_of(const std::string& shape) {
  std::vector<int64_t> sizes;
  for (const char *at = shape.data(), *end = at + shape.size(); at < end; ++at) {
    int64_t size = 0;
    at = std::from_chars(at, end, size).ptr;
    sizes.push_back(size);
  }
  return sizes;
}

// "[2, 14, 77]": the index of an element of a row-major tensor.
std::string index_text(const std::string& shape, size_t element) {
  const auto sizes = sizes_of(shape);
  std::vector<std::string> index(sizes.size());
  auto rest = static_cast<int64_t>(element);
  for (size_t dim = sizes.size(); dim-- > 0;) {
    const int64_t size = std::max<int64_t>(1, sizes[dim]);
    index[dim] = std::to_string(rest % size);
    rest /= size;
  }
  return "[" + join(index) + "]";
}

int64_t parameters_of(const TracedModel& model) {
  int64_t sum = 0;
  for (const TracedTensor& tensor : model.tensors) {
    if (tensor.phase != "initial") continue;
    int64_t product = 1;
    for (const int64_t size : sizes_of(tensor.shape)) product *= size;
    sum += product;
  }
  return sum;
}

void add_model_facts(const SmokeTrace& here, const SmokeTrace& there, std::vector<std::string>& lines) {
  for (const TracedModel& model : here.models) {
    const TracedModel* other = there.find_model(model.name);
    if (!other) {
      lines.push_back(fmt::format("{}: trained here only, and not compared", model.name));
    } else if (const int64_t mine = parameters_of(model), its = parameters_of(*other); mine != its) {
      lines.push_back(fmt::format("{}: {} parameters here, {} there", model.name, mine, its));
    }
  }
  for (const TracedModel& model : there.models) {
    if (!here.find_model(model.name))
      lines.push_back(fmt::format("{}: trained there only, and not compared", model.name));
  }
}

std::string phase_text(const std::string& phase) {
  const size_t dot = phase.find('.');
  return dot == std::string::npos ? phase
                                  : fmt::format("{} of microbatch {}", phase.substr(0, dot), phase.substr(dot + 1));
}

std::string tensor_text(const TracedTensor& t) {
  return fmt::format("step {}, {}, {} ({} {})", t.step, phase_text(t.phase), t.name, t.shape, t.type);
}

// The tensors of a step by phase and name.
std::map<std::pair<std::string, std::string>, std::string> hashes_of_step(const TracedModel& model, int64_t step) {
  std::map<std::pair<std::string, std::string>, std::string> hashes;
  for (const TracedTensor& tensor : model.tensors) {
    if (tensor.step == step) hashes[{tensor.phase, tensor.name}] = tensor.hash;
  }
  return hashes;
}

std::optional<TracedTensor> tensor_at(const TracedModel& model, size_t index) {
  return index < model.tensors.size() ? std::optional(model.tensors[index]) : std::nullopt;
}

// What rounding to a type can change of a value at most: half a unit of its last place.
std::string rounding_of(const std::string& type) {
  if (type == "float32") return "; one rounding of float32 is at most 2^-24 of a value";
  if (type == "bfloat16") return "; one rounding of bfloat16 is at most 2^-8 of a value";
  return "";
}

}  // namespace

std::vector<std::string> differing_facts(const SmokeTrace& here, const SmokeTrace& there) {
  std::vector<std::string> lines;
  const std::map<std::string, std::string> theirs(there.facts.begin(), there.facts.end());
  for (const auto& [name, value] : here.facts) {
    const auto other = theirs.find(name);
    const std::string its = other == theirs.end() ? "unknown" : other->second;
    if (its != value) lines.push_back(fmt::format("{}: {} here, {} there", name, value, its));
  }
  add_model_facts(here, there, lines);
  return lines;
}

bool TraceDifference::has_values() const {
  return here && there && here->step == there->step && here->phase == there->phase && here->name == there->name &&
         here->shape == there->shape && here->type == there->type;
}

std::optional<TraceDifference> first_difference(const TracedModel& here, const TracedModel& there) {
  const auto [mine, its] = std::ranges::mismatch(here.tensors, there.tensors);
  if (mine == here.tensors.end() && its == there.tensors.end()) return std::nullopt;
  TraceDifference difference;
  difference.num_equal = static_cast<size_t>(mine - here.tensors.begin());
  difference.here = tensor_at(here, difference.num_equal);
  difference.there = tensor_at(there, difference.num_equal);
  const int64_t step = difference.here ? difference.here->step : difference.there->step;
  const auto in_step = hashes_of_step(here, step), others = hashes_of_step(there, step);
  difference.num_in_step = in_step.size();
  for (const auto& [tensor, hash] : in_step) {
    const auto other = others.find(tensor);
    if (other == others.end() || other->second != hash) ++difference.differing_in_step;
  }
  return difference;
}

std::string describe_values(const TracedTensor& tensor, const std::vector<double>& here,
                            const std::vector<double>& there) {
  ATHANOR_ASSERT(here.size() == there.size());
  size_t differing = 0, not_finite_here = 0, not_finite_there = 0, at = here.size();
  double largest = 0, scale = 0;
  for (size_t i = 0; i < here.size(); ++i) {
    const bool finite_here = std::isfinite(here[i]), finite_there = std::isfinite(there[i]);
    not_finite_here += !finite_here, not_finite_there += !finite_there;
    if (finite_here) scale = std::max(scale, std::abs(here[i]));
    if (std::bit_cast<uint64_t>(here[i]) == std::bit_cast<uint64_t>(there[i])) continue;
    ++differing;
    const double apart = std::abs(here[i] - there[i]);
    if (finite_here && finite_there && (at == here.size() || apart > largest)) largest = apart, at = i;
  }
  std::string text = fmt::format("{} of {} values differ", differing, here.size());
  if (at < here.size()) {
    text += fmt::format(", the largest difference is {:.3g} at {} ({:.9g} here, {:.9g} there)", largest,
                        index_text(tensor.shape, at), here[at], there[at]);
    if (largest > 0 && scale > 0)
      text += fmt::format(", 2^{:.1f} of the largest value{}", std::log2(largest / scale), rounding_of(tensor.type));
  }
  if (not_finite_here + not_finite_there > 0)
    text += fmt::format("; {} not finite here, {} there", not_finite_here, not_finite_there);
  return text;
}

std::string describe_difference(const std::string& model, const TraceDifference& difference,
                                const std::string& values) {
  const auto &here = difference.here, &there = difference.there;
  if (!here) return fmt::format("{}: the trace from here ends before {}", model, tensor_text(*there));
  if (!there) return fmt::format("{}: the trace from there ends before {}", model, tensor_text(*here));
  if (!difference.has_values())
    return fmt::format("{}: the builds do not compute the same tensors: {} here, {} there", model, tensor_text(*here),
                       tensor_text(*there));
  return fmt::format("{}: first differs at {}{}{}; hashes {} here, {} there", model, tensor_text(*here),
                     values.empty() ? "" : ": ", values, here->hash, there->hash);
}

std::string meaning_of_difference(const std::string& model, const TraceDifference& difference) {
  if (!difference.has_values()) return fmt::format("{}: {} tensors before are equal", model, difference.num_equal);
  const std::string& phase = difference.here->phase;
  const char* meaning = phase == "initial" ? "random numbers, or how parameters are made of them"
                        : phase == "input" ? "the tokens that the builds train on, so nothing after it can be compared"
                        : phase.starts_with("forward") ? "what computes this place from the one before it, in forward"
                        : phase.starts_with("backward")
                            ? "backward of what reads this place (for model.norm: the output layer and the loss)"
                        : phase == "loss"     ? "how the losses are added"
                        : phase == "gradient" ? "the product, or the sum over microbatches, that gives this gradient"
                        : phase == "norm"     ? "how the norm of the gradients is added"
                                              : "the optimizer: its arithmetic, its clipping or its learning rate";
  return fmt::format("{}: the {} tensors before it are equal, {} of the {} of this step differ; so look at {}", model,
                     difference.num_equal, difference.differing_in_step, difference.num_in_step, meaning);
}

}  // namespace athanor::inline smoke
