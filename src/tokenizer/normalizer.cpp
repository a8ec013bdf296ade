#include "tokenizer/normalizer.h"

#include "tokenizer/file_limits.h"
#include "tokenizer/normalizer_steps.h"

namespace athanor::inline tokenizer {
namespace {

// Real files nest sequences one or two deep; a thousand would be an attack on the stack.

void append_steps(const JsonNode& node, int depth, std::vector<std::shared_ptr<const NormalizerStep>>& steps) {
  if (depth > kMaxNesting) node.complain("sequences are nested deeper than {}", kMaxNesting);
  const std::string type = node.at("type").as_string();
  if (type == "Sequence") {
    for (const auto& part : node.at("normalizers").elements()) append_steps(part, depth + 1, steps);
    return;
  }
  if (steps.size() == kMaxSteps) node.complain("more than {} normalizers", kMaxSteps);
  auto step = parse_normalizer_step(type, node);
  if (!step) {
    node.at("type").complain("the normalizer \"{}\" is not supported; {} are", type, kNormalizerKinds);
  }
  steps.push_back(std::move(step));
}

}  // namespace

Normalizer Normalizer::parse(const std::optional<JsonNode>& node) {
  Normalizer normalizer;
  if (node) append_steps(*node, 0, normalizer.steps_);
  return normalizer;
}

std::string_view Normalizer::apply(std::string_view text, RegexScratch& regex, Scratch& scratch) const {
  const size_t limit = max_normalized_bytes(text.size());
  int next = 0;  // the storage that `text` is not in
  for (const auto& step : steps_) {
    if (text.empty()) return text;  // an empty text stays empty, even with Prepend
    auto& storage = scratch.storage[next];
    text = step->apply(text, regex, storage);
    if (text.data() == storage.data()) next = 1 - next;
    ATHANOR_CHECK_DATA(text.size() <= limit,
                       "the tokenizer's normalizer turns this text into more than {} bytes; correct its rules", limit);
  }
  return text;
}

}  // namespace athanor::inline tokenizer
