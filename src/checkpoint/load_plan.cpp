#include "checkpoint/load_plan.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace athanor::inline checkpoint {
namespace {

enum Need : int64_t { kPart = 1, kWhole = 2 };

// A claim is the need, and below it the member's number with some bits flipped: which ones depends on the piece.
struct ClaimBits {
  explicit ClaimBits(int members) : width(std::bit_width(static_cast<uint64_t>(members - 1))) {
    ATHANOR_ASSERT(members >= 1 && width <= 20);
  }
  int64_t mask() const { return (int64_t{1} << width) - 1; }
  int64_t flipped(size_t piece) const {
    return static_cast<int64_t>(piece * 0x9E3779B97F4A7C15 >> 32) & mask();  // Fibonacci hashing
  }
  int64_t claim(Need need, size_t piece, int member) const { return need << width | (member ^ flipped(piece)); }
  int member(int64_t claim, size_t piece) const { return static_cast<int>((claim & mask()) ^ flipped(piece)); }

  int width;
};

}  // namespace

int ByteShares::owner_of_next(uint64_t num_bytes) {
  // The position of a piece among all bytes decides.
  const double middle = static_cast<double>(before_) + static_cast<double>(num_bytes) / 2;
  before_ += num_bytes;
  const auto owner = static_cast<int>(middle / static_cast<double>(std::max<uint64_t>(1, all_bytes_)) * members_);
  return std::min(owner, members_ - 1);
}

std::vector<int64_t> claims_of(const LoadPlan& plan, const std::vector<Piece>& pieces, int member, int members) {
  const ClaimBits bits(members);
  std::vector<int64_t> claims(pieces.size());
  for (auto use = plan.uses.begin(); use != plan.uses.end();) {
    const size_t piece = use->piece;
    int64_t needed = 0;  // counts twice what two targets need, which only makes the claim larger
    for (; use != plan.uses.end() && use->piece == piece; ++use) needed += use->count;
    claims[piece] = bits.claim(needed >= pieces[piece].num_elements() ? kWhole : kPart, piece, member);
  }
  return claims;
}

std::vector<bool> pieces_to_hash(const std::vector<int64_t>& claims, const std::vector<Piece>& pieces, int member,
                                 int members) {
  ATHANOR_ASSERT(claims.size() == pieces.size());
  const ClaimBits bits(members);
  uint64_t unclaimed_bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) unclaimed_bytes += claims[i] == 0 ? pieces[i].num_bytes() : 0;
  ByteShares unclaimed(unclaimed_bytes, members);
  std::vector<bool> mine(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i)
    mine[i] = (claims[i] == 0 ? unclaimed.owner_of_next(pieces[i].num_bytes()) : bits.member(claims[i], i)) == member;
  return mine;
}

}  // namespace athanor::inline checkpoint
