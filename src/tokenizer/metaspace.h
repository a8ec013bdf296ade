#pragma once
// Metaspace, as a pre-tokenizer and as a decoder: spaces are written as ▁, and a word has its space in front.

#include <memory>
#include <string>

#include "tokenizer/pre_tokenizer.h"

namespace athanor::inline tokenizer {

/// The places where a space is added: before every piece of text that this step gets and that does not begin with one,
/// before such a piece only if the document begins with it, or nowhere.
enum class PrependScheme { kAlways, kFirst, kNever };

struct Metaspace {
  std::string replacement = "▁";
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;  ///< each ▁ begins a new word

  /// @throws DataError that names the JSON path. Reads the older key add_prefix_space, too.
  static Metaspace parse(const JsonNode& node);
};

std::shared_ptr<const Splitter> make_metaspace_splitter(const Metaspace& metaspace);

}  // namespace athanor::inline tokenizer
