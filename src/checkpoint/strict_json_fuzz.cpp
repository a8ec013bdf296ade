// Any bytes either are refused with a CheckpointError, or have the value that the parser's own tree gives; read as
// records they are accepted or refused, and nothing else happens.

#include "base/error.h"
#include "checkpoint/json_records.h"
#include "checkpoint/manifest.h"
#include "checkpoint/strict_json.h"

namespace {

using namespace athanor;
using Json = nlohmann::json;

struct EveryMember : JsonTaker {
  Form form_of(const std::string& key) override {
    return key.size() % 3 == 0 ? Form::kValue : key.size() % 3 == 1 ? Form::kRecord : Form::kRecords;
  }
  void take_record(const std::string& /*key*/, const JsonRecord& record) override {
    try {
      record.sizes("offset");
      record.size("flat_end");
      record.text("tensor");
    } catch (const CheckpointError&) {
    }
  }
  void take_value(const std::string& /*key*/, Json /*value*/) override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool whole = false;
  try {
    const Json value = parse_strict_json(text, "fuzz");
    whole = true;
    if (!Json::accept(text) || value != Json::parse(text)) __builtin_trap();
  } catch (const CheckpointError&) {
  }
  try {
    EveryMember taker;
    read_json_records(text, "fuzz", 0, taker);
    if (!whole) __builtin_trap();  // it must not accept more than the tree
  } catch (const CheckpointError&) {
  }
  try {
    parse_manifest(text, "fuzz");
  } catch (const CheckpointError&) {
  }
  return 0;
}
