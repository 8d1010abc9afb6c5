# Run at every build: cmake -DSOURCE_DIR=... -DOUTPUT=... -P write_commit.cmake
# Writes the one small source file that names the commit, and touches it only when that changed. The
# commit comes from git, in a source archive from archived_commit.txt, or is unknown.
set(commit unknown)
set(date "")
# Not any repository further up: an unpacked archive may lie inside another project's.
if(EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND git -C ${SOURCE_DIR} log -1 --format=%h\;%cs
    OUTPUT_VARIABLE line RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed)
    list(GET line 0 commit)
    list(GET line 1 date)
    execute_process(COMMAND git -C ${SOURCE_DIR} diff-index --quiet HEAD --
      RESULT_VARIABLE changed ERROR_QUIET)
    if(changed)
      string(APPEND commit "-changed")
    endif()
  endif()
else()
  file(READ ${SOURCE_DIR}/cmake/archived_commit.txt archived)
  if(archived MATCHES "commit=([0-9a-f]+) date=([-0-9]+)")
    set(commit ${CMAKE_MATCH_1})
    set(date ${CMAKE_MATCH_2})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
// Written by cmake/write_commit.cmake.
#include "core/version.h"

namespace nibble {
const char* const kCommit = "@commit@";
const char* const kCommitDate = "@date@";
}  // namespace nibble
]])
