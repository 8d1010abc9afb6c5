# Files as parts of the program.
#
# nibble_embed(nibble_api api_files /openapi.json=static/openapi.json ...) adds a source to the target
# that defines nibble::api_files(), a span of EmbeddedFile (serve/api/embedded_files.h): under which
# path each is served, and its bytes. Files are named from the folder of the call, or absolutely. As a
# script (cmake -P) this file writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  set(arrays "")
  set(table "")
  set(n 0)
  foreach(entry IN LISTS FILES)
    string(REGEX MATCH "^([^=]+)=(.+)$" _ "${entry}")
    set(path "${CMAKE_MATCH_1}")
    cmake_path(ABSOLUTE_PATH CMAKE_MATCH_2 BASE_DIRECTORY "${FOLDER}" OUTPUT_VARIABLE file)
    file(READ "${file}" hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(APPEND arrays "constexpr unsigned char kFile${n}[] = {${bytes}0};\n")
    string(APPEND table "    {\"${path}\", bytes(kFile${n}, sizeof(kFile${n}))},\n")
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

std::span<const EmbeddedFile> ${FUNCTION}() {
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
function(nibble_embed target name)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cpp)
  set(depends "")
  foreach(entry IN LISTS ARGN)
    string(REGEX REPLACE "^[^=]+=" "" file "${entry}")
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND depends ${file})
  endforeach()
  list(JOIN ARGN "$<SEMICOLON>" files)
  add_custom_command(OUTPUT ${output} DEPENDS ${depends} ${nibble_embed_script} VERBATIM
    COMMAND ${CMAKE_COMMAND} "-DFILES=${files}" -DFOLDER=${CMAKE_CURRENT_SOURCE_DIR}
      -DFUNCTION=${name} -DOUTPUT=${output} -P ${nibble_embed_script})
  target_sources(${target} PRIVATE ${output})
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
