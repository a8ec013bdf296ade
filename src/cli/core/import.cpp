#include "saves/import.h"
#include "base/log.h"
#include "base/shell_words.h"
#include "cli/core.h"
#include "tokenizer/tokenizer_files.h"

ATHANOR_CORE_ENTRY(import) {
  const auto& given = *static_cast<const athanor::ImportArguments*>(arguments);
  athanor::import_run(given.folder, given.out);
  const std::string train = athanor::shell_word(given.out + "/config.toml");
  if (athanor::find_tokenizer(given.out).empty())
    athanor::log::info(
        "{} is ready: athanor train {} --set data.path=FOLDER; it has no tokenizer, which athanor generate "
        "would need",
        given.out, train);
  else
    athanor::log::info("{} is ready: athanor train {} --set data.path=FOLDER, or athanor generate {} --prompt …",
                       given.out, train, athanor::shell_word(given.out));
  return 0;
}
