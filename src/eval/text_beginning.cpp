#include "eval/text_beginning.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"

namespace athanor::inline eval {
namespace {

// A tokenizer whose post-processor is not known has no template that a run's data could lack.
bool asks_for_more(const Tokenizer& tokenizer) {
  try {
    return !tokenizer.text_template().before.empty();
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

TextBeginning beginning_in_training(TextTemplate around, uint32_t eos_id) {
  const uint32_t prefix = around.before.empty() ? eos_id : around.before.front();
  return {std::move(around), prefix};
}

TextBeginning beginning_of_texts(const LoadedModel& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const auto& of_training = model.source.text_template;
  if (of_training && model.eos_id) return beginning_in_training(*of_training, *model.eos_id);
  TextBeginning beginning{of_training ? *of_training : tokenizer.text_template(), tokenizer.bos_id()};
  if (!beginning.prefix) beginning.prefix = tokenizer.eos_id();
  if (!beginning.prefix) beginning.prefix = model.eos_id;
  return beginning;
}

void tell_beginning(const LoadedModel& model, const TextTemplate& around) {
  const Tokenizer& tokenizer = *model.tokenizer;
  if (!around.before.empty()) {
    log::info("texts begin with {}, as {}", tokenizer.describe(around.before),
              model.source.text_template ? "those of the training data" : "the tokenizer asks for");
  } else if (model.source.text_template && asks_for_more(tokenizer)) {
    log::info("texts begin without {}, which the tokenizer asks for: those of the training data do so",
              tokenizer.describe(tokenizer.text_template().before));
  }
}

std::vector<uint32_t> encode_in_template(const Tokenizer& tokenizer, const TextTemplate& around,
                                         std::string_view text) {
  std::vector<uint32_t> ids = tokenizer.encode(text);
  if (around.empty()) return ids;
  if (!around.before.empty()) {
    const std::string first = tokenizer.decode(std::vector<uint32_t>{around.before.front()});
    if (!first.empty() && text.starts_with(first)) return ids;
  }
  return around.around(ids);
}

}  // namespace athanor::inline eval
