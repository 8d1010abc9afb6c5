# Files as parts of the program.
#
# nibble_embed(nibble_api static/openapi.json ...) adds a source to the target that defines
# nibble::embedded_files(), declared in serve/api/embedded_files.h. Paths are relative to the folder
# of the call, and are the names without their first folder. As a script (cmake -P) this file writes
# that source.
if(CMAKE_SCRIPT_MODE_FILE)
  set(arrays "")
  set(table "")
  set(n 0)
  foreach(file IN LISTS FILES)
    file(READ "${FOLDER}/${file}" hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "^[^/]+/" "" name "${file}")
    string(APPEND arrays "constexpr unsigned char kFile${n}[] = {${bytes}0};\n")
    string(APPEND table "    {\"${name}\", bytes(kFile${n}, sizeof(kFile${n}))},\n")
    math(EXPR n "${n} + 1")
  endforeach()
  file(WRITE "${OUTPUT}.new" "// Written by cmake/embed_files.cmake.
#include \"serve/api/embedded_files.h\"

namespace nibble {
namespace {

${arrays}
std::string_view bytes(const unsigned char* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size - 1};
}

}  // namespace

std::span<const EmbeddedFile> embedded_files() {
  static const EmbeddedFile kFiles[] = {
${table}  };
  return kFiles;
}

}  // namespace nibble
")
  file(COPY_FILE "${OUTPUT}.new" "${OUTPUT}" ONLY_IF_DIFFERENT)
  file(REMOVE "${OUTPUT}.new")
  return()
endif()

set(nibble_embed_script ${CMAKE_CURRENT_LIST_FILE})
function(nibble_embed target)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_files.cpp)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE depends)
  list(JOIN ARGN "$<SEMICOLON>" files)
  add_custom_command(OUTPUT ${output} DEPENDS ${depends} ${nibble_embed_script} VERBATIM
    COMMAND ${CMAKE_COMMAND} "-DFILES=${files}" -DFOLDER=${CMAKE_CURRENT_SOURCE_DIR}
      -DOUTPUT=${output} -P ${nibble_embed_script})
  target_sources(${target} PRIVATE ${output})
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
