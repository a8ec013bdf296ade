#include "tokenizer/unicode_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

// No compatibility decomposition of one character is longer (U+FDFA).
constexpr int kMaxParts = 18;

constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

bool composes(UnicodeForm form) { return form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc; }

utf8proc_option_t decomposition(UnicodeForm form) {
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
}

// The first byte of the first character that is not always a boundary: U+00C0 decomposes, U+00A0 is compatible with a
// space, and below U+0300 every character is composed and is not a mark.
unsigned char first_lead(UnicodeForm form) { return form == UnicodeForm::kNfc ? 0xCC : 0xC2; }

// How a character interacts with the characters before it.
enum class Role : uint8_t {
  kBoundary = 0,   // stays as it is, and no composition extends over its left edge
  kJoins = 1,      // may reorder, compose with its left neighbour, or be replaced (annex 15: the form's Quick_Check is
                   // not Yes, or the combining class is not 0)
  kLeftAlone = 2,  // no composition extends over either edge: `tokenizers` does not know it
};

class Roles {
 public:
  explicit Roles(UnicodeForm form) : form_(form), roles_(kNumCodePoints) {
    for (uint32_t c = 0x80; c < kNumCodePoints; ++c) {
      const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
      if (property->category == UTF8PROC_CATEGORY_CN || property->category == UTF8PROC_CATEGORY_CS) continue;
      if (property->combining_class != 0) roles_[c] = Role::kJoins;
      if (property->category != UTF8PROC_CATEGORY_CO) mark_decomposition(static_cast<utf8proc_int32_t>(c));
    }
    for (const auto [first, last] : kUnknownToNormalizationRanges) {
      for (uint32_t c = first; c <= last; ++c) roles_[c] = Role::kLeftAlone;
    }
  }
  Role of(uint32_t c) const { return roles_[c]; }

 private:
  void mark_decomposition(utf8proc_int32_t c) {
    utf8proc_int32_t parts[kMaxParts];
    const auto count = utf8proc_decompose_char(c, parts, kMaxParts, decomposition(form_), nullptr);
    if (count < 1 || count > kMaxParts || (count == 1 && parts[0] == c)) return;
    const auto last = static_cast<uint32_t>(parts[count - 1]);
    if (composes(form_) && utf8proc_normalize_utf32(parts, count, kCompose) == 1 && parts[0] == c) {
      roles_[last] = Role::kJoins;
    } else {
      roles_[static_cast<uint32_t>(c)] = Role::kJoins;
    }
  }

  UnicodeForm form_;
  std::vector<Role> roles_;
};

const Roles& roles_of(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::kNfc: {
      static const Roles roles(UnicodeForm::kNfc);
      return roles;
    }
    case UnicodeForm::kNfd: {
      static const Roles roles(UnicodeForm::kNfd);
      return roles;
    }
    case UnicodeForm::kNfkc: {
      static const Roles roles(UnicodeForm::kNfkc);
      return roles;
    }
    default: {
      static const Roles roles(UnicodeForm::kNfkd);
      return roles;
    }
  }
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Sorts marks by class; marks of one class stay in order. (utf8proc's own sort takes hours for a megabyte of marks.)
void reorder_marks(std::vector<utf8proc_int32_t>& characters) {
  for (auto at = characters.begin(); at != characters.end();) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, characters.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(at, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

void append_normalized(UnicodeForm form, std::string& out, std::string_view text,
                       std::vector<utf8proc_int32_t>& characters) {
  characters.clear();
  for (size_t at = 0; at < text.size();) {
    const auto [c, length] = decode_utf8(text.data() + at);
    utf8proc_int32_t parts[kMaxParts];
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, kMaxParts, decomposition(form), nullptr);
    ATHANOR_ASSERT(count >= 0 && count <= kMaxParts);
    characters.insert(characters.end(), parts, parts + count);
    at += length;
  }
  reorder_marks(characters);
  auto count = static_cast<utf8proc_ssize_t>(characters.size());
  if (composes(form)) count = utf8proc_normalize_utf32(characters.data(), count, kCompose);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(out, static_cast<uint32_t>(characters[i]));
}

// Returns how many bytes at the beginning of `text` are ASCII: a multiple of 8, and no more than the number of ASCII
// bytes there.
size_t ascii_prefix(std::string_view text) {
  size_t at = 0;
  for (uint64_t bytes; at + sizeof(bytes) <= text.size(); at += sizeof(bytes)) {
    std::memcpy(&bytes, text.data() + at, sizeof(bytes));
    if (bytes & 0x8080808080808080ull) break;
  }
  return at;
}

}  // namespace

std::string_view normalize_unicode(UnicodeForm form, std::string_view text, std::string& storage) {
  const auto lead = first_lead(form);
  const Roles* roles = nullptr;  // ASCII needs none
  const auto role_of = [&](uint32_t c) {
    if (!roles) roles = &roles_of(form);
    return roles->of(c);
  };
  std::vector<utf8proc_int32_t> characters;
  size_t copied = 0;         // text[0, copied) is in `storage` as soon as something was copied
  size_t last_boundary = 0;  // where the last boundary character begins, or the run of joining characters if nothing
                             // composes
  bool changed = false;
  for (size_t at = 0; at < text.size();) {
    if (const size_t end = at + ascii_prefix(text.substr(at)); end > at) {
      last_boundary = end - 1;
      at = end;
      continue;
    }
    if (static_cast<unsigned char>(text[at]) < lead) {
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
      if (next.code_point < 0x80 || role_of(next.code_point) != Role::kJoins) break;
      end += next.num_bytes;
    }
    if (!composes(form)) last_boundary = at;
    if (!changed) storage.clear();
    changed = true;
    storage.append(text, copied, last_boundary - copied);
    append_normalized(form, storage, text.substr(last_boundary, end - last_boundary), characters);
    copied = last_boundary = at = end;
  }
  if (!changed) return text;
  storage.append(text, copied);
  return storage;
}

}  // namespace athanor::inline tokenizer
