#include "tasks/few_shot.h"

#include <fmt/core.h>

#include "base/error.h"
#include "tasks/task_format.h"

namespace athanor::tasks {
namespace {

using Json = nlohmann::ordered_json;

bool equals(const Json& example, const Value& document) { return equal(Value::of_json(example), document); }

}  // namespace

ExamplePool::ExamplePool(const TaskConfig& task, const ExampleSource& source, uint64_t seed)
    : task_(task), leaves_out_document_(source.leaves_out_document), random_(seed) {
  if (task.samples) return;
  SelectionReader reader;
  reader.start(source.rows);
  for (RawRow row; reader.next(row);) rows_.push_back(std::move(row));
}

Json ExamplePool::example(size_t index) const {
  if (task_.samples) return (*task_.samples)[index];
  Json row = rows_[index].parse();
  try {
    add_fields(task_.example, row);
  } catch (const DataError& error) {
    fail<DataError>("{}: {}", rows_[index].place, error.what());
  }
  return row;
}

std::vector<Json> ExamplePool::draw(int64_t wanted, const Json& document) {
  std::vector<Json> examples;
  if (wanted == 0) return examples;
  const auto n = static_cast<size_t>(wanted);
  const size_t num_examples = task_.samples ? task_.samples->size() : rows_.size();
  const Value compared = leaves_out_document_ ? Value::of_json(document) : Value();
  if (task_.takes_first_examples) return take_first(n, leaves_out_document_ ? &compared : nullptr);
  // One more is drawn than is needed if the document itself may be among them.
  const size_t drawn = n + (leaves_out_document_ ? 1 : 0);
  ATHANOR_CHECK_DATA(drawn <= num_examples,
                     "{}: {} few-shot examples are asked for{}, there are {} rows; lower --fewshot", task_.where, n,
                     leaves_out_document_ ? ", and one to spare" : "", num_examples);
  for (const auto index : random_.sample(num_examples, drawn)) {
    if (examples.size() == n) break;
    Json row = example(index);
    if (!leaves_out_document_ || !equals(row, compared)) examples.push_back(std::move(row));
  }
  if (examples.size() == n) return examples;
  return draw_from_rest(n, compared);
}

std::vector<Json> ExamplePool::take_first(size_t n, const Value* document) const {
  std::vector<Json> examples;
  const size_t num_examples = task_.samples ? task_.samples->size() : rows_.size();
  for (size_t i = 0; i < num_examples && examples.size() < n; ++i) {
    Json row = example(i);
    if (!document || !equals(row, *document)) examples.push_back(std::move(row));
  }
  ATHANOR_CHECK_DATA(examples.size() == n, "{}: {} few-shot examples are asked for, there are {}; lower --fewshot",
                     task_.where, n, examples.size());
  return examples;
}

// Several rows equal the document: lm_eval draws again from the others.
std::vector<Json> ExamplePool::draw_from_rest(size_t n, const Value& document) {
  std::vector<size_t> rest;
  const size_t num_examples = task_.samples ? task_.samples->size() : rows_.size();
  for (size_t i = 0; i < num_examples; ++i)
    if (!equals(example(i), document)) rest.push_back(i);
  ATHANOR_CHECK_DATA(n <= rest.size(),
                     "{}: {} few-shot examples are asked for, {} rows differ from the document; lower --fewshot",
                     task_.where, n, rest.size());
  std::vector<Json> examples;
  for (const auto index : random_.sample(rest.size(), n)) examples.push_back(example(rest[index]));
  return examples;
}

}  // namespace athanor::tasks
