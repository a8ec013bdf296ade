#pragma once
// Lists the plants that each file makes. names.h contains their names and what they do.

#include <memory>
#include <string_view>
#include <vector>

#include "verify/plants/plant.h"

namespace athanor::inline verify::plants {

struct Row {
  std::string_view name;  ///< as in names.h
  std::unique_ptr<Plant> (*make)();
};

/// Makes a plant of type P from these arguments: make_of<P, 2> is a value of Row::make.
template <class P, auto... kArguments>
std::unique_ptr<Plant> make_of() {
  return std::make_unique<P>(kArguments...);
}

std::vector<Row> gradient_plants();
std::vector<Row> stage_plants();
std::vector<Row> group_plants();
std::vector<Row> pipeline_plants();
std::vector<Row> optimizer_plants();
std::vector<Row> sophiag_plants();

/// Returns the rows of all files.
std::vector<Row> all_plants();

}  // namespace athanor::inline verify::plants
