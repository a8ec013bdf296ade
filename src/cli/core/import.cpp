#include "train/import.h"
#include "base/log.h"
#include "cli/core.h"

ATHANOR_CORE_ENTRY(import) {
  const auto& given = *static_cast<const athanor::ImportArguments*>(arguments);
  athanor::import_run(given.folder, given.out);
  athanor::log::info(
      "{} is ready: athanor train {}/config.toml --set data.path=FOLDER, or athanor generate {} --prompt …", given.out,
      given.out, given.out);
  return 0;
}
