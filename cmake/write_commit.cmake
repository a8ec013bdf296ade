# A script for each build: writes OUT from TEMPLATE with the commit of the checkout SOURCES, if that changes the file.
# "unknown" where there is no git, or where SOURCES is not the root of a checkout, as after unpacking an archive.

function(ask_git result)
  execute_process(COMMAND ${GIT} --no-optional-locks -C ${SOURCES} ${ARGN}
    OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    set(answer "")
  endif()
  set(${result} "${answer}" PARENT_SCOPE)
endfunction()

set(ATHANOR_COMMIT "unknown")
if(GIT)
  ask_git(root rev-parse --show-toplevel)
  file(REAL_PATH "${SOURCES}" sources)
  if(root STREQUAL sources)
    ask_git(commit rev-parse --short=12 HEAD)
    ask_git(changes status --porcelain -- src cmake CMakeLists.txt)  # what is built
    if(commit AND changes)
      string(APPEND commit "+changes")
    endif()
    if(commit)
      set(ATHANOR_COMMIT ${commit})
    endif()
  endif()
endif()
configure_file(${TEMPLATE} ${OUT} @ONLY)
