#include "eval/token_forest.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"

namespace athanor::inline eval {
namespace {

// A shorter common beginning is computed again: each node costs a tile of keys and a pass over them.
constexpr int64_t kLeastShared = 8;

std::span<const int32_t> read_part(const ScoredSequence& sequence) {
  return sequence.tokens.first(sequence.tokens.size() - 1);
}

int64_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto [end, other] = std::ranges::mismatch(a, b);
  return end - a.begin();
}

// Sequences in the order of their tokens, so that those with the same beginning are neighbours.
std::vector<int64_t> in_order(std::span<const ScoredSequence> sequences) {
  std::vector<int64_t> order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return std::ranges::lexicographical_compare(read_part(sequences[static_cast<size_t>(a)]),
                                                read_part(sequences[static_cast<size_t>(b)]));
  });
  return order;
}

// Builds one batch. The sequences come in the order of their tokens.
//
// Each adds a run of tokens, those that it does not share with the sequence before. Later sequences branch
// off from runs; a run is then cut where they do, and its pieces are the nodes.
class Builder {
 public:
  explicit Builder(int64_t budget) : budget_(budget) {}

  bool is_empty() const { return runs_.empty(); }

  // Returns false if there is no room.
  bool add(const ScoredSequence& sequence, int64_t index) {
    const auto tokens = read_part(sequence);
    const int64_t length = std::ssize(tokens);
    const int64_t shared = is_empty() ? 0 : branch_point(common_length(tokens, last_), length);
    if (!is_empty() && num_tokens() + length - shared > budget_) return false;
    while (!path_.empty() && path_.back().begin >= std::max<int64_t>(shared, 1)) path_.pop_back();
    if (shared == 0) path_.clear();
    if (shared < length) {
      int64_t parent_run = -1;
      if (!path_.empty()) {
        parent_run = path_.back().run;
        runs_[static_cast<size_t>(parent_run)].cuts[shared] = -1;
      }
      path_.push_back({shared, std::ssize(runs_)});
      runs_.push_back({shared, num_tokens(), length - shared, parent_run, {{length, -1}}});
      batch_.tokens.insert(batch_.tokens.end(), tokens.begin() + shared, tokens.end());
    }
    last_ = tokens;
    note_predictions(sequence, index);
    return true;
  }

  TokenForest take() {
    for (Run& run : runs_) {
      int64_t begin = run.first_position;
      int64_t parent = run.parent_run < 0 ? -1 : runs_[static_cast<size_t>(run.parent_run)].cuts.at(begin);
      for (auto& [end, node] : run.cuts) {
        node = std::ssize(batch_.nodes);
        batch_.nodes.push_back(
            {run.first_row + begin - run.first_position, run.first_row + end - run.first_position, parent});
        parent = node;
        begin = end;
      }
    }
    runs_.clear();
    path_.clear();
    return std::exchange(batch_, {});
  }

 private:
  struct Run {
    int64_t first_position, first_row, length, parent_run;
    std::map<int64_t, int64_t> cuts;  // position after a piece → the piece's node, once it has one
  };
  struct OnPath {
    int64_t begin;  // position from which on the last sequence has its tokens in this run
    int64_t run;
  };

  int64_t num_tokens() const { return std::ssize(batch_.tokens); }

  // Returns how many of `common` tokens a sequence takes from the batch: all of them if that leaves no tiny node.
  int64_t branch_point(int64_t common, int64_t length) const {
    if (common == length) return common;
    int64_t boundary = 0;
    for (const auto& [begin, run] : path_) {
      if (begin <= common) boundary = std::max(boundary, begin);
      for (const auto& [end, node] : runs_[static_cast<size_t>(run)].cuts) {
        if (end <= common) boundary = std::max(boundary, end);
      }
    }
    return common - boundary < kLeastShared ? boundary : common;
  }

  void note_predictions(const ScoredSequence& sequence, int64_t index) {
    const int64_t length = std::ssize(sequence.tokens) - 1, first = length - sequence.num_scored;
    batch_.members.push_back({index, std::ssize(batch_.targets), sequence.num_scored});
    size_t at = path_.size() - 1;
    std::vector<int32_t> rows;
    for (int64_t position = length - 1; position >= first; --position) {
      while (path_[at].begin > position) --at;
      const Run& run = runs_[static_cast<size_t>(path_[at].run)];
      rows.push_back(static_cast<int32_t>(run.first_row + position - run.first_position));
    }
    batch_.rows.insert(batch_.rows.end(), rows.rbegin(), rows.rend());
    batch_.targets.insert(batch_.targets.end(), sequence.tokens.end() - sequence.num_scored, sequence.tokens.end());
  }

  int64_t budget_;
  std::vector<Run> runs_;
  std::vector<OnPath> path_;  // where the tokens of the last sequence are
  std::span<const int32_t> last_;
  TokenForest batch_;
};

}  // namespace

std::vector<TokenForest> pack_sequences(std::span<const ScoredSequence> sequences, int64_t token_budget) {
  std::vector<TokenForest> batches;
  Builder builder(token_budget);
  for (const int64_t index : in_order(sequences)) {
    const ScoredSequence& sequence = sequences[static_cast<size_t>(index)];
    ATHANOR_ASSERT(sequence.num_scored > 0 && sequence.num_scored < std::ssize(sequence.tokens));
    if (builder.add(sequence, index)) continue;
    batches.push_back(builder.take());
    builder.add(sequence, index);
  }
  if (!builder.is_empty()) batches.push_back(builder.take());
  return batches;
}

}  // namespace athanor::inline eval
