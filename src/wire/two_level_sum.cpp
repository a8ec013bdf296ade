// The reduce-scatter and the all-gather in two levels: first among the members of a node, then among the members with
// the same position in their nodes, and back. A part crosses between two nodes once for each branch of the tree that
// the sending node has, and not once for each of its members. In practice these are one or two.

#include <algorithm>

#include "base/error.h"
#include "wire/phases.h"
#include "wire/piece_sums.h"

namespace athanor::comm {

namespace {

// What both phases of the sum know. Part p belongs to member p; a member first adds the terms that its node has of all
// parts of its column: those of the members with its position.
struct Sums {
  Sums(const NodeShape& the_shape, SumSpec the_spec, int index)
      : shape(the_shape), spec(std::move(the_spec)), node(index / shape.per_node), place(index % shape.per_node),
        width(element_bytes(spec.element)), wide(wide_bytes(spec.element)) {
    ATHANOR_ASSERT(std::ssize(spec.begins) == shape.per_node * shape.nodes + 1);
    int64_t num_blocks = 0;
    for (int n = 0; n < shape.nodes; ++n) {
      blocks.push_back(tree_blocks(n * shape.per_node, (n + 1) * shape.per_node));
      num_blocks += std::ssize(blocks.back());
    }
    piece = piece_elements(num_blocks, wide);
    for (int p = 0; p < shape.per_node * shape.nodes; ++p) longest = std::max(longest, count_of(p));
    pieces_of_part = (longest + piece - 1) / piece;
    for (int n = 0; n < shape.nodes; ++n) {
      partial_begins.push_back(num_partials);
      num_partials += count_of(part(n, place)) * blocks_of(node);
    }
  }

  int part(int of_node, int of_place) const { return of_node * shape.per_node + of_place; }
  int64_t begin_of(int p) const { return spec.begins[static_cast<size_t>(p)]; }
  int64_t count_of(int p) const { return begin_of(p + 1) - begin_of(p); }
  int64_t length(int p, int64_t number) const { return std::clamp<int64_t>(count_of(p) - number * piece, 0, piece); }
  int64_t blocks_of(int of_node) const { return std::ssize(blocks[static_cast<size_t>(of_node)]); }
  // The partial sums of a piece of the part that belongs to the member of this column on a node: [blocks, length].
  char* partials_of(int of_node, int64_t number) const {
    return partials->data() + (partial_begins[static_cast<size_t>(of_node)] + number * piece * blocks_of(node)) * wide;
  }

  NodeShape shape;
  SumSpec spec;
  int node, place;  // those of this member
  int64_t width, wide;
  std::vector<std::vector<int>> blocks;  // branches of the tree, by node
  int64_t piece = 1, longest = 0, pieces_of_part = 0, num_partials = 0;
  std::vector<int64_t> partial_begins;  // by node
  std::shared_ptr<std::vector<char>> partials = std::make_shared<std::vector<char>>();
};

// Inside the node: pieces of all parts of the column, part after part.
class InsideSums : public PieceSums {
 public:
  explicit InsideSums(std::shared_ptr<const Sums> sums)
      : sums_(std::move(sums)), terms_(static_cast<size_t>(sums_->shape.per_node)) {
    const Sums& s = *sums_;
    me = s.place;
    for (int i = 0; i < s.shape.per_node; ++i) members.push_back(s.part(s.node, i));
    num_pieces = s.shape.nodes * s.pieces_of_part;
    s.partials->resize(static_cast<size_t>(s.num_partials * s.wide));
  }

  Bytes outgoing(int to, int64_t piece) const override {
    const Sums& s = *sums_;
    const int part = s.part(node_of(piece), to);
    return {term(part, piece), s.length(part, number_of(piece)) * s.width};
  }
  int64_t incoming(int, int64_t piece) const override { return own_length(piece) * sums_->width; }
  int64_t most_incoming(int) const override { return std::min(sums_->piece, sums_->longest) * sums_->width; }

  void add(int64_t piece, const std::vector<const char*>& received) override {
    const Sums& s = *sums_;
    const int64_t length = own_length(piece);
    if (length == 0) return;
    std::copy(received.begin(), received.end(), terms_.begin());
    terms_[static_cast<size_t>(me)] = term(s.part(node_of(piece), me), piece);
    char* out = s.partials_of(node_of(piece), number_of(piece));
    const void* const* first = terms_.data();
    for (const int size : s.blocks[static_cast<size_t>(s.node)]) {
      tree_sum_wide(s.spec.element, s.spec.combine, s.spec.scale.first, first, size, length, out);
      first += size;
      out += length * s.wide;
    }
  }
  int64_t held_bytes() const override { return std::ssize(*sums_->partials); }

 private:
  int node_of(int64_t piece) const { return static_cast<int>(piece / sums_->pieces_of_part); }
  int64_t number_of(int64_t piece) const { return piece % sums_->pieces_of_part; }
  int64_t own_length(int64_t piece) const { return sums_->length(sums_->part(node_of(piece), me), number_of(piece)); }
  const char* term(int part, int64_t piece) const {
    return sums_->spec.in + (sums_->begin_of(part) + number_of(piece) * sums_->piece) * sums_->width;
  }

  std::shared_ptr<const Sums> sums_;
  std::vector<const void*> terms_;
};

// Between nodes: pieces of one part from each node of the column.
class OutsideSums : public PieceSums {
 public:
  explicit OutsideSums(std::shared_ptr<const Sums> sums) : sums_(std::move(sums)) {
    const Sums& s = *sums_;
    me = s.node;
    for (int n = 0; n < s.shape.nodes; ++n) {
      members.push_back(s.part(n, s.place));
      sizes_.insert(sizes_.end(), s.blocks[static_cast<size_t>(n)].begin(), s.blocks[static_cast<size_t>(n)].end());
    }
    num_pieces = s.pieces_of_part;
  }

  Bytes outgoing(int to, int64_t piece) const override {
    const Sums& s = *sums_;
    const int64_t length = s.length(s.part(to, s.place), piece);
    return {length == 0 ? nullptr : s.partials_of(to, piece), length * s.blocks_of(me) * s.wide};
  }
  int64_t incoming(int from, int64_t piece) const override {
    return own_length(piece) * sums_->blocks_of(from) * sums_->wide;
  }
  int64_t most_incoming(int from) const override { return incoming(from, 0); }

  void add(int64_t piece, const std::vector<const char*>& received) override {
    const Sums& s = *sums_;
    const int64_t length = own_length(piece);
    if (length == 0) return;
    terms_.clear();
    for (int n = 0; n < s.shape.nodes; ++n) {
      const char* from = n == me ? s.partials_of(me, piece) : received[static_cast<size_t>(n)];
      for (int64_t block = 0; block < s.blocks_of(n); ++block) terms_.push_back(from + block * length * s.wide);
    }
    sum_blocks(s.spec.element, s.spec.combine, s.spec.scale.last, terms_.data(), sizes_, length,
               s.spec.out + piece * s.piece * s.width);
  }
  int64_t held_bytes() const override { return std::ssize(*sums_->partials); }

 private:
  int64_t own_length(int64_t piece) const { return sums_->length(sums_->part(me, sums_->place), piece); }

  std::shared_ptr<const Sums> sums_;
  std::vector<int> sizes_;  // sizes of all blocks, in the tree's order
  std::vector<const void*> terms_;
};

// Pieces of a gather; `begins` is in bytes.
struct Gather {
  NodeShape shape;
  std::vector<int64_t> begins;
  int node, place;  // those of this member
  char* out;

  int part(int of_node, int of_place) const { return of_node * shape.per_node + of_place; }
  // Part p in its place in `out`, sent to or received from a member.
  Piece piece(int member, int p) const {
    const auto at = static_cast<size_t>(p);
    return {member, out + begins[at], begins[at + 1] - begins[at]};
  }

  std::unique_ptr<Phase> outside(char* own) const {
    std::vector<Piece> sends, receives;
    const Piece mine = piece(part(node, place), part(node, place));
    for (int distance = 1; distance < shape.nodes; ++distance) {
      const int to = part((node + distance) % shape.nodes, place);
      const int from = part((node - distance + shape.nodes) % shape.nodes, place);
      sends.push_back({to, own, mine.bytes});
      receives.push_back(piece(from, from));
    }
    return exchange(std::move(sends), std::move(receives), [own, mine] {
      if (own != mine.data && mine.bytes > 0) std::copy_n(own, mine.bytes, mine.data);
    });
  }

  std::unique_ptr<Phase> inside() const {
    std::vector<Piece> sends, receives;
    for (int distance = 1; distance < shape.per_node; ++distance) {
      const int to = (place + distance) % shape.per_node;
      const int from = (place - distance + shape.per_node) % shape.per_node;
      for (int n = 0; n < shape.nodes; ++n) {
        sends.push_back(piece(part(node, to), part(n, place)));
        receives.push_back(piece(part(node, from), part(n, from)));
      }
    }
    return exchange(std::move(sends), std::move(receives), nullptr);
  }
};

}  // namespace

Operation::Phases sum_in_two_levels(const NodeShape& shape, const std::function<SumSpec()>& spec, int me) {
  // The second phase takes what the first has added, and then nothing else holds it.
  const auto shared = std::make_shared<std::shared_ptr<Sums>>();
  return {[=] {
            *shared = std::make_shared<Sums>(shape, spec(), me);
            return run_piece_sums(std::make_unique<InsideSums>(*shared));
          },
          [=] { return run_piece_sums(std::make_unique<OutsideSums>(std::exchange(*shared, nullptr))); }};
}

Operation::Phases gather_in_two_levels(const NodeShape& shape, const std::function<std::vector<int64_t>()>& begins,
                                       int me, char* own, char* out) {
  const auto gather = [=] { return Gather{shape, begins(), me / shape.per_node, me % shape.per_node, out}; };
  return {[=] { return gather().outside(own); }, [=] { return gather().inside(); }};
}

}  // namespace athanor::comm
