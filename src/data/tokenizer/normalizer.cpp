#include "data/tokenizer/normalizer.h"

#include "data/tokenizer/nfc.h"

namespace athanor {

Normalizer Normalizer::parse(const JsonNode& node) {
  Normalizer normalizer;
  const auto& type = node.at("type").as_string();
  if (type == "NFC") {
    normalizer.nfc_ = true;
  } else if (type == "Sequence") {
    // NFC twice is NFC, so a sequence of what is known here is known.
    for (const auto& part : node.at("normalizers").elements()) normalizer.nfc_ |= parse(part).nfc_;
  } else {
    node.at("type").complain("the normalizer \"{}\" is not supported; NFC, Sequence and null are", type);
  }
  return normalizer;
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  return nfc_ ? nfc(text, storage) : text;
}

}  // namespace athanor
