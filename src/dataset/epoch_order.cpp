#include "dataset/epoch_order.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "dataset/block_checksums.h"

namespace athanor::inline dataset {
namespace {

std::string named(const char* what, const Stretch& stretch) {
  auto name = fmt::format("{} epoch {}", what, stretch.epoch);
  if (stretch.first_row > 0) name += fmt::format(", added at {}", stretch.first_row);
  return name;
}

class ShuffledRows : public EpochOrder {
 public:
  ShuffledRows(const Stretch& stretch, uint64_t seed)
      : first_row_(stretch.first_row), order_(static_cast<uint64_t>(stretch.size), seed, named("data", stretch)) {}
  int64_t row(int64_t index) override {
    return first_row_ + static_cast<int64_t>(order_(static_cast<uint64_t>(index)));
  }

 private:
  const int64_t first_row_;
  const Permutation order_;
};

// Row j of part p has the place (2 j + 1) / (2 parts[p]) in (0, 1). The rows of all parts are taken in the order of
// their places, equal ones in the order of the parts. Only integers are used.
class PartsInProportion : public EpochOrder {
 public:
  PartsInProportion(std::vector<int64_t> parts, int64_t first_row) : parts_(std::move(parts)), taken_(parts_.size()) {
    for (const int64_t rows : parts_) {
      first_rows_.push_back(first_row + size_);
      size_ += rows;
    }
  }

  int64_t row(int64_t index) override {
    ATHANOR_ASSERT(index >= 0 && index < size_);
    if (index < num_taken_ || index - num_taken_ > 4 * static_cast<int64_t>(parts_.size())) move_near(index);
    while (num_taken_ < index) take();
    const size_t part = next_part();
    return first_rows_[part] + taken_[part];
  }

 private:
  using Wide = __int128;

  // Whether the next row of part `a` comes before that of part `b`.
  bool comes_before(size_t a, size_t b) const {
    const auto at = [&](size_t p, size_t other) { return Wide{2 * taken_[p] + 1} * parts_[other]; };
    return at(a, b) < at(b, a);
  }

  size_t next_part() const {
    std::optional<size_t> first;
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (taken_[p] < parts_[p] && (!first || comes_before(p, *first))) first = p;
    }
    return *first;
  }

  void take() {
    ++taken_[next_part()];
    ++num_taken_;
  }

  // Chooses counts that are not above those at `index`. At the place t, part p has given the nearest whole number to
  // parts[p] t, so all have given size t to within half the number of parts.
  void move_near(int64_t index) {
    num_taken_ = 0;
    const Wide least = std::max<Wide>(0, 2 * Wide{index} - static_cast<int64_t>(parts_.size()) - 1);
    for (size_t p = 0; p < parts_.size(); ++p) {
      taken_[p] = static_cast<int64_t>(std::max<Wide>(0, least * parts_[p] / (2 * Wide{size_}) - 1));
      num_taken_ += taken_[p];
    }
  }

  const std::vector<int64_t> parts_;
  std::vector<int64_t> first_rows_, taken_;  // by part
  int64_t size_ = 0, num_taken_ = 0;
};

class ShuffledBlocks : public EpochOrder {
 public:
  ShuffledBlocks(const Stretch& stretch, int64_t block_rows, uint64_t seed)
      : stretch_(stretch), seed_(seed), block_rows_(block_rows), num_full_(stretch.size / block_rows),
        rest_(stretch.size % block_rows), name_(named("blocks of", stretch)) {
    if (num_full_ > 0) order_.emplace(static_cast<uint64_t>(num_full_), seed, name_);
    const CounterRandom random(seed, name_ + ", where the rest is");
    rest_at_ = static_cast<int64_t>(random.below(0, static_cast<uint64_t>(num_full_) + 1)) * block_rows;
  }

  int64_t row(int64_t index) override {
    if (index >= rest_at_ && index < rest_at_ + rest_) return row_of(num_full_, index - rest_at_, rest_);
    if (index >= rest_at_) index -= rest_;
    const auto block = (*order_)(static_cast<uint64_t>(index / block_rows_));
    return row_of(static_cast<int64_t>(block), index % block_rows_, block_rows_);
  }

 private:
  int64_t row_of(int64_t block, int64_t index, int64_t rows) {
    if (block != block_) rows_.emplace(static_cast<uint64_t>(rows), seed_, fmt::format("{}, block {}", name_, block));
    block_ = block;
    const auto in_block = static_cast<int64_t>((*rows_)(static_cast<uint64_t>(index)));
    return stretch_.first_row + block * block_rows_ + in_block;
  }

  const Stretch stretch_;
  const uint64_t seed_;
  const int64_t block_rows_, num_full_, rest_;
  const std::string name_;
  int64_t rest_at_ = 0;               // index of the first of the rows that do not fill a block
  std::optional<Permutation> order_;  // permutes the full blocks
  std::optional<Permutation> rows_;   // permutes the rows in block block_
  int64_t block_ = -1;
};

// Returns the rows of each part of the folder that are in the stretch.
std::vector<int64_t> parts_of(const Dataset& data, const Stretch& stretch) {
  std::vector<int64_t> parts;
  int64_t begin = 0;
  for (const int64_t rows : data.rows_of_parts()) {
    const int64_t first = std::max(begin, stretch.first_row),
                  end = std::min(begin + rows, stretch.first_row + stretch.size);
    if (end > first) parts.push_back(end - first);
    begin += rows;
  }
  return parts;
}

}  // namespace

std::unique_ptr<EpochOrder> make_parts_order(std::vector<int64_t> parts, int64_t first_row) {
  return std::make_unique<PartsInProportion>(std::move(parts), first_row);
}

std::unique_ptr<EpochOrder> make_blocks_order(const Stretch& stretch, int64_t block_rows, uint64_t seed) {
  return std::make_unique<ShuffledBlocks>(stretch, block_rows, seed);
}

std::unique_ptr<EpochOrder> EpochOrder::make(DataOrder order, const Dataset& data, const Stretch& stretch,
                                             uint64_t seed) {
  if (order == DataOrder::kShuffledRows) return std::make_unique<ShuffledRows>(stretch, seed);
  if (stretch.epoch == 0) return make_parts_order(parts_of(data, stretch), stretch.first_row);
  return make_blocks_order(stretch, rows_per_block(data.seq_len() * data.manifest().item_bytes()), seed);
}

}  // namespace athanor::inline dataset
