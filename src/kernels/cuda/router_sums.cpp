// What a router's losses and counts need of all tokens, added in one fixed order.

#include <bit>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/router.h"

namespace athanor::kernels::cuda {
namespace {

constexpr int64_t kPieceTokens = 64;  // as moe/scores.cpp adds on the CPU
constexpr int kSumThreads = 128;
using SumTeam = Team<kSumThreads>;

// What a piece leaves in the workspace, as doubles, which have all its floats and counts: for each expert its
// probabilities, choices and choices taken, then these.
enum PieceSum { kZ, kEntropy, kFlat, kMoved, kDropped, kPieceSums };

int64_t pieces_of(int64_t tokens) { return (tokens + kPieceTokens - 1) / kPieceTokens; }
ATHANOR_INLINE int64_t doubles_of_piece(int64_t width) { return 3 * width + kPieceSums; }

// A choice whose expert was not among the token's choices was moved.
ATHANOR_INLINE bool is_moved(int64_t id, const int64_t* chosen, int64_t k) {
  if (id < 0) return false;
  for (int64_t j = 0; j < k; ++j) {
    if (chosen[j] == id) return false;
  }
  return true;
}

// Adds up the rows of a piece that begin at the pointers; an expert has a thread, which adds in the order of rows.
ATHANOR_INLINE void sum_piece(const SumTeam& team, const float* scores, const float* logsumexp, const RowFacts* facts,
                              const int64_t* chosen, const int64_t* ids, double* to, int64_t rows,
                              const RouterRule& rule) {
  const int64_t width = rule.width, choices = rows * rule.k;
  double* of_piece = to + 3 * width;
  team.each([=](int thread) {
    for (int64_t e = thread; e < width; e += kSumThreads) {
      float prob = 0;
      for (int64_t row = 0; row < rows; ++row) prob += scores[row * width + e] / facts[row].score_sum;
      to[e] = static_cast<double>(prob);
      if (!ids) continue;
      int64_t num_chosen = 0, num_taken = 0;
      for (int64_t c = 0; c < choices; ++c) {
        num_chosen += chosen[c] == e ? 1 : 0;
        num_taken += ids[c] == e ? 1 : 0;
      }
      to[width + e] = static_cast<double>(num_chosen);
      to[2 * width + e] = static_cast<double>(num_taken);
    }
    if (thread != 0) return;
    double z = 0, entropy = 0, flat = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const auto lse = static_cast<double>(logsumexp[row]);
      z += lse * lse;
      entropy += facts[row].entropy;
      flat += static_cast<double>(facts[row].is_flat);
    }
    of_piece[kZ] = z, of_piece[kEntropy] = entropy, of_piece[kFlat] = flat;
  });
  if (!ids) return;
  const int64_t moved = team.sum<int64_t>([=](int thread) {
    int64_t mine = 0;
    for (int64_t c = thread; c < choices; c += kSumThreads)
      mine += is_moved(ids[c], chosen + c / rule.k * rule.k, rule.k) ? 1 : 0;
    return mine;
  });
  const int64_t dropped = team.sum<int64_t>([=](int thread) {
    int64_t mine = 0;
    for (int64_t c = thread; c < choices; c += kSumThreads) mine += ids[c] < 0 ? 1 : 0;
    return mine;
  });
  team.each([=](int thread) {
    if (thread == 0) of_piece[kMoved] = static_cast<double>(moved), of_piece[kDropped] = static_cast<double>(dropped);
  });
}

// Returns Σ over `pieces` pieces of one of their numbers, in their order.
template <class V>
ATHANOR_INLINE V sum_pieces(const double* from, int64_t pieces, int64_t width) {
  V sum = 0;
  for (int64_t piece = 0; piece < pieces; ++piece) sum += static_cast<V>(from[piece * doubles_of_piece(width)]);
  return sum;
}

}  // namespace

int64_t router_sums_workspace(int64_t sequences, int64_t tokens, int64_t width) {
  return sequences * pieces_of(tokens) * doubles_of_piece(width);
}

void router_sums(const Stream& stream, const float* scores, const float* logsumexp, const RowFacts* facts,
                 const int64_t* chosen, const int64_t* ids, const RoutedSums& sums, double* workspace,
                 int64_t sequences, int64_t tokens, const RouterRule& rule) {
  const int64_t pieces = pieces_of(tokens), width = rule.width, size = doubles_of_piece(width);
  const bool counts = sums.count != nullptr;
  for_each_team<kSumThreads>(stream, "router_sums: pieces", sequences * pieces, [=] ATHANOR_BODY(const SumTeam& team) {
    const int64_t in_sequence = team.index() % pieces * kPieceTokens;
    const int64_t row = team.index() / pieces * tokens + in_sequence;
    sum_piece(team, scores + row * width, logsumexp + row, facts + row, counts ? chosen + row * rule.k : nullptr,
              counts ? ids + row * rule.k : nullptr, workspace + team.index() * size,
              min_of(kPieceTokens, tokens - in_sequence), rule);
  });
  // A team for each sequence, and one more for the sums over all of them.
  for_each_team<kSumThreads>(stream, "router_sums", sequences + 1, [=] ATHANOR_BODY(const SumTeam& team) {
    const int64_t sequence = team.index(), all = sequences * pieces;
    team.each([=](int thread) {
      for (int64_t e = thread; e < width; e += kSumThreads) {
        if (sequence < sequences) {
          const double* from = workspace + sequence * pieces * size + e;
          sums.prob_sum[sequence * width + e] = sum_pieces<float>(from, pieces, width);
          if (counts) sums.count[sequence * width + e] = sum_pieces<float>(from + width, pieces, width);
        } else if (counts) {
          sums.counts[e] = sum_pieces<int64_t>(workspace + width + e, all, width);
          sums.counts[width + e] = sum_pieces<int64_t>(workspace + 2 * width + e, all, width);
        }
      }
      if (sequence < sequences || thread >= kPieceSums || (thread != kZ && !counts)) return;
      const double sum = sum_pieces<double>(workspace + 3 * width + thread, all, width);
      int64_t* numbers = sums.counts + 2 * width;
      if (thread == kZ) *sums.z_sum = static_cast<float>(sum);
      if (thread == kMoved) numbers[0] = static_cast<int64_t>(sum);
      if (thread == kDropped) numbers[1] = static_cast<int64_t>(sum);
      if (thread == kFlat) numbers[2] = static_cast<int64_t>(sum);
      if (thread == kEntropy) numbers[3] = std::bit_cast<int64_t>(sum);
    });
  });
}

}  // namespace athanor::kernels::cuda
