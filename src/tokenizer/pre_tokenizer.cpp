#include "tokenizer/pre_tokenizer.h"

#include <string>

#include "tokenizer/byte_level.h"
#include "tokenizer/character_split.h"
#include "tokenizer/file_limits.h"
#include "tokenizer/known_patterns.h"
#include "tokenizer/metaspace.h"
#include "tokenizer/split_rule.h"

namespace athanor::inline tokenizer {
namespace {

// Real files nest sequences one or two deep; a thousand would be an attack on the stack.

// Cuts into GPT-2's words, as bytes or spelled in the byte-level alphabet.
class ByteLevelSplitter : public Splitter {
 public:
  ByteLevelSplitter(bool add_prefix_space, bool use_regex, bool plain)
      : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {
    if (plain) pattern_.emplace(kGpt2Pattern);
  }

  void spell_out() { spell_ = true; }

  void split(std::string_view text, RegexScratch& scratch, WordSink sink) const override {
    auto spelled = [sink](std::string_view word) { sink(alphabet_from_bytes(word)); };
    const auto words = spell_ ? WordSink(spelled) : sink;
    if (!add_prefix_space_ || text.starts_with(' ')) return cut(text, scratch, words);
    std::string prefixed(" ");
    prefixed += text;
    cut(prefixed, scratch, words);
  }

 private:
  void cut(std::string_view text, RegexScratch& scratch, WordSink sink) const {
    if (!use_regex_) return sink(text);
    for (size_t at = 0; at < text.size();) {
      size_t end = 0;
      if (pattern_) {
        Regex::Match match;
        ATHANOR_ASSERT(pattern_->find(text, at, scratch, match) && match.begin == at && match.end > at);
        end = match.end;
      } else {
        end = gpt2_word_end(text, at);
      }
      sink(text.substr(at, end - at));
      at = end;
    }
  }

  bool add_prefix_space_, use_regex_, spell_ = false;
  std::optional<Regex> pattern_;
};

class StepParser {
 public:
  explicit StepParser(bool plain) : plain_(plain) {}

  void parse(const JsonNode& node, int depth = 0) {
    if (depth > kMaxNesting) node.complain("sequences are nested deeper than {}", kMaxNesting);
    const std::string type = node.at("type").as_string();
    if (type == "Sequence") {
      for (const auto& part : node.at("pretokenizers").elements()) parse(part, depth + 1);
      return;
    }
    if (steps_.size() == kMaxSteps) node.complain("more than {} pre-tokenizers", kMaxSteps);
    // A step after ByteLevel reads its alphabet; if ByteLevel is the last step, the model gets bytes.
    if (byte_level_) byte_level_->spell_out();
    byte_level_ = nullptr;
    if (type == "ByteLevel") {
      if (++num_byte_levels_ > kMaxByteLevels)
        node.complain("more than {} ByteLevel, one over the other", kMaxByteLevels);
      byte_level_ = std::make_shared<ByteLevelSplitter>(node.at("add_prefix_space").as_bool(),
                                                        node.bool_or("use_regex", true), plain_);
      steps_.push_back(byte_level_);
    } else if (type == "Split") {
      steps_.push_back(parse_split_rule(node, plain_));
    } else if (type == "Metaspace") {
      steps_.push_back(make_metaspace_splitter(Metaspace::parse(node)));
    } else if (auto step = parse_character_split(type, node)) {
      steps_.push_back(std::move(step));
    } else {
      node.at("type").complain(
          "the pre-tokenizer \"{}\" is not supported; ByteLevel, Split, Metaspace, {}, Sequence "
          "and null are",
          type, kCharacterSplitKinds);
    }
  }

  std::vector<std::shared_ptr<const Splitter>> take_steps() { return std::move(steps_); }
  bool ends_in_bytes() const { return byte_level_ != nullptr; }

 private:
  static constexpr int kMaxByteLevels = 4;  // each may double the text

  bool plain_;
  int num_byte_levels_ = 0;
  std::vector<std::shared_ptr<const Splitter>> steps_;
  std::shared_ptr<ByteLevelSplitter> byte_level_;  // the last step, if it is a ByteLevel
};

}  // namespace

PreTokenizer PreTokenizer::parse(const std::optional<JsonNode>& node, bool plain) {
  PreTokenizer pre_tokenizer;
  if (!node) return pre_tokenizer;
  StepParser parser(plain);
  parser.parse(*node);
  pre_tokenizer.words_ = parser.ends_in_bytes() ? WordKind::kBytes : WordKind::kCharacters;
  pre_tokenizer.steps_ = parser.take_steps();
  return pre_tokenizer;
}

void PreTokenizer::run(size_t step, std::string_view text, size_t num_first, RegexScratch& scratch,
                       WordSink sink) const {
  if (text.empty()) return;
  const auto& splitter = *steps_[step];
  const auto split = [&](WordSink pieces) {
    num_first > 0 ? splitter.split_first(text, scratch, pieces) : splitter.split(text, scratch, pieces);
  };
  if (step + 1 == steps_.size()) {
    auto take = [&](std::string_view word) {
      if (!word.empty()) sink(word);
    };
    return split(take);
  }
  auto next = [&](std::string_view piece) {
    // Position of the piece in the text; a huge number if the piece is a copy.
    const auto at = reinterpret_cast<uintptr_t>(piece.data()) - reinterpret_cast<uintptr_t>(text.data());
    run(step + 1, piece, at < num_first ? num_first - at : 0, scratch, sink);
  };
  split(next);
}

}  // namespace athanor::inline tokenizer
