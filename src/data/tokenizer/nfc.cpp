#include "data/tokenizer/nfc.h"

#include <utf8proc.h>

#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/tokenizer/unicode.h"

namespace athanor {
namespace {

constexpr uint32_t kNumCodePoints = 0x110000;

// Below U+0300 every character is composed and no mark.
constexpr uint32_t kFirstMark = 0x300;

constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

// How a character stands to what is before it.
enum class Role : uint8_t {
  kBoundary = 0,  // composition never reaches over its left edge
  kJoins = 1,     // may reorder, compose with its left neighbour, or be replaced (annex 15: NFC_Quick_Check is not Yes,
                  // or the combining class is not 0)
  kLeftAlone = 2,  // nothing composes over either edge: `tokenizers` does not know it
};

class Roles {
 public:
  Roles() : roles_(kNumCodePoints) {
    for (uint32_t c = kFirstMark; c < kNumCodePoints; ++c) {
      const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
      if (property->category == UTF8PROC_CATEGORY_CN || property->category == UTF8PROC_CATEGORY_CS) continue;
      if (property->combining_class != 0) roles_[c] = Role::kJoins;
      if (property->category != UTF8PROC_CATEGORY_CO) mark_decomposition(static_cast<utf8proc_int32_t>(c));
    }
    for (const auto [first, last] : kUnknownToNfcRanges) {
      for (uint32_t c = first; c <= last; ++c) roles_[c] = Role::kLeftAlone;
    }
  }
  Role of(uint32_t c) const { return roles_[c]; }

 private:
  void mark_decomposition(utf8proc_int32_t c) {
    utf8proc_int32_t parts[8];
    const auto count = utf8proc_decompose_char(c, parts, 8, UTF8PROC_DECOMPOSE, nullptr);
    if (count < 1 || count > 8 || (count == 1 && parts[0] == c)) return;
    const auto last = static_cast<uint32_t>(parts[count - 1]);
    if (utf8proc_normalize_utf32(parts, count, kCompose) == 1 && parts[0] == c) {
      roles_[last] = Role::kJoins;
    } else {
      roles_[static_cast<uint32_t>(c)] = Role::kJoins;
    }
  }

  std::vector<Role> roles_;
};

Role role_of(uint32_t c) {
  static const Roles roles;
  return roles.of(c);
}

void append_composed(std::string& out, std::string_view text, std::vector<utf8proc_int32_t>& scratch) {
  scratch.resize(text.size() * 4 + 16);  // no canonical decomposition has more than 4 code points
  const auto decomposed = utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), scratch.data(),
                                             static_cast<utf8proc_ssize_t>(scratch.size()), UTF8PROC_DECOMPOSE);
  ATHANOR_ASSERT(decomposed >= 0 && decomposed <= static_cast<utf8proc_ssize_t>(scratch.size()));
  const auto composed = utf8proc_normalize_utf32(scratch.data(), decomposed, kCompose);
  for (utf8proc_ssize_t i = 0; i < composed; ++i) append_utf8(out, static_cast<uint32_t>(scratch[i]));
}

}  // namespace

std::string_view nfc(std::string_view text, std::string& storage) {
  std::vector<utf8proc_int32_t> scratch;
  size_t copied = 0;         // text[0, copied) is in `storage`, once anything is
  size_t last_boundary = 0;  // where the last boundary character begins
  bool changed = false;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0xCC) {  // below U+0300
      last_boundary = at;
      at += static_cast<unsigned char>(text[at]) < 0x80 ? 1 : 2;
      continue;
    }
    const auto [c, length] = decode_utf8(text.data() + at);
    const auto role = role_of(c);
    if (role != Role::kJoins) {
      last_boundary = role == Role::kBoundary ? at : at + length;
      at += length;
      continue;
    }
    size_t end = at + length;
    while (end < text.size()) {
      const auto next = decode_utf8(text.data() + end);
      if (role_of(next.code_point) != Role::kJoins) break;
      end += next.num_bytes;
    }
    if (!changed) storage.clear();
    changed = true;
    storage.append(text, copied, last_boundary - copied);
    append_composed(storage, text.substr(last_boundary, end - last_boundary), scratch);
    copied = last_boundary = at = end;
  }
  if (!changed) return text;
  storage.append(text, copied);
  return storage;
}

}  // namespace athanor
