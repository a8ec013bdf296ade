#pragma once
// The files that `transformers` keeps next to a tokenizer: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json. The folder is the tokenizer: tokens may stand in them alone.
//
// They are read by the rules of transformers 5.24 (PreTrainedTokenizerBase._from_pretrained and
// TokenizersBackend.__init__): if tokenizer_config.json has added_tokens_decoder, the other two files add nothing; each
// token of it is added in the order of the ids, then the named tokens and the extra ones that are no added tokens yet.

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline tokenizer {

/// A token that a companion file adds.
struct CompanionToken {
  std::string content;
  std::string file;            ///< the file that adds it, for messages
  std::optional<uint32_t> id;  ///< none if the file gives none
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = true;
  bool replaces = false;  ///< its flags count, also if the tokenizer has this token
};

struct CompanionFiles {
  std::vector<CompanionToken> tokens;        ///< in the order in which they are added
  std::map<std::string, std::string> named;  ///< "bos_token" → its text; every role that a file names
  bool add_bos = false, add_eos = false;     ///< what stands around a text if the model file does not tell it
};

/// Reads the companion files in `folder`; without any the result is empty.
/// @throws DataError with file and JSON path; IoError.
CompanionFiles read_companion_files(const std::filesystem::path& folder);

/// Adds the tokens to a parsed tokenizer.json, as `tokenizers` does: a token of the vocabulary keeps its id, another
/// one gets the next free id. A document without a vocabulary of ids is left as it is.
/// @return true if the document changed.
/// @throws DataError if a file gives a token another id than it gets.
bool add_companion_tokens(const CompanionFiles& companions, nlohmann::json& tokenizer, const std::string& name);

}  // namespace athanor::inline tokenizer
