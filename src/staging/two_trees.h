#pragma once
// The way of a chunk from the first node to all others: along one of two binary trees, in turn.
//
// In one binary tree an inner node sends each chunk twice and a leaf never, so half of the links idle. With two trees,
// each of which carries half of the chunks, and in which no node is inner twice, every node sends about as many bytes
// as it receives: all links are in use, and the last chunk arrives log₂ n hops after the first node sent it. A chain
// uses the links as well, but needs n hops: as much as sending n further chunks.
//
// Source: Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan (2009).
// docs/yeet.md derives the time that this takes.

#include <vector>

namespace athanor::staging {

inline constexpr int kNumTrees = 2;

/// A node's neighbours in one tree over the nodes 0 … num_nodes − 1. Node 0 has what is sent; it has one child.
struct TreePlace {
  int parent = -1;  ///< −1 on node 0
  std::vector<int> children = {};
};
TreePlace place_in_tree(int tree, int node, int num_nodes);

/// The way to the node that a chunk reaches last, in either tree.
struct DeepestPath {
  int hops = 0;
  int sends = 0;  ///< times in which a link sends a chunk: to a second child a node sends after the first
};
DeepestPath deepest_path(int num_nodes);

}  // namespace athanor::staging
