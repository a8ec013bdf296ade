#include "data/tokenizer/pre_tokenizer.h"

#include <string>

#include "data/tokenizer/gpt2_split.h"
#include "data/tokenizer/split_rule.h"

namespace athanor {
namespace {

// GPT-2's words; the bytes themselves need no mapping, since the model reads bytes.
class ByteLevelSplitter : public Splitter {
 public:
  ByteLevelSplitter(bool add_prefix_space, bool use_regex)
      : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}

  void split(std::string_view text, RegexScratch&, WordSink sink) const override {
    if (!add_prefix_space_ || text.starts_with(' ')) return cut(text, sink);
    std::string prefixed(" ");
    prefixed += text;
    cut(prefixed, sink);
  }

 private:
  void cut(std::string_view text, WordSink sink) const {
    if (!use_regex_) return sink(text);
    for (size_t at = 0; at < text.size();) {
      const size_t end = gpt2_word_end(text, at);
      sink(text.substr(at, end - at));
      at = end;
    }
  }

  bool add_prefix_space_, use_regex_;
};

void append_steps(const JsonNode& node, std::vector<std::shared_ptr<const Splitter>>& steps, bool& ends_in_bytes) {
  const auto& type = node.at("type").as_string();
  if (ends_in_bytes) node.complain("nothing may follow ByteLevel, found \"{}\"", type);
  if (type == "ByteLevel") {
    steps.push_back(
        std::make_shared<ByteLevelSplitter>(node.at("add_prefix_space").as_bool(), node.bool_or("use_regex", true)));
    ends_in_bytes = true;
  } else if (type == "Split") {
    steps.push_back(parse_split_rule(node));
  } else if (type == "Sequence") {
    for (const auto& part : node.at("pretokenizers").elements()) append_steps(part, steps, ends_in_bytes);
  } else {
    node.at("type").complain("the pre-tokenizer \"{}\" is not supported; ByteLevel, Split and Sequence are", type);
  }
}

}  // namespace

PreTokenizer PreTokenizer::parse(const JsonNode& node) {
  PreTokenizer pre_tokenizer;
  bool ends_in_bytes = false;
  append_steps(node, pre_tokenizer.steps_, ends_in_bytes);
  if (!ends_in_bytes) node.complain("only pre-tokenizers that end in ByteLevel are supported");
  return pre_tokenizer;
}

void PreTokenizer::run(size_t step, std::string_view text, RegexScratch& scratch, WordSink sink) const {
  if (text.empty()) return;
  if (step + 1 == steps_.size()) {
    auto take = [&](std::string_view word) {
      if (!word.empty()) sink(word);
    };
    return steps_[step]->split(text, scratch, take);
  }
  auto next = [&](std::string_view piece) { run(step + 1, piece, scratch, sink); };
  steps_[step]->split(text, scratch, next);
}

}  // namespace athanor
