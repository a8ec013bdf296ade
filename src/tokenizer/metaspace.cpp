#include "tokenizer/metaspace.h"

#include "tokenizer/split_rule.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

class MetaspaceSplitter : public Splitter {
 public:
  explicit MetaspaceSplitter(const Metaspace& metaspace) : metaspace_(metaspace) {}

  void split(std::string_view text, RegexScratch&, WordSink sink) const override {
    cut(text, metaspace_.prepend == PrependScheme::kAlways, sink);
  }
  void split_first(std::string_view text, RegexScratch&, WordSink sink) const override {
    cut(text, metaspace_.prepend != PrependScheme::kNever, sink);
  }

 private:
  void cut(std::string_view text, bool prepend, WordSink sink) const {
    const auto& mark = metaspace_.replacement;
    std::string marked;
    marked.reserve(text.size() + text.size() / 2 + mark.size());
    if (prepend && !text.starts_with(' ') && !text.starts_with(mark)) marked = mark;
    size_t done = 0;
    for (size_t at = text.find(' '); at != text.npos; at = text.find(' ', done)) {
      marked.append(text, done, at - done).append(mark);
      done = at + 1;
    }
    marked.append(text, done);
    if (!metaspace_.split) return sink(marked);
    // Each mark begins a piece.
    size_t begin = 0;
    for (size_t at = marked.find(mark, 1); at != marked.npos; at = marked.find(mark, at + mark.size())) {
      sink(std::string_view(marked).substr(begin, at - begin));
      begin = at;
    }
    sink(std::string_view(marked).substr(begin));
  }

  Metaspace metaspace_;
};

PrependScheme parse_scheme(const JsonNode& node) {
  const auto& name = node.as_string();
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  node.complain("unknown scheme \"{}\"; expected always, first or never", name);
}

}  // namespace

Metaspace Metaspace::parse(const JsonNode& node) {
  Metaspace metaspace;
  const auto replacement = node.at("replacement");
  metaspace.replacement = replacement.as_string();
  if (metaspace.replacement.empty() ||
      decode_utf8(metaspace.replacement.data()).num_bytes != metaspace.replacement.size()) {
    replacement.complain("expected one character, found \"{}\"", metaspace.replacement);
  }
  const bool add_prefix_space = node.bool_or("add_prefix_space", true);
  const auto scheme = node.find("prepend_scheme");
  metaspace.prepend = scheme             ? parse_scheme(*scheme)
                      : add_prefix_space ? PrependScheme::kAlways
                                         : PrependScheme::kNever;
  if (!add_prefix_space && metaspace.prepend != PrependScheme::kNever) {
    scheme->complain("\"{}\" contradicts add_prefix_space, which is false; expected never", scheme->as_string());
  }
  metaspace.split = node.bool_or("split", true);
  return metaspace;
}

std::shared_ptr<const Splitter> make_metaspace_splitter(const Metaspace& metaspace) {
  return std::make_shared<MetaspaceSplitter>(metaspace);
}

}  // namespace athanor::inline tokenizer
