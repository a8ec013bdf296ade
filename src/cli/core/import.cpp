#include "train/import.h"
#include "base/log.h"
#include "base/shell_words.h"
#include "cli/core.h"

ATHANOR_CORE_ENTRY(import) {
  const auto& given = *static_cast<const athanor::ImportArguments*>(arguments);
  athanor::import_run(given.folder, given.out);
  athanor::log::info("{} is ready: athanor train {} --set data.path=FOLDER, or athanor generate {} --prompt …",
                     given.out, athanor::shell_word(given.out + "/config.toml"), athanor::shell_word(given.out));
  return 0;
}
